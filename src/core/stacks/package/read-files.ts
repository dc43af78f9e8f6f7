import { promisify } from 'node:util';
import { crc32, inflateRaw, type InflateRaw, type ZlibOptions } from 'node:zlib';
import type { PackageProblem } from './problem.ts';
import { listZip, type ZipEntry } from './zip-entries.ts';

/** A file of a package. */
export interface PackageFile {
  /** Relative path, with "/": `modules/web/main.tf`. */
  readonly path: string;
  readonly bytes: Buffer;
  readonly isExecutable: boolean;
}

/** Returns true if a file is in a folder or in one of its parents. */
export function isAbove(path: string, folder: string): boolean {
  const own = path.split('/').slice(0, -1).join('/');
  return own === '' || own === folder || folder.startsWith(`${own}/`);
}

export interface PackageFiles {
  /** Empty if the zip has a problem. */
  readonly files: readonly PackageFile[];
  /** Paths of all files that are not dropped. */
  readonly paths: readonly string[];
  readonly problems: readonly PackageProblem[];
  /** Paths of files that never become part of a stack. */
  readonly dropped: readonly string[];
}

const droppedFolders = new Set(['.terraform', '.git', '__macosx']);
const droppedNames = /^(\.terraformrc|terraform\.rc|\.ds_store|.*\.tfstate(\..*)?|.*\.tfplan)$/;

/**
 * True for files that are left out: state and plans contain secrets, and remains of earlier runs do not belong in the
 * next one.
 */
function isDropped(path: string): boolean {
  const parts = path.toLowerCase().split('/');
  return parts.slice(0, -1).some((part) => droppedFolders.has(part)) || droppedNames.test(parts.at(-1) ?? '');
}

type InflatedInfo = { readonly buffer: Buffer; readonly engine: InflateRaw };
const inflate = promisify(
  (bytes: Buffer, options: ZlibOptions, done: (error: Error | null, result: InflatedInfo) => void): void =>
    // With `info` the result contains the bytes and the inflater, which knows how much it has read.
    inflateRaw(bytes, { ...options, info: true }, done as unknown as (error: Error | null, result: Buffer) => void),
);

/**
 * Reads the files of a zip into memory. Each file is inflated at most to the size in its zip entry, one after another.
 * @throws PackageRefusedError if the zip cannot be read at all
 */
export async function readFiles(zip: Buffer): Promise<PackageFiles> {
  const { entries, problems } = await listZip(zip);
  const kept = entries.filter(({ path, isFolder }) => !isFolder && !isDropped(path));
  const dropped = entries.filter(({ path, isFolder }) => !isFolder && isDropped(path)).map(({ path }) => path);
  const paths = kept.map(({ path }) => path);
  // Nothing is inflated after a problem, which may be the reason for the size.
  if (problems.length > 0) return { files: [], paths, problems, dropped };
  const files: PackageFile[] = [];
  const broken: PackageProblem[] = [];
  for (const entry of kept) {
    const bytes = await readEntry(entry);
    if (typeof bytes === 'string') broken.push({ field: entry.path, message: bytes });
    else files.push({ path: entry.path, bytes, isExecutable: entry.isExecutable });
  }
  return { files, paths, problems: broken, dropped };
}

/** @returns a message if the bytes contradict the zip entry */
async function readEntry(entry: ZipEntry): Promise<Buffer | string> {
  const bytes = entry.isDeflated ? await inflated(entry) : entry.stored;
  if (typeof bytes === 'string') return bytes;
  if (bytes.length !== entry.size) return `has ${bytes.length} bytes, but its zip says ${entry.size}`;
  if (crc32(bytes) !== entry.crc32) return 'is damaged: its checksum does not match';
  return bytes;
}

async function inflated({ stored, size }: ZipEntry): Promise<Buffer | string> {
  try {
    // zlib does not accept a limit of 0.
    const { buffer, engine } = await inflate(stored, { maxOutputLength: Math.max(size, 1) });
    if (engine.bytesWritten !== stored.length) return 'has extra bytes after its end';
    return buffer;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : '';
    if (code === 'ERR_BUFFER_TOO_LARGE') return `inflates to more than the ${size} bytes stated in its zip`;
    return 'is damaged: it cannot be inflated';
  }
}
