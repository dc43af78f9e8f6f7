import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { readLogin } from '#base/config/login-file.ts';

const run = promisify(execFile);
const moduleUrl = new URL('../../src/base/config/login-file.ts', import.meta.url).href;
const folder = mkdtempSync(join(tmpdir(), 'hg-login-'));

afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('the login file', () => {
  it('loses no key when several processes write it at once', async () => {
    const file = join(folder, 'headgate', 'login.json');
    const [writers, writes] = [4, 50];
    const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);
    const urlOf = (writer: number, write: number): string => `http://gateway-${writer}-${write}`;
    const script = (writer: number): string => `
      import { removeLogin, writeLogin } from '${moduleUrl}';
      for (let write = 0; write < ${writes}; write += 1) {
        writeLogin('${file}', { url: 'http://gateway-${writer}-' + write, apiKey: 'key ' + write });
        if (write % 2 === 1) removeLogin('${file}', 'http://gateway-${writer}-' + write);
      }`;
    await Promise.all(
      numbers(writers).map((writer) => run(process.execPath, ['--input-type=module', '-e', script(writer)])),
    );
    const kept = numbers(writers).flatMap((writer) =>
      numbers(writes / 2).map((half): [string, string] => [urlOf(writer, 2 * half), `key ${2 * half}`]),
    );
    const { keys, problem } = readLogin(file);
    expect(problem).toBe(null);
    expect(keys).toEqual(Object.fromEntries(kept));
    expect(readdirSync(join(folder, 'headgate')).toSorted()).toEqual(['login.json', 'login.json.lock']);
  });
});
