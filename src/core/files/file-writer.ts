import { and, eq, isNotNull } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Author } from '#core/audit/audit.ts';
import { type StoredFile, toStoredFile } from './file.ts';
import { fileChunks, files } from './schema.ts';

/** Bytes of one row of `file_chunks`. */
export const chunkBytes = 262_144;
/** Time without a write after which a writer counts as dead. The slowest accepted upload fills a chunk in less. */
export const writeLeaseMs = 600_000;

/** Final properties of a complete file. */
export interface FileEnd {
  readonly filename: string;
  /** Milliseconds since the Unix epoch; if absent, the expiry from the creation applies. */
  readonly expiresAtMs?: number;
  /** Callback of the author who completes the file: called in the same transaction. */
  readonly created?: Author['created'];
}

/** Writes one file, with one chunk of its bytes in memory at a time. The file is invisible until `complete`. */
export interface FileWriter {
  readonly id: string;
  readonly createdAtMs: number;
  /** Number of bytes added. */
  readonly bytes: number;
  /** @throws AppError request_too_large beyond the file's maximum; conflict if the writer counted as dead */
  add(bytes: Buffer): Promise<void>;
  /** Prolongs the lease while no bytes arrive. @throws AppError conflict if the writer counted as dead */
  renew(): Promise<void>;
  /** Writes the bytes still in memory; must be called before `complete`. */
  flush(): Promise<void>;
  /** Completes the file, in the caller's transaction if there is one. */
  complete(end: FileEnd, tx?: Transaction): Promise<StoredFile>;
  /** Discards the file. Never rejects: remaining rows are deleted later. */
  abort(): Promise<void>;
}

interface WriterOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly id: string;
  readonly createdAtMs: number;
  readonly bytesMax: number;
}

const takenForDead = (): AppError =>
  new AppError('conflict', { message: 'The upload was inactive for too long and was discarded. Send the file again.' });

const beingWritten = (id: string) => and(eq(files.id, id), isNotNull(files.writtenUntil));

async function completeIn(
  tx: Transaction,
  { id, bytes }: Pick<FileWriter, 'id' | 'bytes'>,
  { filename, expiresAtMs, created }: FileEnd,
): Promise<StoredFile> {
  const set = { filename, bytes, writtenUntil: null };
  const [row] = await tx
    .update(files)
    .set(expiresAtMs === undefined ? set : { ...set, expiresAt: new Date(expiresAtMs) })
    .where(beingWritten(id))
    .returning();
  if (row === undefined) throw takenForDead();
  await created?.(tx, formatId('file', id));
  return toStoredFile(row);
}

export function createFileWriter({ db, clock, id, createdAtMs, bytesMax }: WriterOptions): FileWriter {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let written = 0;
  let bytes = 0;
  const isBeingWritten = beingWritten(id);

  const renew = async (tx: Db['orm'] | Transaction): Promise<void> => {
    const writtenUntil = new Date(clock.now() + writeLeaseMs);
    const renewed = await tx.update(files).set({ writtenUntil }).where(isBeingWritten).returning({ id: files.id });
    if (renewed.length === 0) throw takenForDead();
  };
  const write = async (chunk: Buffer): Promise<void> => {
    await db.orm.transaction(async (tx) => {
      await renew(tx);
      await tx.insert(fileChunks).values({ fileId: id, number: written, bytes: chunk });
    });
    written += 1;
  };
  const flush = async (bytesMin: number): Promise<void> => {
    if (pendingBytes === 0 || pendingBytes < bytesMin) return;
    const all = Buffer.concat(pending);
    let at = 0;
    for (; all.length - at >= Math.max(bytesMin, 1); at += chunkBytes) await write(all.subarray(at, at + chunkBytes));
    const rest = all.subarray(at);
    pending = rest.length > 0 ? [Buffer.from(rest)] : [];
    pendingBytes = rest.length;
  };
  return {
    id,
    createdAtMs,
    get bytes() {
      return bytes;
    },
    async add(part) {
      bytes += part.length;
      if (bytes > bytesMax) {
        throw new AppError('request_too_large', { message: `The file is larger than ${bytesMax} bytes.` });
      }
      pending.push(part);
      pendingBytes += part.length;
      await flush(chunkBytes);
    },
    renew: () => renew(db.orm),
    flush: () => flush(0),
    complete(end, tx) {
      const complete = (within: Transaction) => completeIn(within, { id, bytes }, end);
      return tx === undefined ? db.orm.transaction(complete) : complete(tx);
    },
    async abort() {
      try {
        await db.orm.transaction(async (tx) => {
          const removed = await tx.delete(files).where(isBeingWritten).returning({ id: files.id });
          if (removed.length > 0) await tx.delete(fileChunks).where(eq(fileChunks.fileId, id));
        });
      } catch {
        // The file is invisible, and its lease ends.
      }
    },
  };
}
