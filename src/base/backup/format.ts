import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { createGunzip } from 'node:zlib';
import { z } from 'zod';
import { BackupError } from './backup-error.ts';

/**
 * Format of a backup file: gzip of self-describing text. The first line is a head in JSON. Then follow, for each table,
 * a line in JSON that names the table and its columns, the rows as PostgreSQL's COPY writes them, and the line `\.`.
 * The last line has the number of rows of each table, the sequences, and the SHA-256 of all bytes before it.
 */

export const formatName = 'headgate backup';
export const formatVersion = 1;
/** The line that ends the rows of a table; COPY writes a backslash of the data as two. */
export const rowsEnd = Buffer.from('\\.\n');

const identifier = z.string().min(1).max(63);

export const headSchema = z.object({
  format: z.literal(formatName),
  format_version: z.int(),
  headgate_version: z.string(),
  made_at: z.string(),
  postgres_version: z.string(),
  /** Identifies the database of the backup. */
  origin: z.string(),
  /** Migrations that had been applied to the database, oldest first. */
  migrations: z.array(z.object({ hash: z.string(), created_at: z.number() })).min(1),
  /** Partitions that no migration creates, parents first. */
  partitions: z.array(
    z.object({
      name: identifier,
      parent: identifier,
      bound: z.string().regex(/^(DEFAULT|FOR VALUES FROM \((MINVALUE|'[^']*')\) TO \((MAXVALUE|'[^']*')\))$/),
      /** Name of a constraint that rejects every row; null if there is none. */
      closed_by: identifier.nullable(),
      comment: z.string().nullable(),
    }),
  ),
});

export type BackupHead = z.output<typeof headSchema>;

export const tableSchema = z.object({ table: identifier, columns: z.array(identifier).min(1) });

export type BackupTable = z.output<typeof tableSchema>;

export const tailSchema = z.object({
  rows: z.record(identifier, z.int().min(0)),
  sequences: z.array(z.object({ name: identifier, last_value: z.string().regex(/^\d+$/), is_called: z.boolean() })),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});

export type BackupTail = z.output<typeof tailSchema>;

export const toLine = (value: object): Buffer => Buffer.from(`${JSON.stringify(value)}\n`);

/** Called for each table, in the order of the file; it must take all rows or throw. */
export type TakeTable = (table: BackupTable, rows: AsyncGenerator<Buffer>) => Promise<void>;

export interface BackupContent {
  readonly head: BackupHead;
  readonly tail: BackupTail;
}

export interface ReadOptions {
  /** May throw to reject the file. */
  readonly onHead?: (head: BackupHead) => Promise<void> | void;
  readonly onTable?: TakeTable;
}

/**
 * Reads a file from its first byte to its last.
 * @throws BackupError if the file is no backup, cut short, altered, or of a newer format
 */
export async function readBackupFile(
  path: string,
  { onHead, onTable = takeNothing }: ReadOptions,
): Promise<BackupContent> {
  const source = createReadStream(path, { highWaterMark: 1_048_576 });
  const plain = createGunzip({ chunkSize: 1_048_576 });
  source.on('error', (error) => plain.destroy(error));
  source.pipe(plain);
  const lines = new Lines(plain);
  try {
    const head = parseHead(path, await lines.next());
    await onHead?.(head);
    return { head, tail: await readTables(path, lines, onTable) };
  } catch (error) {
    throw toBackupError(path, error);
  } finally {
    plain.destroy();
    source.destroy();
  }
}

async function readTables(path: string, lines: Lines, onTable: TakeTable): Promise<BackupTail> {
  const counts: Record<string, number> = {};
  for (;;) {
    const before = lines.digest();
    const line = parseLine(path, await lines.next());
    const table = tableSchema.safeParse(line);
    if (table.success) {
      const rows = lines.rows();
      await onTable(table.data, rows.chunks);
      if (!rows.isRead()) throw new Error(`the rows of ${table.data.table} were not read completely`);
      counts[table.data.table] = rows.count();
      continue;
    }
    const tail = tailSchema.safeParse(line);
    if (!tail.success) throw altered(path);
    const isSame = Object.keys({ ...counts, ...tail.data.rows }).every((name) => counts[name] === tail.data.rows[name]);
    if (tail.data.sha256 !== before || !isSame || !(await lines.isAtEnd())) throw altered(path);
    return tail.data;
  }
}

async function takeNothing(_: BackupTable, rows: AsyncGenerator<Buffer>): Promise<void> {
  for await (const chunk of rows) void chunk;
}

