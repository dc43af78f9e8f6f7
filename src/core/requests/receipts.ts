import { createHash } from 'node:crypto';
import { and, eq, gt, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { changeReceipts } from './schema.ts';

/** What a caller calls a request that creates something. */
export interface ReceiptName {
  /** Id of the API key or user that calls. */
  readonly callerId: string;
  readonly idempotencyKey: string;
}

export interface Receipt {
  /** Of the request: what is repeated is the same. */
  readonly requestHash: Buffer;
  readonly requestId: string;
  /** The id of what was created, as outsiders name it: `batch_…`. */
  readonly targetId: string;
}

/**
 * Idempotency-Key of requests that create something: one row per caller and key, written by the transaction that
 * creates, so that there is a row exactly where something was created, whatever became of the gateway or its answer.
 * Where a request is answered with what was there already, the row is written with that. Rows are kept for 24 hours, by
 * PostgreSQL's clock. No key, request or answer is in them; their hashes are as hard to guess as the key.
 */
export interface Receipts {
  /** Null where nothing was created under this name in the last 24 hours. */
  find(name: ReceiptName): Promise<Receipt | null>;
  /**
   * Writes the row in the transaction that creates. One that another transaction is writing is waited for.
   * @throws AppError conflict where another request has created something under this name
   */
  writeIn(tx: Transaction, name: ReceiptName, receipt: Receipt): Promise<void>;
  /** Deletes what has expired. */
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

/** Keys belong to their caller and are shown to nobody: they are kept as what they are looked up by. */
const hashOf = (idempotencyKey: string): Buffer => createHash('sha256').update(idempotencyKey).digest();

/** Another request with the key was first: asked again, this one is answered as its repetition. */
export function answeredMeanwhile(): AppError {
  return new AppError('conflict', {
    message: 'Another request with this Idempotency-Key was answered meanwhile; ask again for its answer.',
    param: 'Idempotency-Key',
    headers: { 'retry-after': '1' },
  });
}
