import { chownSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { RunUser } from './sandbox.ts';
import { FileTooLargeError, logChunkBytes, type WorkFile, type WrittenBy } from './types.ts';
import { openUnfollowed } from './no-follow-files.ts';

/**
 * Writes files into a new folder, so that no link of a package leads elsewhere. The folder belongs to the run's user if
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

/** Returns an empty buffer if the file does not exist, or ends at `offset`. */
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

/** Reads the times that a phase's keeper recorded; none if there is no file. */
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

/** Reads a plain file at exactly this path: a run may have created a pipe or a link, also in place of a folder. */
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