function parseHead(path: string, line: Buffer | null): BackupHead {
  if (line === null) throw new BackupError(`${path} is not a Headgate backup: the file is empty.`);
  let value: unknown;
  try {
    value = JSON.parse(line.toString());
  } catch {
    throw foreign(path);
  }
  const which = z.object({ format: z.literal(formatName), format_version: z.number() }).safeParse(value);
  if (!which.success) throw foreign(path);
  if (which.data.format_version > formatVersion) {
    throw new BackupError(`${path} was written by a newer Headgate. Update this Headgate first.`);
  }
  const head = headSchema.safeParse(value);
  if (!head.success) throw altered(path);
  return head.data;
}

function parseLine(path: string, line: Buffer | null): unknown {
  if (line === null) throw cut(path);
  try {
    return JSON.parse(line.toString());
  } catch {
    throw altered(path);
  }
}

const foreign = (path: string): BackupError =>
  new BackupError(`${path} is not a Headgate backup: "headgate backup" did not write it.`);
const cut = (path: string): BackupError => new BackupError(`${path} is truncated: its end is missing.`);
const altered = (path: string): BackupError =>
  new BackupError(`${path} is damaged or was changed after "headgate backup" wrote it.`);

/** Turns errors of zlib and the file system into sentences about the file. */
function toBackupError(path: string, error: unknown): unknown {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return error;
  if (error.code === 'Z_BUF_ERROR') return cut(path);
  if (error.code === 'Z_DATA_ERROR') return /incorrect header/.test(error.message) ? foreign(path) : altered(path);
  if (['ENOENT', 'EACCES', 'EISDIR', 'EIO'].includes(error.code)) {
    return new BackupError(`${path} cannot be read (${error.message}).`);
  }
  return error;
}

/** Reads lines of a stream, and computes the digest of all bytes read. */
class Lines {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #hash = createHash('sha256');
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** Returns the digest in hexadecimal digits. */
  digest(): string {
    return this.#hash.copy().digest('hex');
  }

  /** Returns the next line without its line break; null after the last. A line without a line break does not count. */
  async next(): Promise<Buffer | null> {
    for (let from = 0; ;) {
      const end = this.#rest.indexOf(0x0a, from);
      if (end !== -1) return this.#take(end + 1).subarray(0, end);
      from = this.#rest.length;
      if (from > lineBytesMax || !(await this.#more())) return null;
    }
  }

  async isAtEnd(): Promise<boolean> {
    return this.#rest.length === 0 && !(await this.#more());
  }

  /** Reads rows up to the line that ends them, in whole lines; at least one chunk is kept in memory. */
  rows(): { readonly chunks: AsyncGenerator<Buffer>; readonly count: () => number; readonly isRead: () => boolean } {
    let count = 0;
    let isRead = false;
    const take = (bytes: number): Buffer => this.#take(bytes);
    const rest = (): Buffer => this.#rest;
    const more = (): Promise<boolean> => this.#more();
    async function* chunks(): AsyncGenerator<Buffer> {
      for (;;) {
        const end = endOfRows(rest());
        const whole = end ?? rest().lastIndexOf(0x0a) + 1;
        if (whole > 0) {
          const lines = take(whole);
          count += countLines(lines);
          yield lines;
        }
        if (end !== null) {
          take(rowsEnd.length);
          isRead = true;
          return;
        }
        if (!(await more())) return;
      }
    }
    return { chunks: chunks(), count: () => count, isRead: () => isRead };
  }

  #take(bytes: number): Buffer {
    const taken = this.#rest.subarray(0, bytes);
    this.#rest = this.#rest.subarray(bytes);
    this.#hash.update(taken);
    return taken;
  }

  async #more(): Promise<boolean> {
    const next = await this.#chunks.next();
    if (next.done === true) return false;
    this.#rest = this.#rest.length === 0 ? next.value : Buffer.concat([this.#rest, next.value]);
    return true;
  }
}

/** Bytes of a line; a head is much shorter, and a file with a longer line is no backup. */
const lineBytesMax = 16_777_216;

/** Returns where the line `\.` begins, in bytes that begin with a line. */
function endOfRows(bytes: Buffer): number | null {
  if (bytes.subarray(0, rowsEnd.length).equals(rowsEnd)) return 0;
  const at = bytes.indexOf('\n\\.\n');
  return at === -1 ? null : at + 1;
}

function countLines(bytes: Buffer): number {
  let count = 0;
  for (let at = bytes.indexOf(0x0a); at !== -1; at = bytes.indexOf(0x0a, at + 1)) count += 1;
  return count;
}
