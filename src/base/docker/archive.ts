import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import tar from 'tar-stream';

/** A file in a tar file of the Engine API, which may contain plain files and folders only. */

export interface ArchiveFile {
  /** Path with `/`, relative to the folder that the archive is made for. */
  readonly path: string;
  /** Null: a folder. */
  readonly bytes: Uint8Array | null;
  /** True if the file may be run as a program; absent means false. */
  readonly isExecutable?: boolean;
}

/** Owner of everything in an archive; nobody else may read it. */
export interface ArchiveOwner {
  readonly uid: number;
  readonly gid: number;
}

/** Packs a tar file; the folder of a file is an entry before the file. */
export async function packArchive(files: readonly ArchiveFile[], owner: ArchiveOwner): Promise<Buffer> {
  const pack = tar.pack();
  const packed = buffer(pack);
  const made = new Set<string>();
  const common = { ...owner, mtime: new Date(0) };
  const folder = (path: string): void => {
    if (path === '' || made.has(path)) return;
    folder(parentOf(path));
    made.add(path);
    pack.entry({ ...common, name: `${path}/`, type: 'directory', mode: 0o700 }, Buffer.alloc(0));
  };
  for (const { path, bytes, isExecutable = false } of files) {
    if (bytes === null) folder(path);
    else {
      folder(parentOf(path));
      pack.entry({ ...common, name: path, type: 'file', mode: isExecutable ? 0o700 : 0o600 }, Buffer.from(bytes));
    }
  }
  pack.finalize();
  return packed;
}

/** Bit of a file's mode. */
const ownerMayRun = 0o100;

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')));

export interface ArchiveBounds {
  /** Bytes of all files together. */
  readonly bytesMax: number;
  readonly entriesMax: number;
}

/** An archive holds an entry that is neither a file nor a folder, or exceeds its bounds. */
export class ArchiveError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ArchiveError';
  }
}

/** Reads all files and folders of an archive. @throws ArchiveError, or the stream's error */
export async function readArchive(stream: Readable, bounds: ArchiveBounds): Promise<ArchiveFile[]> {
  const files: ArchiveFile[] = [];
  let left = bounds.bytesMax;
  const extract = tar.extract();
  extract.on('entry', (headers, content, next) => {
    const { name, type, size, mode } = headers;
    const problem = problemOf(type, size > left, files.length >= bounds.entriesMax);
    if (problem !== null) {
      next(new ArchiveError(`${name.slice(0, 100)} ${problem}`));
      return;
    }
    left -= size;
    const path = name.replace(/\/+$/, '');
    const parts: Buffer[] = [];
    content.on('data', (part: Buffer) => parts.push(part));
    content.on('end', () => {
      if (type === 'directory') files.push({ path, bytes: null });
      else files.push({ path, bytes: Buffer.concat(parts), ...((mode & ownerMayRun) !== 0 && { isExecutable: true }) });
      next();
    });
  });
  await pipeline(stream, extract);
  return files;
}

function problemOf(type: string, isTooLarge: boolean, areTooMany: boolean): string | null {
  if (type !== 'file' && type !== 'directory') return `is not a regular file (${type})`;
  if (isTooLarge) return 'is too large';
  return areTooMany ? 'is one file too many' : null;
}

/** Reads the only file of an archive; null if it is anything else, `too large` if it is above `bytesMax`. */
export async function readOnlyFile(stream: Readable, bytesMax: number): Promise<Buffer | 'too large' | null> {
  try {
    const [file] = await readArchive(stream, { bytesMax, entriesMax: 1 });
    return file?.bytes ? Buffer.from(file.bytes) : null;
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    return error.message.endsWith('large') ? 'too large' : null;
  }
}
