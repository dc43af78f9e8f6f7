import type { Dirent } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** One with more takes as much of a file system as one that is too large. */
const entriesMax = 2_000_000;

/** A folder, or what is in it, cannot be looked at: closed by its owner, or too deep for a path. */
export class UncountedError extends Error {
  constructor(path: string, code: string) {
    super(`${path} cannot be counted (${code})`);
    this.name = 'UncountedError';
  }
}

/**
 * Bytes on disk of a folder and of all that is in it; links are counted and not followed. What goes meanwhile counts for
 * nothing.
 * @param enough where counting may end
 * @throws UncountedError
 */
export async function diskBytesOf(folder: string, enough: number): Promise<number> {
  let bytes = 0;
  let entries = 0;
  const folders = [folder];
  for (let next = folders.pop(); next !== undefined; next = folders.pop()) {
    for (const entry of await entriesOf(next)) {
      entries += 1;
      if (entries > entriesMax) return Number.POSITIVE_INFINITY;
      if (bytes > enough) return bytes;
      const path = join(next, entry.name);
      bytes += await lstat(path).then(
        ({ blocks }) => blocks * 512,
        (error: unknown) => unlessGone(error, path, 0),
      );
      if (entry.isDirectory()) folders.push(path);
    }
  }
  return bytes;
}

const entriesOf = (folder: string): Promise<Dirent[]> =>
  readdir(folder, { withFileTypes: true }).catch((error: unknown) => unlessGone(error, folder, []));

/** @returns `nothing` for what went meanwhile, or became something else */
function unlessGone<T>(error: unknown, path: string, nothing: T): T {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  if (code === 'ENOENT' || code === 'ENOTDIR') return nothing;
  throw new UncountedError(path, code);
}
