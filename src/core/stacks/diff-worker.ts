import { isUtf8 } from 'node:buffer';
import { parentPort, workerData } from 'node:worker_threads';
import { formatPatch, structuredPatch, type StructuredPatch } from 'diff';
import type { PackageFile } from '#core/stacks/package/package.ts';

/** Worker thread that compares the files of two packages; see compare.ts. */

/** The thread gets typed arrays in place of buffers. */
type SentFile = Omit<PackageFile, 'bytes'> & { readonly bytes: Uint8Array };

export interface SentFiles {
  readonly before: readonly SentFile[];
  readonly after: readonly SentFile[];
}

export type ChangeKind = 'added' | 'removed' | 'changed';

export interface FileChange {
  /** Path below the top folder of the package. */
  readonly path: string;
  readonly change: ChangeKind;
  /** Unified diff in git's format; null if it is left out. */
  readonly diff: string | null;
  /** Reason why the diff is left out; null if it is not. */
  readonly omitted: 'binary' | 'too_large' | null;
}

/** Largest file that is compared line by line, in bytes. */
const fileBytesMax = 512 * 1024;
/** Most lines that differ in a changed file. The time to find them grows with their square. */
const changedLinesMax = 1000;
/** Most lines of all files that are compared, and most characters of all diffs. */
const linesMax = 50_000;
const charsMax = 512 * 1024;

function compareFiles({ before, after }: SentFiles): FileChange[] {
  const [old, fresh] = [byPath(before), byPath(after)];
  const left = { lines: linesMax, chars: charsMax };
  const changes: FileChange[] = [];
  for (const path of [...new Set([...old.keys(), ...fresh.keys()])].toSorted()) {
    const files = { old: old.get(path) ?? null, fresh: fresh.get(path) ?? null };
    if (isSameFile(files.old, files.fresh)) continue;
    changes.push({ path, change: kindOf(files.old, files.fresh), ...diffOf(path, files, left) });
  }
  return changes;
}

/** Returns files by their path below the folder that contains all of them: archives name it after the release. */
function byPath(files: readonly SentFile[]): ReadonlyMap<string, PackageFile> {
  const top = /^[^/]*\//.exec(files[0]?.path ?? '')?.[0] ?? '';
  const length = files.every(({ path }) => path.startsWith(top)) ? top.length : 0;
  return new Map(
    files.map(({ path, bytes, ...file }) => {
      const own = path.slice(length);
      return [own, { ...file, path: own, bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) }];
    }),
  );
}

const isSameFile = (one: PackageFile | null, other: PackageFile | null): boolean =>
  one !== null && other !== null && one.isExecutable === other.isExecutable && one.bytes.equals(other.bytes);

function kindOf(before: unknown, after: unknown): ChangeKind {
  if (before === null) return 'added';
  return after === null ? 'removed' : 'changed';
}

interface FilePair {
  readonly old: PackageFile | null;
  readonly fresh: PackageFile | null;
}

/** @param left what may still be compared and shown; it is reduced */
function diffOf(
  path: string,
  { old, fresh }: FilePair,
  left: { lines: number; chars: number },
): Pick<FileChange, 'diff' | 'omitted'> {
  const tooLarge = { diff: null, omitted: 'too_large' } as const;
  const present = [old, fresh].flatMap((file) => (file === null ? [] : [file.bytes]));
  if (present.some((bytes) => bytes.length > fileBytesMax)) return tooLarge;
  if (present.some((bytes) => !isUtf8(bytes) || bytes.includes(0))) return { diff: null, omitted: 'binary' };
  const texts = [old, fresh].map((file) => file?.bytes.toString('utf8') ?? '');
  const [before = '', after = ''] = texts;
  left.lines -= texts.reduce((sum, text) => sum + text.split('\n').length, 0);
  if (left.lines < 0) return tooLarge;
  const options = { context: 3, maxEditLength: old === null || fresh === null ? linesMax : changedLinesMax };
  const patch = structuredPatch(`a/${path}`, `b/${path}`, before, after, undefined, undefined, options);
  if (patch === undefined) return tooLarge;
  const diff = formatPatch({ ...patch, isGit: true, ...headersOf(old, fresh) });
  left.chars -= diff.length;
  return left.chars < 0 ? tooLarge : { diff, omitted: null };
}

/** Returns the parts of a patch that name what git does besides changing lines. */
function headersOf(old: PackageFile | null, fresh: PackageFile | null): Partial<StructuredPatch> {
  const modes = {
    ...(old !== null && { oldMode: modeOf(old) }),
    ...(fresh !== null && { newMode: modeOf(fresh) }),
  };
  if (old === null) return { ...modes, oldFileName: '/dev/null', isCreate: true };
  if (fresh === null) return { ...modes, newFileName: '/dev/null', isDelete: true };
  return old.isExecutable === fresh.isExecutable ? {} : modes;
}

const modeOf = ({ isExecutable }: PackageFile): string => (isExecutable ? '100755' : '100644');

parentPort?.postMessage(compareFiles(workerData as SentFiles));
