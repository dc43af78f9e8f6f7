import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { findOldClosures } from './old-closures.ts';

const root = new URL('../..', import.meta.url).pathname;
/** Files that every request passes through. */
const hot = 'src/{app/server.ts,base/*.ts,edge/{http,inference}/**/*.ts,core/{admission,cache,keys,limits}/**/*.ts}';
const alsoHot = 'src/core/{metering,proxy,requests,routing,wallet}/**/*.ts';
/** Made once for a connection to a store. */
const lasting = ['src/base/redis/connect-redis.ts'];

const check = (text: string): string[] => findOldClosures([{ path: 'src/a.ts', text }]);

describe('the check for functions that V8 allocates in the old generation', () => {
  it('fails without files', () => {
    expect(findOldClosures([])).toEqual(['no files were checked']);
  });

  it.each([
    ['call.onStop = () => stop(call);'],
    ['call.onStop = function () {};'],
    ['call.onStop ??= async () => undefined;'],
    ['class A { #b; c() { this.#b = () => undefined; } }'],
    ["names['a'] = (b) => b;"],
  ])('finds %s', (text) => {
    expect(check(`\n${text}\n`)).toEqual(['src/a.ts:2: give the function a name before it is assigned to a property']);
  });

  it.each([
    ['const onStop = () => stop(call); call.onStop = onStop;'],
    ['let a; a = () => undefined;'],
    ['const a = { b: () => undefined };'],
    ['class A { b = () => undefined; }'],
    ['a.b = c(() => undefined);'],
  ])('ignores %s', (text) => {
    expect(check(text)).toEqual([]);
  });

  it('finds none on the request path', () => {
    const paths = globSync([hot, alsoHot], { cwd: root }).filter((path) => !lasting.includes(path));
    expect(paths.length).toBeGreaterThan(80);
    expect(findOldClosures(paths.map((path) => ({ path, text: readFileSync(root + path, 'utf8') })))).toEqual([]);
  });
});
