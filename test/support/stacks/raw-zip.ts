import { crc32, deflateRawSync } from 'node:zlib';

/** Zips as no archiver writes them: every field may lie. */

export interface RawEntry {
  readonly name: string | Buffer;
  readonly content?: string | Buffer;
  /** System in the upper byte, as of "version made by"; Unix when absent. */
  readonly madeBy?: number;
  /** Unix mode with type bits; a regular file's when absent. */
  readonly mode?: number;
  readonly deflate?: boolean;
  readonly flags?: number;
  readonly method?: number;
  /** A false value that the zip reports in place of the real one. */
  readonly size?: number;
  readonly crc?: number;
  readonly compressedSize?: number;
  /** Name in the local header. */
  readonly localName?: string;
  readonly localMethod?: number;
  /** Index of an earlier entry, over whose local header this one is laid. */
  readonly over?: number;
  /** Added to the offset in the directory. */
  readonly shift?: number;
  /** Extra field of the directory. */
  readonly extra?: Buffer;
  /** Bytes behind the end of the deflated stream. */
  readonly trailing?: Buffer;
}

export interface RawZip {
  readonly prefix?: Buffer;
  readonly comment?: Buffer;
  readonly suffix?: Buffer;
  readonly entryCount?: number;
  readonly directoryShift?: number;
  readonly diskNumber?: number;
}

const u16 = (...values: number[]): Buffer => Buffer.from(values.flatMap((value) => [value & 255, (value >>> 8) & 255]));
const u32 = (...values: number[]): Buffer =>
  Buffer.concat(
    values.map((value) => {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32LE(value >>> 0);
      return bytes;
    }),
  );

/** The fields of an entry that its local header and the directory share. */
function fieldsOf(entry: RawEntry): { name: Buffer; stored: Buffer; head: Buffer; sizes: Buffer } {
  const { deflate = false, flags = 0x800, trailing = Buffer.alloc(0) } = entry;
  const content = Buffer.from(entry.content ?? '');
  const stored = Buffer.concat([deflate ? deflateRawSync(content) : content, trailing]);
  const { crc = crc32(content), compressedSize = stored.length, size = content.length } = entry;
  const method = entry.method ?? (deflate ? 8 : 0);
  const head = u16(20, flags, method, 0, 33);
  return { name: Buffer.from(entry.name), stored, head, sizes: u32(crc, compressedSize, size) };
}

function localPart(entry: RawEntry): Buffer {
  const { name, stored, head, sizes } = fieldsOf(entry);
  const { localName = name, localMethod } = entry;
  if (localMethod !== undefined) head.writeUInt16LE(localMethod, 4);
  const shown = Buffer.from(localName);
  return Buffer.concat([u32(0x04034b50), head, sizes, u16(shown.length, 0), shown, stored]);
}

function directoryPart(entry: RawEntry, offset: number): Buffer {
  const { name, head, sizes } = fieldsOf(entry);
  const { extra = Buffer.alloc(0), mode = 0o100_644, shift = 0, madeBy = 0x0314 } = entry;
  return Buffer.concat([
    u32(0x02014b50),
    u16(madeBy),
    head,
    sizes,
    u16(name.length, extra.length, 0, 0, 0),
    u32((mode << 16) >>> 0, offset + shift),
    name,
    extra,
  ]);
}

function endPart(count: number, directoryBytes: number, at: number, zip: RawZip): Buffer {
  const { comment = Buffer.alloc(0), entryCount = count, directoryShift = 0, diskNumber = 0 } = zip;
  return Buffer.concat([
    u32(0x06054b50),
    u16(diskNumber, 0, entryCount, entryCount),
    u32(directoryBytes, at + directoryShift),
    u16(comment.length),
    comment,
  ]);
}

export function rawZip(entries: readonly RawEntry[], zip: RawZip = {}): Buffer {
  const { prefix = Buffer.alloc(0), suffix = Buffer.alloc(0) } = zip;
  const parts: Buffer[] = [prefix];
  const offsets: number[] = [];
  let at = prefix.length;
  for (const entry of entries) {
    offsets.push(entry.over === undefined ? at : (offsets[entry.over] ?? 0));
    if (entry.over !== undefined) continue;
    const part = localPart(entry);
    parts.push(part);
    at += part.length;
  }
  const directory = Buffer.concat(entries.map((entry, index) => directoryPart(entry, offsets[index] ?? 0)));
  return Buffer.concat([...parts, directory, endPart(entries.length, directory.length, at, zip), suffix]);
}

/** A sound package with these files; `main.tf` is added where no Terraform file is among them. */
export function packOf(files: Readonly<Record<string, string | Buffer>>): Buffer {
  const hasModule = Object.keys(files).some((path) => path.endsWith('.tf'));
  const all = hasModule ? files : { ...files, 'main.tf': 'output "x" {\n  value = 1\n}\n' };
  return rawZip(Object.entries(all).map(([name, content]) => ({ name, content, deflate: true })));
}
