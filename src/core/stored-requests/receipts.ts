import { createHash } from 'node:crypto';
import { and, eq, gt, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { changeReceipts } from './schema.ts';

/** The caller's name for a request that creates something. */
export interface ReceiptName {
  /** Id of the calling API key or user. */
  readonly callerId: string;
  readonly idempotencyKey: string;
}

export interface Receipt {
  /** Hash of the request; a repetition has the same hash. */
  readonly requestHash: Buffer;
  readonly requestId: string;
  /** Public id of the created object: `batch_…`. */
  readonly targetId: string;
}

/**
 * Idempotency-Keys of requests that create something: one row per caller and key, written in the transaction that
 * creates the object. A row therefore exists exactly if something was created, whatever happened to the gateway or its
 * answer. If a request is answered with an existing object, a row is written as well. Rows are kept for 24 hours, by
 * PostgreSQL's clock. They contain no key, request or answer; their hashes are as hard to guess as the key.
 */
export interface Receipts {
  /** Returns null if nothing was created under this name in the last 24 hours. */
  find(name: ReceiptName): Promise<Receipt | null>;
  /**
   * Writes the row in the transaction that creates the object. Waits for another transaction that is writing the same
   * row.
   * @throws AppError conflict if another request has created something under this name
   */
  writeIn(tx: Transaction, name: ReceiptName, receipt: Receipt): Promise<void>;
  /** Deletes expired rows. */
  deleteOld(): Promise<void>;
}

const keptHours = 24;
const deletedAtOnce = 1000;

export function createReceipts({ db }: { readonly db: Db }): Receipts {
  return {
    async find({ callerId, idempotencyKey }) {
      const { requestHash, requestId, targetId, expiresAt } = changeReceipts;
      const isOf = and(eq(changeReceipts.callerId, callerId), eq(changeReceipts.keyHash, hashOf(idempotencyKey)));
      const [row] = await db.orm
        .select({ requestHash, requestId, targetId })
        .from(changeReceipts)
        .where(and(isOf, gt(expiresAt, sql`now()`)));
      return row ?? null;
    },
    async writeIn(tx, { callerId, idempotencyKey }, receipt) {
      const keyHash = hashOf(idempotencyKey);
      const row = { callerId, keyHash, ...receipt, expiresAt: sql`now() + make_interval(hours => ${keptHours})` };
      const written = await tx
        .insert(changeReceipts)
        .values(row)
        .onConflictDoUpdate({
          target: [changeReceipts.callerId, changeReceipts.keyHash],
          set: row,
          setWhere: sql`${changeReceipts.expiresAt} <= now()`,
        })
        .returning({ requestId: changeReceipts.requestId });
      if (written.length === 0) throw answeredMeanwhile();
    },
    async deleteOld() {
      let deleted = deletedAtOnce;
      while (deleted === deletedAtOnce) {
        const rows = await db.sql`
          delete from change_receipts where ctid in
            (select ctid from change_receipts where expires_at <= now() limit ${deletedAtOnce})`;
        deleted = rows.count;
      }
    },
  };
}

/** Returns the hash under which a row is stored. Keys belong to their caller and are shown to nobody. */
const hashOf = (idempotencyKey: string): Buffer => createHash('sha256').update(idempotencyKey).digest();

/**
 * Error for a request whose key another request used first. When sent again, the request gets the first one's answer.
 */
export function answeredMeanwhile(): AppError {
  return new AppError('conflict', {
    message:
      'Another request with this Idempotency-Key was answered in the meantime. Send the request again to get that response.',
    param: 'Idempotency-Key',
    headers: { 'retry-after': '1' },
  });
}
