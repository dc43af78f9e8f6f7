import {
  appendFileSync,
  chmodSync,
  closeSync,
  existsSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  boundLog,
  logPathOf,
  openLog,
  prepareProcessFolders,
  readLogTail,
  socketPathOf,
} from '#core/fleet/drivers/process/files.ts';
import { newReplicaId } from '#core/fleet/drivers/replica.ts';
import { newFolder } from '#test/fleet/test-fleet.ts';

let folder: string;
let elsewhere: string[];

beforeEach(() => {
  folder = newFolder();
  elsewhere = [];
});
afterEach(() => {
  for (const path of [folder, ...elsewhere]) rmSync(path, { recursive: true, force: true });
});

function preparedLong() {
  const folders = prepareProcessFolders(join(folder, 'd'.repeat(120)));
  elsewhere.push(folders.sockets);
  return folders;
}

describe('a socket folder outside the data folder', () => {
  it('is replaced when others can enter it or it became a symbolic link', () => {
    const first = preparedLong().sockets;
    chmodSync(first, 0o755);
    const second = preparedLong().sockets;
    expect(second).not.toBe(first);
    rmSync(second, { recursive: true });
    symlinkSync('/', second);
    const third = preparedLong().sockets;
    expect(third).not.toBe(second);
    expect(statSync(third).mode & 0o777).toBe(0o700);
  });

  it('is created once and reused', () => {
    const first = preparedLong();
    expect(dirname(first.sockets)).not.toContain('ddd');
    expect(preparedLong()).toEqual(first);
    expect(Buffer.byteLength(socketPathOf(first, newReplicaId('x')))).toBeLessThanOrEqual(107);
  });
});

describe('a log file', () => {
  it("is readable only by the gateway's user, and is rotated at each start of the engine", () => {
    const path = logPathOf(prepareProcessFolders(folder), 'acme/Chat:1');
    expect(path).toMatch(/\/acme_Chat_1-[0-9a-f]{6}\.log$/);
    for (const text of ['first', 'second']) {
      const log = openLog(path);
      writeSync(log, text);
      closeSync(log);
    }
    expect([readFileSync(`${path}.1`, 'utf8'), readFileSync(path, 'utf8')]).toEqual(['first', 'second']);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('stays below its size limit while the engine keeps writing', () => {
    const path = logPathOf(prepareProcessFolders(folder), 'chat');
    const log = openLog(path);
    for (let line = 0; line < 600; line += 1) {
      writeSync(log, `${'x'.repeat(16_383)}\n`);
      if (line % 10 === 0) boundLog(path);
    }
    writeSync(log, 'the end\n');
    closeSync(log);
    expect(statSync(path).size).toBeLessThan(4.5 * 1_048_576);
    expect(statSync(`${path}.1`).size).toBeLessThan(1.1 * 1_048_576);
    const tail = readLogTail(path);
    expect(tail.length).toBeLessThanOrEqual(65_536);
    expect(tail.endsWith('the end\n')).toBe(true);
  });

  it('reads as empty when missing, and limiting its size creates no file', () => {
    const path = join(folder, 'nothing.log');
    boundLog(path);
    expect(readLogTail(path)).toBe('');
    expect(existsSync(path)).toBe(false);
    writeFileSync(path, 'a');
    appendFileSync(path, 'b');
    boundLog(path);
    expect(readLogTail(path)).toBe('ab');
  });
});
