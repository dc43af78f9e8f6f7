import { type FileHandle, mkdir, open, readdir, readFile, rename, truncate, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { listGatewayDirs } from '#base/config/config.ts';
import { uuidv7 } from './id.ts';
import type { Log } from './log.ts';

/**
 * A queue on disk: appended entries survive a crash, and are read in their order until they are marked as done. The
 * queue is a folder of segments, which are files of entries; a segment whose entries are all done is deleted. Opening
 * the folder again reads the entries of an earlier process. Only one process at a time may have the folder open.
 */
export interface Spool {
  /**
   * Resolves when the entries are on disk. One call at a time.
   * @throws the file system's error; then none of the entries is appended, and a later call begins a new segment
   */
  append(entries: readonly Buffer[]): Promise<void>;
  /**
   * Reads the next entries, oldest first; none if all were read. One call at a time.
   * @throws the file system's error; the same entries come with the next call
   */
  read(max: number): Promise<SpoolEntry[]>;
  /** Marks an entry as done: it is never read again. The last entry of a segment deletes the file. */
  done(entry: SpoolEntry): Promise<void>;
  /**
   * Moves the segments of another spool's folder, which no process has open, to this spool: their entries are read
   * after the present ones. One call at a time.
   * @throws the file system's error; segments that were moved before are read
   */
  takeOver(folder: string): Promise<void>;
  /** True if every entry was read; entries that are being appended count once they are on disk. */
  readonly isRead: boolean;
  /** Number of entries that are not done. */
  readonly count: number;
  /** Bytes of the spool's files on disk. */
  readonly bytes: number;
  close(): Promise<void>;
}

export interface SpoolEntry {
  readonly data: Buffer;
  readonly segment: Segment;
}

interface Segment {
  readonly path: string;
  /** Byte at which complete entries end: later bytes are not certain to be on disk. */
  end: number;
  readEnd: number;
  /** Entries that are not done, read or not. */
  open: number;
}

export interface SpoolOptions {
  readonly folder: string;
  readonly log: Log;
  /** Bytes at which a segment is followed by a new one. */
  readonly segmentBytesMax?: number;
}

/** Returns the folder of a database's spools in a gateway folder; it has one folder per worker. */
export const spoolFolderOf = (gatewayDir: string, database: string): string =>
  join(gatewayDir, 'spool', database.replaceAll(/[^\w.]/g, '-'));

/** Returns the folders of a database's spools in all gateway folders of a data folder. */
export const spoolFoldersOf = (dataDir: string, database: string): string[] =>
  listGatewayDirs(dataDir).map((gatewayDir) => spoolFolderOf(gatewayDir, database));

/** Lists the paths of all segments in a folder of `spoolFolderOf`: segments that are done do not exist. */
export async function listSpooled(folder: string): Promise<string[]> {
  const slots = await readdir(folder, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
  const folders = slots.filter((slot) => slot.isDirectory()).map(({ name }) => join(folder, name));
  return (await Promise.all(folders.map(listSegments))).flat();
}

/**
 * Moves segments to the first worker's spool of another database, while no gateway has either open: all segments, or
 * none if a move fails.
 */
export async function moveSpooled(paths: readonly string[], folder: string): Promise<void> {
  const target = join(folder, '0');
  await mkdir(target, { recursive: true, mode: 0o700 });
  const moved: string[] = [];
  try {
    for (const path of paths) {
      await rename(path, join(target, basename(path)));
      moved.push(path);
    }
    await syncFolder(target);
  } catch (error) {
    for (const path of moved) await rename(join(target, basename(path)), path);
    throw error;
  }
}

/** Header of an entry: the length and the CRC-32 of its bytes, both 32 bits, little-endian. */
const headerBytes = 8;
const readBytesMax = 4_194_304;
const extension = '.spool';

/** Opens a spool, and creates its folder if there is none. @throws the file system's error */
export async function openSpool(options: SpoolOptions): Promise<Spool> {
  const { folder, log } = options;
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await syncFolder(folder);
  const segments: Segment[] = [];
  for (const path of await listSegments(folder)) segments.push(...(await openExisting(path, log)));
  return new SegmentSpool(options, segments);
}

class SegmentSpool implements Spool {
  readonly #folder: string;
  readonly #segmentBytesMax: number;
  readonly #log: Log;
  /** Segments in reading order; `#writer` appends to its own. */
  readonly #segments: Segment[];
  #writer: { readonly file: FileHandle; readonly segment: Segment } | null = null;
  #isAppending = false;

  constructor({ folder, log, segmentBytesMax = 16_777_216 }: SpoolOptions, segments: Segment[]) {
    this.#folder = folder;
    this.#log = log;
    this.#segmentBytesMax = segmentBytesMax;
    this.#segments = segments;
  }

  get isRead(): boolean {
    return this.#segments.every(({ readEnd, end }) => readEnd === end);
  }

  get count(): number {
    return this.#segments.reduce((sum, { open: entries }) => sum + entries, 0);
  }

  get bytes(): number {
    return this.#segments.reduce((sum, { end }) => sum + end, 0);
  }

  async append(entries: readonly Buffer[]): Promise<void> {
    const framed = Buffer.concat(entries.flatMap((data) => [headerOf(data), data]));
    this.#isAppending = true;
    try {
      await this.#write(framed, entries.length);
    } finally {
      this.#isAppending = false;
    }
  }

  async #write(framed: Buffer, entries: number): Promise<void> {
    const { file, segment } = (this.#writer ??= await this.#begin());
    try {
      await file.appendFile(framed);
      await file.datasync();
    } catch (error) {
      // After a failed write or sync the new bytes in the file are unknown: only earlier entries count.
      await this.#end(true);
      throw error;
    }
    segment.end += framed.length;
    segment.open += entries;
    if (segment.end >= this.#segmentBytesMax) await this.#end(false);
  }

  async read(max: number): Promise<SpoolEntry[]> {
    const segment = this.#segments.find(({ readEnd, end }) => readEnd < end);
    if (segment === undefined) return [];
    const entries: SpoolEntry[] = [];
    let from = segment.readEnd;
    for (const data of await readEntries(segment.path, from, segment.end)) {
      if (entries.length === max) break;
      entries.push({ data, segment });
      from += headerBytes + data.length;
    }
    if (entries.length === 0) throw new Error(`${segment.path} has no entry at byte ${from}`);
    segment.readEnd = from;
    return entries;
  }

  async done({ segment }: SpoolEntry): Promise<void> {
    segment.open -= 1;
    if (segment.open > 0 || segment.readEnd < segment.end) return;
    const isWritten = this.#writer?.segment === segment;
    if (isWritten && this.#isAppending) return;
    this.#segments.splice(this.#segments.indexOf(segment), 1);
    if (isWritten) {
      const { file } = this.#writer ?? {};
      this.#writer = null;
      await file?.close();
    }
    await unlink(segment.path);
  }

  async takeOver(folder: string): Promise<void> {
    for (const path of await listSegments(folder)) {
      const own = join(this.#folder, basename(path));
      await rename(path, own);
      await syncFolder(this.#folder);
      this.#segments.push(...(await openExisting(own, this.#log)));
    }
  }

  async close(): Promise<void> {
    await this.#end(false);
  }

  async #begin(): Promise<{ file: FileHandle; segment: Segment }> {
    const path = join(this.#folder, `${uuidv7()}${extension}`);
    const file = await open(path, 'ax', 0o600);
    try {
      await syncFolder(this.#folder);
    } catch (error) {
      await file.close();
      throw error;
    }
    const segment = { path, end: 0, readEnd: 0, open: 0 };
    this.#segments.push(segment);
    return { file, segment };
  }

  async #end(isTorn: boolean): Promise<void> {
    if (this.#writer === null) return;
    const { file, segment } = this.#writer;
    this.#writer = null;
    try {
      // A tail that stays is ignored: this process knows where the segment ends, and checksums show it after a restart.
      if (isTorn) await file.truncate(segment.end);
    } catch {
      return;
    } finally {
      await file.close().catch(() => undefined);
    }
    if (segment.end === 0) {
      this.#segments.splice(this.#segments.indexOf(segment), 1);
      await unlink(segment.path).catch(() => undefined);
    }
  }
}

function headerOf(data: Buffer): Buffer {
  const header = Buffer.alloc(headerBytes);
  header.writeUInt32LE(data.length, 0);
  header.writeUInt32LE(crc32(data), 4);
  return header;
}

/** Lists segments by name, which is by age. */
async function listSegments(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return names
    .filter((name) => name.endsWith(extension))
    .toSorted()
    .map((name) => join(folder, name));
}

/** Syncs a folder, because a new file name is on disk only when its folder is. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Opens a segment of an earlier process. A checksum error is either a last entry that was never reported as written, or
 * damage: a copy of the file is kept, and readable entries after the error become a new segment.
 */
async function openExisting(path: string, log: Log): Promise<Segment[]> {
  const file = await open(path, 'r');
  let size = 0;
  let end = 0;
  let count = 0;
  try {
    ({ size } = await file.stat());
  } finally {
    await file.close();
  }
  for (let more = true; more;) {
    const entries = await readEntries(path, end, size);
    for (const data of entries) end += headerBytes + data.length;
    more = entries.length > 0;
    count += entries.length;
  }
  const segments = end === 0 ? [] : [{ path, end, readEnd: 0, open: count }];
  if (end < size) {
    const rescued = await rescue(path, end);
    const where = { path: `${path}.damaged`, wholeBytes: end, bytes: size, rescued: rescued?.open ?? 0 };
    log.error(
      where,
      'a file of usage records is damaged: all intact records are billed, and requests in the damaged part are not. A copy of the file is kept (see path)',
    );
    if (rescued !== null) segments.push(rescued);
  }
  if (end === 0) await unlink(path);
  return segments;
}

/** Bytes that are checksummed in search of entries after damage; a real entry matches at its first checksum. */
const searchBytesMax = 1_073_741_824;

/** Copies a damaged file, moves entries after the damage to a new segment, and cuts the file before the damage. */
async function rescue(path: string, end: number): Promise<Segment | null> {
  const bytes = await readFile(path);
  const folder = dirname(path);
  await writeFile(`${path}.damaged`, bytes, { mode: 0o600, flush: true });
  const entries = entriesBehind(bytes, end);
  const framed = Buffer.concat(entries.flatMap((data) => [headerOf(data), data]));
  const own = join(folder, `${uuidv7()}${extension}`);
  if (entries.length > 0) await writeFile(own, framed, { flag: 'wx', mode: 0o600, flush: true });
  await syncFolder(folder);
  // Cut last: after a crash the entries are in one file or the other, and some of them possibly in both.
  await truncate(path, end);
  return entries.length === 0 ? null : { path: own, end: framed.length, readEnd: 0, open: entries.length };
}

/** Finds entries after damage: an entry begins wherever length and checksum match the following bytes. */
function entriesBehind(bytes: Buffer, damagedAt: number): Buffer[] {
  const entries: Buffer[] = [];
  let budget = searchBytesMax;
  for (let at = damagedAt + 1; at + headerBytes < bytes.length && budget > 0;) {
    const length = bytes.readUInt32LE(at);
    const endsAt = at + headerBytes + length;
    at += 1;
    if (length === 0 || endsAt > bytes.length) continue;
    budget -= length;
    const data = bytes.subarray(endsAt - length, endsAt);
    if (crc32(data) !== bytes.readUInt32LE(endsAt - length - 4)) continue;
    entries.push(data);
    budget += length;
    at = endsAt;
  }
  return entries;
}

/** Reads complete entries from a byte on: as many as one read contains, and at least one if there is one. */
async function readEntries(path: string, from: number, end: number): Promise<Buffer[]> {
  const file = await open(path, 'r');
  try {
    let bytes = await readAt(file, from, Math.min(end - from, readBytesMax));
    if (bytes.length >= headerBytes) {
      const first = headerBytes + bytes.readUInt32LE(0);
      if (first > bytes.length && from + first <= end) bytes = await readAt(file, from, first);
    }
    return wholeEntries(bytes);
  } finally {
    await file.close();
  }
}

async function readAt(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  let read = 0;
  while (read < length) {
    const { bytesRead } = await file.read(bytes, read, length - read, from + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return bytes.subarray(0, read);
}

function wholeEntries(bytes: Buffer): Buffer[] {
  const entries: Buffer[] = [];
  for (let at = 0; at + headerBytes <= bytes.length;) {
    const length = bytes.readUInt32LE(at);
    const data = bytes.subarray(at + headerBytes, at + headerBytes + length);
    // File systems leave zeros for a tail that was not synced, and their checksum would match.
    if (length === 0 || data.length < length || crc32(data) !== bytes.readUInt32LE(at + 4)) break;
    entries.push(data);
    at += headerBytes + length;
  }
  return entries;
}
