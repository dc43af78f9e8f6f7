import { and, asc, desc, eq, gt, gte, inArray, isNull, lt, lte, or, type SQL, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { type FileListing, type FileRef, type FileScope, type NewFile, type StoredFile, toStoredFile } from './file.ts';
import { chunkBytes, createFileWriter, type FileWriter, writeLeaseMs } from './file-writer.ts';
import { fileChunks, files } from './schema.ts';

export type { FileListing, FilePurpose, FileRef, FileScope, NewFile, StoredFile } from './file.ts';
export type { FileEnd, FileWriter } from './file-writer.ts';

/**
 * Files of organizations: input and output of batches. Their bytes are stored in PostgreSQL in chunks, and are read and
 * written in chunks, so that a file never takes memory of its size. Each file expires; incomplete files are invisible.
 */
export interface Files {
  /** Maximum bytes of a file. */
  readonly fileBytesMax: number;
  /**
   * Starts writing a file; its `bytesMax` counts toward the organization's files from now on.
   * @param bounded false for files that the gateway itself writes, which must be stored
   * @throws AppError conflict if the organization has reached its maximum
   */
  create(file: NewFile, bounded?: boolean): Promise<FileWriter>;
  /** Returns when a file expires, in milliseconds since the Unix epoch. */
  expiryOf(createdAtMs: number, keepSeconds: number | null): number;
  get(ref: FileRef): Promise<StoredFile | null>;
  list(listing: FileListing): Promise<{ readonly files: readonly StoredFile[]; readonly more: boolean }>;
  /** Deletes a file. @throws AppError conflict while the file is in use */
  remove(ref: FileRef, author: Author): Promise<boolean>;
  /** Yields the bytes chunk by chunk. Ends early if the file is deleted meanwhile. */
  read(id: string): AsyncGenerator<Buffer, void>;
  /** Returns a range of a file's bytes; fewer if the file ends before. */
  readRange(id: string, at: number, length: number): Promise<Buffer>;
  /**
   * Keeps a file until a time, regardless of its expiry; null ends this.
   * @returns false if the file does not exist
   */
  hold(tx: Transaction, ref: FileRef, untilMs: number | null): Promise<boolean>;
  /** Locks a file until the transaction ends: nobody else can call `hold` for it. */
  lock(tx: Transaction, ref: FileRef): Promise<void>;
  /** Deletes expired files, and incomplete files of dead writers. */
  deleteOld(): Promise<void>;
}

export interface FilesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  /** Maximum age of files. */
  readonly ageMaxMs: number;
  /** Maximum bytes of all files of one organization. */
  readonly organizationBytesMax: number;
}

const fileBytesMax = 104_857_600;
/** Maximum files of one organization. */
const filesMax = 10_000;
const deletedAtOnce = 20;

export function createFiles(options: FilesOptions): Files {
  return new FileRoom(options);
}

class FileRoom implements Files {
  readonly fileBytesMax = fileBytesMax;
  readonly #options: FilesOptions;
  readonly #db: Db;

  constructor(options: FilesOptions) {
    this.#options = options;
    this.#db = options.db;
  }

  expiryOf(createdAtMs: number, keepSeconds: number | null): number {
    const { ageMaxMs } = this.#options;
    return createdAtMs + Math.min(ageMaxMs, keepSeconds === null ? ageMaxMs : keepSeconds * 1000);
  }

