import yauzl, { type Entry } from 'yauzl';
import { entriesMax, fileBytesMax, inflatedBytesMax, sizeText } from './limits.ts';
import { type PackageProblem, PackageRefusedError } from './problem.ts';

/** Reads the directory of a zip and checks it against the local headers. Nothing is inflated here. */

/** An entry of a zip, with its place in the zip's bytes. */
export interface ZipEntry {
  readonly path: string;
  readonly isFolder: boolean;
  readonly isExecutable: boolean;
  readonly isDeflated: boolean;
  readonly crc32: number;
  /** Size after inflating, according to the zip. */
  readonly size: number;
  /** Bytes as stored in the zip. */
  readonly stored: Buffer;
}

export interface ZipListing {
  readonly entries: readonly ZipEntry[];
  readonly problems: readonly PackageProblem[];
}

const localSignature = 0x04034b50;
const localHeaderBytes = 30;
const unicodePathField = 0x7075;
const [methodStored, methodDeflated] = [0, 8];
const pathBytesMax = 512;
const partBytesMax = 255;

/** @throws PackageRefusedError if the bytes are not a zip, or its directory cannot be read completely */
export async function listZip(bytes: Buffer): Promise<ZipListing> {
  if (bytes.length < 4 || bytes.readUInt32LE(0) !== localSignature) {
    throw new PackageRefusedError([
      { field: 'file', message: 'is not a zip file: it does not begin with a zip entry' },
    ]);
  }
  const problems: PackageProblem[] = [];
  const places = new Places();
  const entries: ZipEntry[] = [];
  let inflated = 0;
  for (const entry of await readDirectory(bytes)) {
    const path = pathOf(entry);
    const wrong = (message: string): void => void problems.push({ field: path, message });
    for (const message of [...nameProblems(path, entry), ...kindProblems(path, entry)]) wrong(message);
    inflated += entry.uncompressedSize;
    const range = rangeOf(bytes, entry);
    if (typeof range === 'string') {
      wrong(range);
      continue;
    }
    const taken = places.take(path, range);
    if (taken !== null) wrong(taken);
    entries.push(toZipEntry(path, entry, bytes.subarray(range.data, range.end)));
  }
  if (inflated > inflatedBytesMax) {
    problems.push({ field: 'file', message: `inflates to more than ${sizeText(inflatedBytesMax)}` });
  }
  return { entries, problems: [...problems, ...places.overlaps(), ...places.folderProblems()] };
}

function toZipEntry(path: string, entry: Entry, stored: Buffer): ZipEntry {
  return {
    path,
    isFolder: path.endsWith('/'),
    isExecutable: (modeOf(entry) & 0o111) !== 0,
    isDeflated: entry.compressionMethod === methodDeflated,
    crc32: entry.crc32,
    size: entry.uncompressedSize,
    stored,
  };
}

async function readDirectory(bytes: Buffer): Promise<readonly Entry[]> {
  try {
    const zip = await yauzl.fromBufferPromise(bytes, { decodeStrings: false, validateEntrySizes: false });
    if (zip.entryCount > entriesMax) {
      throw new PackageRefusedError([{ field: 'file', message: `has more than ${entriesMax} entries` }]);
    }
    const found: Entry[] = [];
    for await (const entry of zip.eachEntry()) found.push(entry);
    return found;
  } catch (error) {
    if (error instanceof PackageRefusedError) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new PackageRefusedError([{ field: 'file', message: `is not a readable zip file: ${message}` }]);
  }
}

/** Decodes as UTF-8 whatever the flag says: archivers often do not set it. */
const pathOf = (entry: Entry): string => asPath(entry.fileNameRaw.toString('utf8'), entry);

/** Systems, by the upper byte of "version made by" (APPNOTE.TXT 4.4.2), whose archivers write "\\" between folders. */
const backslashSystems = new Set([0, 10]);

/** Reads `win\\main.tf` of Windows' Compress-Archive as `win/main.tf`. */
function asPath(name: string, { versionMadeBy }: Entry): string {
  return backslashSystems.has(versionMadeBy >>> 8) ? name.replaceAll('\\', '/') : name;
}

function nameProblems(path: string, entry: Entry): string[] {
  const problems: string[] = [];
  const { fileNameRaw: raw, extraFields, generalPurposeBitFlag: flags } = entry;
  if (!Buffer.from(raw.toString('utf8')).equals(raw)) problems.push('its name is not UTF-8');
  if (extraFields.some(({ id }) => id === unicodePathField)) {
    const other = yauzl.getFileNameLowLevel(flags, raw, extraFields, false);
    if (asPath(other, entry) !== path) problems.push('has two names');
  }
  const parts = path.replace(/\/$/, '').split('/');
  if (path === '') problems.push('has no name');
  else if (yauzl.validateFileName(path) !== null) {
    problems.push('its name leads out of the package: use relative names with "/" and without ".."');
  } else if (parts.some((part) => part === '' || part === '.')) problems.push('its name has an empty part or "."');
  if (/\p{Cc}/u.test(path)) problems.push('its name has control characters');
  if (raw.length > pathBytesMax || parts.some((part) => Buffer.byteLength(part) > partBytesMax)) {
    problems.push(`its name is longer than ${pathBytesMax} bytes, or a part of it than ${partBytesMax}`);
  }
  return problems;
}

