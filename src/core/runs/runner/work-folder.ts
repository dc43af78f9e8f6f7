import { chownSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { RunUser } from './sandbox.ts';
import { FileTooLargeError, logChunkBytes, type WorkFile, type WrittenBy } from './types.ts';
import { openUnfollowed } from './unfollowed.ts';

/**
 * In a folder that is made here: what a package brings can lead nowhere else. The folder is the run's user's own where
 * the gateway is root.
 */
export function writeFiles(workDir: string, files: readonly WorkFile[], user: RunUser | null): void {
  rmSync(workDir, { recursive: true, force: true });
  const own = (path: string): void => (user === null ? undefined : chownSync(path, user.uid, user.gid));
  const makeDir = (path: string): void => {
    if (path.length < workDir.length) return;
    const made = mkdirSync(path, { recursive: true, mode: 0o700 });
    if (made === undefined) return;
    for (let folder = path; folder.length >= workDir.length; folder = dirname(folder)) own(folder);
  };
  makeDir(workDir);
  for (const name of ['home', 'tmp']) makeDir(join(workDir, name));
  for (const { path, bytes, isExecutable = false } of files) {
    const target = join(workDir, path);
    makeDir(dirname(target));
    writeFileSync(target, bytes, { flag: 'wx', mode: isExecutable ? 0o700 : 0o600 });
    own(target);
  }
}

/** Nothing where there is no such file, or nothing behind `offset`. */
export async function readFrom(path: string, offset: number): Promise<Buffer> {
  const file = await open(path, 'r').catch(() => null);
  if (file === null) return Buffer.alloc(0);
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(logChunkBytes), 0, logChunkBytes, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/** What the keeper of a phase has noted; nothing where it has not. */
export async function readTimes(path: string): Promise<readonly WrittenBy[]> {
  const text = await readFile(path, 'latin1').catch(() => '');
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => {
      const [bytes, atMs] = line.split(' ').map(Number);
      return { bytes: bytes ?? 0, atMs: atMs ?? 0 };
    });
}

/** What a run wrote may be a pipe or a link, and so may its folders: only a plain file at this very place is read. */
export async function readBounded(workDir: string, path: string, bytesMax: number): Promise<Buffer | null> {
  const file = await openUnfollowed(workDir, path).catch(() => null);
  if (file === null) return null;
  try {
    const found = await file.stat();
    if (!found.isFile()) return null;
    if (found.size > bytesMax) throw new FileTooLargeError(basename(path), bytesMax);
    const bytes = Buffer.alloc(found.size);
    const { bytesRead } = await file.read(bytes, 0, found.size, 0);
    return bytes.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
