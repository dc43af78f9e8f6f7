import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  defaultDataDir,
  listGatewayDirs,
  lockDataDir,
  lockGatewayDir,
  lockOrphanedDir,
  makeDataDir,
} from '#base/config/data-dir.ts';

let dir = '';
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'headgate-data-dir-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const holder = `
  import { lockDataDir } from ${JSON.stringify(new URL('../../src/base/config/data-dir.ts', import.meta.url).href)};
  lockDataDir(process.argv[1]);
  for (let tries = 1; tries < Number(process.argv[2]); tries += 1) {
    try { lockDataDir(process.argv[1]); } catch {}
  }
  // What nobody refers to is let go of by now. Its memory may be tidied up in a later turn only.
  await new Promise(setImmediate);
  globalThis.gc();
  process.stdout.write('held');
  setInterval(() => undefined, 1000);
`;

describe('the lock of a data folder', () => {
  it('rejects a second holder in the same process, with a message that names the variable', () => {
    const release = lockDataDir(dir);
    expect(() => lockDataDir(dir)).toThrow(
      `HEADGATE_DATA_DIR: the folder ${dir} is in use by a gateway (process ${process.pid})`,
    );
    release();
  });

  it('is free again after its release, which may be called twice', () => {
    const release = lockDataDir(dir);
    expect(statSync(join(dir, 'gateway.lock')).mode & 0o777).toBe(0o600);
    release();
    release();
    expect(() => lockDataDir(dir)()).not.toThrow();
  });

  it.each([
    ['', 1],
    [', also one that asked for it twice', 2],
  ])('rejects a second process, and is free as soon as the first is killed%s', async (_, tries) => {
    const child = spawn(process.execPath, ['--expose-gc', '--input-type=module', '-e', holder, dir, String(tries)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    try {
      expect(() => lockDataDir(dir)).toThrow(`(process ${child.pid})`);
    } finally {
      child.kill('SIGKILL');
    }
    await once(child, 'exit');
    expect(() => lockDataDir(dir)()).not.toThrow();
  });

  it('does not affect other folders', () => {
    const release = lockDataDir(join(dir, 'a'));
    expect(() => lockDataDir(join(dir, 'b'))()).not.toThrow();
    release();
  });
});

describe('the folders of several gateways', () => {
  it('are the data folder for the first gateway, and the first free folder below it for each next', () => {
    const [first, second, third] = [lockGatewayDir(dir), lockGatewayDir(dir), lockGatewayDir(dir)];
    expect([first.path, second.path, third.path]).toEqual([
      dir,
      join(dir, 'gateways', '1'),
      join(dir, 'gateways', '2'),
    ]);
    second.release();
    const again = lockGatewayDir(dir);
    expect(again.path).toBe(second.path);
    for (const { release } of [first, again, third]) release();
  });

  it('are listed whether in use or not, without other files', () => {
    expect(listGatewayDirs(dir)).toEqual([dir]);
    const held = lockGatewayDir(dir);
    lockGatewayDir(dir).release();
    writeFileSync(join(dir, 'gateways', 'notes.txt'), '');
    expect(listGatewayDirs(dir)).toEqual([dir, join(dir, 'gateways', '1')]);
    held.release();
  });

  it('are locked only when no gateway uses them', () => {
    const held = lockGatewayDir(dir);
    expect(lockOrphanedDir(dir)).toBeNull();
    held.release();
    const release = lockOrphanedDir(dir);
    expect(release).not.toBeNull();
    expect(() => lockDataDir(dir)).toThrow('is in use by a gateway');
    release?.();
  });
});

describe('a data folder', () => {
  it('is rejected below a file, with a message that names the variable', () => {
    writeFileSync(join(dir, 'file'), '');
    expect(() => makeDataDir(join(dir, 'file', 'data'))).toThrow(/^HEADGATE_DATA_DIR: the folder .* cannot be used/);
  });

  it("is created with its parents, closed to others except for passing through root's folders", () => {
    const path = makeDataDir(join(dir, 'a', 'b'));
    for (const made of [path, join(dir, 'a')])
      expect(statSync(made).mode & 0o777).toBe(process.geteuid?.() === 0 ? 0o711 : 0o700);
    expect(makeDataDir(path)).toBe(path);
  });
});

describe('the default data folder', () => {
  it('is rejected for a user without a home', () => {
    expect(() => defaultDataDir({}, 1000)).toThrow(/^HEADGATE_DATA_DIR: set it to a folder/);
  });

  it("is the system's for root and the user's for others", () => {
    expect(defaultDataDir({ HOME: '/root' }, 0)).toBe('/var/lib/headgate');
    expect(defaultDataDir({ HOME: '/home/a' }, 1000)).toBe('/home/a/.local/share/headgate');
    expect(defaultDataDir({ HOME: '/home/a', XDG_DATA_HOME: '/data' }, 1000)).toBe('/data/headgate');
    expect(defaultDataDir({ HOME: '/home/a', XDG_DATA_HOME: 'relative' }, 1000)).toBe('/home/a/.local/share/headgate');
  });
});
