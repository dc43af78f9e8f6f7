import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { emptyFolder, inFolderOf, removeFolder, removeUnfollowed } from '#core/runs/runner/no-follow-files.ts';

const program = fileURLToPath(new URL('../../../src/core/runs/runner/no-follow-files.ts', import.meta.url));
const nobody = 65_534;
let dir = '';

beforeEach(async () => {
  dir = await mkdtemp('/tmp/headgate-unfollowed-');
  await mkdir(join(dir, 'work/m'), { recursive: true });
  await mkdir(join(dir, 'victim'));
  await writeFile(join(dir, 'victim/plan'), 'theirs');
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const work = (...parts: string[]): string => join(dir, 'work', ...parts);

describe('removing a file of a work folder', () => {
  it('follows no link in any part of the path', async () => {
    await symlink(join(dir, 'victim'), work('m/.platform'));
    await symlink(dir, work('up'));
    await removeUnfollowed(work(), 'm/.platform/plan');
    await removeUnfollowed(work(), 'up/victim/plan');
    expect(await readFile(join(dir, 'victim/plan'), 'utf8')).toBe('theirs');
  });

  it('rejects a path that leads up or has empty parts', async () => {
    await expect(removeUnfollowed(work(), '../victim/plan')).rejects.toThrow('not a file path');
    await expect(inFolderOf(work(), 'm//plan', () => Promise.resolve())).rejects.toThrow('not a file path');
    expect(existsSync(join(dir, 'victim/plan'))).toBe(true);
  });

  it('removes a file, a link or a folder, and accepts a missing file', async () => {
    await writeFile(work('m/file'), '');
    await symlink(join(dir, 'victim'), work('m/link'));
    await mkdir(work('m/folder/a/b'), { recursive: true });
    for (const name of ['file', 'link', 'folder', 'nothing']) await removeUnfollowed(work(), `m/${name}`);
    expect(await readdir(work('m'))).toEqual([]);
    expect(existsSync(join(dir, 'victim/plan'))).toBe(true);
  });
});

describe('emptying or removing a work folder', () => {
  it('keeps the listed files, and changes nothing behind a link', async () => {
    await mkdir(work('x/y'), { recursive: true });
    await symlink(join(dir, 'victim'), work('x/y/link'));
    for (const path of ['m/state', 'm/id', 'x/y/z']) await writeFile(work(path), '');
    await emptyFolder(work(), ['m/state', 'm/none']);
    expect(await readdir(work(), { recursive: true })).toEqual(['m', 'm/state']);
    expect(existsSync(join(dir, 'victim/plan'))).toBe(true);
  });

  it('removes folders without any permissions', async () => {
    await mkdir(work('a/b/c'), { recursive: true });
    await writeFile(work('a/b/c/x'), '');
    const folders = ['a/b/c', 'a/b', 'a', 'm', ''];
    const isRoot = process.getuid?.() === 0;
    for (const path of ['a/b/c/x', ...folders]) if (isRoot) await chown(work(path), nobody, nobody);
    for (const path of folders) await chmod(work(path), 0);
    await chmod(dir, 0o777);
    if (!isRoot) await removeFolder(work());
    else {
      const text = `import(${JSON.stringify(program)}).then((m) => m.removeFolder(${JSON.stringify(work())}))`;
      await promisify(execFile)(process.execPath, ['-e', text], { uid: nobody, gid: nobody, cwd: '/' });
    }
    expect(existsSync(work())).toBe(false);
  });
});