  async create(
    { keepSeconds, bytesMax: wanted, isGuess = false, ...file }: NewFile,
    bounded = true,
  ): Promise<FileWriter> {
    const { db, clock } = this.#options;
    const createdAtMs = clock.now();
    const id = uuidv7(createdAtMs);
    const bytesMax = await db.orm.transaction(async (tx) => {
      const most = bounded ? await takeRoom(tx, this.#options, file.organizationId, { wanted, isGuess }) : wanted;
      await tx.insert(files).values({
        ...file,
        id,
        filename: '',
        // Files that the gateway writes count once complete: their size is unknown before.
        bytes: bounded ? most : 0,
        createdAt: new Date(createdAtMs),
        expiresAt: new Date(this.expiryOf(createdAtMs, keepSeconds)),
        writtenUntil: new Date(createdAtMs + writeLeaseMs),
      });
      return most;
    });
    return createFileWriter({ db, clock, id, createdAtMs, bytesMax });
  }

  async get(ref: FileRef): Promise<StoredFile | null> {
    const which = and(eq(files.id, ref.id), this.#seen(ref));
    const [row] = await this.#db.orm.select().from(files).where(which);
    return row === undefined ? null : toStoredFile(row);
  }

  async list(listing: FileListing): Promise<{ readonly files: readonly StoredFile[]; readonly more: boolean }> {
    const { purpose, order, after, limit } = listing;
    const beyond = order === 'asc' ? gt : lt;
    const rows = await this.#db.orm
      .select()
      .from(files)
      .where(
        and(
          this.#seen(listing),
          ...(purpose === null ? [] : [eq(files.purpose, purpose)]),
          ...(after === null ? [] : [beyond(files.id, after)]),
        ),
      )
      .orderBy(order === 'asc' ? asc(files.id) : desc(files.id))
      .limit(limit + 1);
    return { files: rows.slice(0, limit).map(toStoredFile), more: rows.length > limit };
  }

  remove(ref: FileRef, author: Author): Promise<boolean> {
    return this.#db.orm.transaction(async (tx) => {
      const which = and(eq(files.id, ref.id), this.#seen(ref));
      const [row] = await tx.select().from(files).where(which).for('update');
      if (row === undefined) return false;
      if (row.heldUntil !== null && row.heldUntil > this.#now()) throw isRead();
      await tx.delete(files).where(eq(files.id, row.id));
      await tx.delete(fileChunks).where(eq(fileChunks.fileId, row.id));
      const { organizationId, purpose, bytes } = row;
      const targetId = formatId('file', row.id);
      const change = { action: 'file.deleted', targetType: 'file', before: { id: targetId, purpose, bytes } };
      await this.#options.audit.record(tx, { ...change, organizationId, author, targetId, after: null });
      return true;
    });
  }

  async *read(id: string): AsyncGenerator<Buffer, void> {
    for (let number = 0; ; number += 1) {
      const bytes = await this.#readChunk(id, number);
      if (bytes === null) return;
      yield bytes;
      if (bytes.length < chunkBytes) return;
    }
  }

  async readRange(id: string, at: number, length: number): Promise<Buffer> {
    const [first, last] = [Math.floor(at / chunkBytes), Math.floor((at + length - 1) / chunkBytes)];
    // PostgreSQL cuts the range: a chunk may have a thousand lines, each of which is read separately.
    const start = sql`greatest(${at}::bigint - ${fileChunks.number}::bigint * ${chunkBytes}, 0)::int`;
    const end = sql`least(${at + length}::bigint - ${fileChunks.number}::bigint * ${chunkBytes}, ${chunkBytes})::int`;
    const rows = await this.#db.orm
      .select({ bytes: sql<Buffer>`substring(${fileChunks.bytes} from ${start} + 1 for ${end} - ${start})` })
      .from(fileChunks)
      .where(and(eq(fileChunks.fileId, id), gte(fileChunks.number, first), lte(fileChunks.number, last)))
      .orderBy(asc(fileChunks.number));
    return Buffer.concat(rows.map(({ bytes }) => bytes));
  }

  async hold(tx: Transaction, ref: FileRef, untilMs: number | null): Promise<boolean> {
    const heldUntil = untilMs === null ? null : new Date(untilMs);
    const which = and(eq(files.id, ref.id), ...(untilMs === null ? [] : [this.#seen(ref)]));
    const held = await tx.update(files).set({ heldUntil }).where(which).returning({ id: files.id });
    return held.length > 0;
  }

  async lock(tx: Transaction, { organizationId, id }: FileRef): Promise<void> {
    const which = and(eq(files.id, id), eq(files.organizationId, organizationId));
    await tx.select({ id: files.id }).from(files).where(which).for('update');
  }

  async deleteOld(): Promise<void> {
    const now = this.#now();
    const isOver = or(
      lte(files.writtenUntil, now),
      and(
        isNull(files.writtenUntil),
        lte(files.expiresAt, now),
        or(isNull(files.heldUntil), lte(files.heldUntil, now)),
      ),
    );
    for (let deleted = deletedAtOnce; deleted === deletedAtOnce;) {
      deleted = await this.#db.orm.transaction(async (tx) => {
        const old = tx.select({ id: files.id }).from(files).where(isOver).orderBy(files.id).limit(deletedAtOnce);
        const which = and(inArray(files.id, old), isOver);
        const removed = await tx.delete(files).where(which).returning({ id: files.id });
        const ids = removed.map(({ id }) => id);
        if (ids.length > 0) await tx.delete(fileChunks).where(inArray(fileChunks.fileId, ids));
        return ids.length;
      });
    }
  }

  #now(): Date {
    return new Date(this.#options.clock.now());
  }

  #seen({ organizationId, keyIds }: FileScope): SQL | undefined {
    return and(
      eq(files.organizationId, organizationId),
      ...(keyIds === null ? [] : [inArray(files.keyId, [...keyIds])]),
      isNull(files.writtenUntil),
      gt(files.expiresAt, this.#now()),
    );
  }

  async #readChunk(id: string, number: number): Promise<Buffer | null> {
    const which = and(eq(fileChunks.fileId, id), eq(fileChunks.number, number));
    const [row] = await this.#db.orm.select({ bytes: fileChunks.bytes }).from(fileChunks).where(which);
    return row?.bytes ?? null;
  }
}

/**
 * Reserves room for a file. A lock lets in one file per organization at a time, so that two cannot take the same room.
 * @returns the maximum bytes of the file
 */
async function takeRoom(
  tx: Transaction,
  { organizationBytesMax }: FilesOptions,
  organizationId: string,
  { wanted, isGuess }: { readonly wanted: number; readonly isGuess: boolean },
): Promise<number> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext(${`headgate files ${organizationId}`}))`);
  const [sums] = await tx
    .select({ bytes: sql<string>`coalesce(sum(${files.bytes}), 0)`, count: sql<string>`count(*)` })
    .from(files)
    .where(eq(files.organizationId, organizationId));
  const left = organizationBytesMax - Number(sums?.bytes ?? 0);
  if (Number(sums?.count ?? 0) >= filesMax) {
    throw new AppError('conflict', {
      message: `The organization has reached the limit of ${filesMax} files. Delete some.`,
      lasting: true,
    });
  }
  if (wanted <= left) return wanted;
  if (isGuess && left > 0) return left;
  throw new AppError('conflict', {
    message:
      `The files of the organization are limited to ${organizationBytesMax} bytes, and ${Math.max(0, left)} are ` +
      'left. Delete some.',
    lasting: true,
    reason: 'HEADGATE_FILES_MAX_BYTES',
  });
}

const isRead = (): AppError =>
  new AppError('conflict', {
    message: 'A batch uses this file. Cancel the batch, or wait until it finishes.',
    lasting: true,
  });