/** Returns the Unix mode, which Unix archivers store here; 0 if there is none. */
const modeOf = ({ externalFileAttributes }: Entry): number => externalFileAttributes >>> 16;

const typeMask = 0o170_000;
const regularFile = 0o100_000;
const folder = 0o040_000;
const otherTypes: Readonly<Record<number, string>> = {
  0o120_000: 'a symbolic link',
  0o010_000: 'a FIFO',
  0o020_000: 'a character device',
  0o060_000: 'a block device',
  0o140_000: 'a socket',
};

function kindProblems(path: string, entry: Entry): string[] {
  const problems: string[] = [];
  const type = modeOf(entry) & typeMask;
  const isFolder = path.endsWith('/');
  if (type !== 0 && type !== regularFile && type !== folder) {
    problems.push(`is ${otherTypes[type] ?? 'of an unknown type'}: only files and folders are allowed`);
  }
  if (type === (isFolder ? regularFile : folder)) {
    problems.push('its name and its mode disagree on whether it is a file or a folder');
  }
  if (isFolder && entry.uncompressedSize > 0) problems.push('is a folder with content');
  return [...problems, ...packingProblems(entry)];
}

/** Flag bits that mark an entry as encrypted. */
const encryptedFlags = 0x41;

function packingProblems(entry: Entry): string[] {
  const { generalPurposeBitFlag: flags, compressionMethod: method, compressedSize, uncompressedSize } = entry;
  const problems: string[] = [];
  if ((flags & encryptedFlags) !== 0) problems.push('is encrypted');
  if (method !== methodStored && method !== methodDeflated) {
    problems.push('uses a compression other than deflate');
  }
  if (method === methodStored && compressedSize !== uncompressedSize) {
    problems.push('is not compressed but has two different sizes');
  }
  if (uncompressedSize > fileBytesMax) problems.push(`is larger than ${sizeText(fileBytesMax)}`);
  return problems;
}

/** Position of an entry in its zip, in bytes from the beginning. */
interface ByteRange {
  /** Start of the local header. */
  readonly begin: number;
  readonly data: number;
  readonly end: number;
}

/** Returns a message if the local header contradicts the directory. */
function rangeOf(bytes: Buffer, entry: Entry): ByteRange | string {
  const begin = entry.relativeOffsetOfLocalHeader;
  if (begin + localHeaderBytes > bytes.length || bytes.readUInt32LE(begin) !== localSignature) {
    return 'its local header is not at the offset in the directory';
  }
  const nameEnd = begin + localHeaderBytes + bytes.readUInt16LE(begin + 26);
  const data = nameEnd + bytes.readUInt16LE(begin + 28);
  const end = data + entry.compressedSize;
  if (end > bytes.length) return 'extends beyond the end of the zip';
  if (!bytes.subarray(begin + localHeaderBytes, nameEnd).equals(entry.fileNameRaw)) {
    return 'has a different name in its local header';
  }
  if (bytes.readUInt16LE(begin + 8) !== entry.compressionMethod) return 'has a different method in its local header';
  return { begin, data, end };
}

/** Positions of entries, in the zip and in the tree of folders. */
class Places {
  /** Names by their form on file systems that ignore case. */
  readonly #paths = new Map<string, string>();
  readonly #ranges: (ByteRange & { readonly path: string })[] = [];

  /** @returns a message if another entry has the name already */
  take(path: string, range: ByteRange): string | null {
    const key = path.replace(/\/$/, '').normalize('NFC').toLowerCase();
    const other = this.#paths.get(key);
    this.#ranges.push({ path, ...range });
    if (other === undefined) {
      this.#paths.set(key, path);
      return null;
    }
    return other === path ? 'is in the package twice' : `differs from ${other} only in case`;
  }

  /** Reports entries that share bytes, which is how a small zip inflates to a large one. */
  overlaps(): PackageProblem[] {
    let reached = 0;
    return this.#ranges
      .toSorted((a, b) => a.begin - b.begin || a.end - b.end)
      .flatMap(({ path, begin, end }): PackageProblem[] => {
        const isOver = begin < reached;
        reached = Math.max(reached, end);
        return isOver ? [{ field: path, message: 'overlaps the bytes of another entry' }] : [];
      });
  }

  folderProblems(): PackageProblem[] {
    return [...this.#paths].flatMap(([key, path]): PackageProblem[] => {
      const parts = key.split('/');
      const above = parts.slice(0, -1).map((_, index) => parts.slice(0, index + 1).join('/'));
      const isBelowFile = above.some((name) => this.#paths.get(name)?.endsWith('/') === false);
      return isBelowFile ? [{ field: path, message: 'is in a folder whose name another entry uses for a file' }] : [];
    });
  }
}
