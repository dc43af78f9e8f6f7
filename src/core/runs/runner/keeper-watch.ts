import type { Dirent } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** A folder with more entries counts as too large: entries use the file system too. */
const entriesMax = 2_000_000;

/** A folder or an entry cannot be counted: its permissions forbid it, or its path is too long. */
export class UncountedError extends Error {
  constructor(path: string, code: string) {
    super(`the size of ${path} is unknown (${code})`);
    this.name = 'UncountedError';
  }
}

/**
 * Returns the bytes on disk of a folder and its content. Links are counted and not followed; entries that disappear
 * meanwhile count as nothing.
 * @param enough size at which counting may stop
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
        (error: unknown) => unlessMissing(error, path, 0),
      );
      if (entry.isDirectory()) folders.push(path);
    }
  }
  return bytes;
}

const entriesOf = (folder: string): Promise<Dirent[]> =>
  readdir(folder, { withFileTypes: true }).catch((error: unknown) => unlessMissing(error, folder, []));

/** @returns `nothing` for an entry that was removed or replaced meanwhile */
function unlessMissing<T>(error: unknown, path: string, nothing: T): T {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  if (code === 'ENOENT' || code === 'ENOTDIR') return nothing;
  throw new UncountedError(path, code);
}
