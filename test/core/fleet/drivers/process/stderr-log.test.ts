import { appendFileSync, closeSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { addErrors, errorPathOf, openErrorLog } from '#core/fleet/drivers/process/stderr-log.ts';
import { newFolder } from '#test/fleet/test-fleet.ts';

let folder: string;
let log: string;
let errors: string;

beforeEach(() => {
  folder = newFolder();
  log = join(folder, 'logs', 'chat-1.log');
  for (const name of ['logs', 'stderr']) mkdirSync(join(folder, name));
  errors = errorPathOf(log);
  writeFileSync(log, '');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const logged = (): string => readFileSync(log, 'utf8');

describe('the stderr of a process', () => {
  it("is readable only by the gateway's user, and starts empty at each start", () => {
    closeSync(openErrorLog(log));
    appendFileSync(errors, 'of the first\n');
    addErrors(log);
    closeSync(openErrorLog(log));
    expect([readFileSync(errors, 'utf8'), statSync(errors).mode & 0o777]).toEqual(['', 0o600]);
    appendFileSync(errors, 'two\n');
    addErrors(log);
    expect(logged()).toBe('of the first\ntwo\n');
  });

  it('is copied to the log once, in whole lines, across calls', () => {
    appendFileSync(log, 'printed\n');
    appendFileSync(errors, 'one\ntw');
    addErrors(log);
    expect(logged()).toBe('printed\none\n');
    appendFileSync(log, 'more\n');
    addErrors(log);
    appendFileSync(errors, 'o\nthree');
    addErrors(log);
    expect(logged()).toBe('printed\none\nmore\ntwo\n');
    addErrors(log, true);
    addErrors(log, true);
    expect(logged()).toBe('printed\none\nmore\ntwo\nthree');
  });

  it('stays below its size limit and loses no later lines', () => {
    for (let part = 0; part < 12; part += 1) {
      appendFileSync(errors, `${'x'.repeat(524_287)}\n`);
      addErrors(log);
    }
    expect(statSync(errors).size).toBeLessThan(4.6 * 1_048_576);
    appendFileSync(errors, 'the end\n');
    addErrors(log);
    expect(logged().endsWith('x\nthe end\n')).toBe(true);
    expect(logged()).toHaveLength(12 * 524_288 + 8);
  });

  it('is cut when a line never ends', () => {
    appendFileSync(errors, 'y'.repeat(70_000));
    addErrors(log);
    expect(logged()).toHaveLength(70_000);
  });

  it('adds nothing to the log when its file is missing', () => {
    addErrors(join(folder, 'logs', 'other.log'));
    addErrors(log, true);
    expect(logged()).toBe('');
  });
});
