import { type SQL, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { type Db, sqlStateOf, type Transaction } from '#base/database/database.ts';
import { ConcurrencyLimit } from '#base/queues/queues.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import {
  createWriter,
  decodeRecord,
  type KeptRecord,
  listQuarantined,
  type QuarantinedRecord,
  readKept,
  readQuarantined,
  type UsageRecord,
  type Writer,
} from '#core/metering/records/records.ts';
import { readRecord } from '#core/metering/reports/reports.ts';
import type { Wallet } from '#core/wallet/wallet.ts';

/** Author of a decision, and the organization whose audit log shows it if the record does not name one. */
export interface QuarantineDecision {
  /** Id of the record. */
  readonly id: string;
  readonly author: Author;
  readonly organizationId: string;
}

export type RetryResult =
  | { readonly kind: 'booked'; readonly chargedPicoUsd: bigint }
  /** The record is still in quarantine. `error` is PostgreSQL's, or says why the bytes are not a record. */
  | { readonly kind: 'refused'; readonly error: string }
  | { readonly kind: 'not_found' };

/**
 * Result of a discard. `booked`: the database has the record after all. It is charged, and `retry` removes it from
 * quarantine.
 */
export type DiscardResult = 'discarded' | 'booked' | 'not_found';

/** Lists, retries and discards records that the database rejected, for operators. */
export interface QuarantineReview {
  /** Returns records, newest request first. @param before only records with a lower id; null for the newest */
  list(limit: number, before: string | null): Promise<readonly QuarantinedRecord[]>;
  read(id: string): Promise<QuarantinedRecord | null>;
  /** Records and charges a record, once, as if it had been accepted at first; no more than its wallet has. */
  retry(decision: QuarantineDecision): Promise<RetryResult>;
  /** Discards a record permanently: nobody is charged, wherever else it may be stored. The audit log keeps it. */
  discard(decision: QuarantineDecision, reason: string): Promise<DiscardResult>;
}

export interface QuarantineReviewOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly wallet: Wallet;
  readonly audit: Audit;
}

const decisionBounds = { atOncePerNameMax: 1, waitingPerNameMax: 100 };

export function createQuarantineReview(options: QuarantineReviewOptions): QuarantineReview {
  const { db, audit } = options;
  const writer = createWriter(options);
  const decisionLimit = new ConcurrencyLimit(decisionBounds);
  /** Runs one decision at a time: it needs a second connection besides that of its transaction. */
  const decide = <T>(run: (tx: Transaction) => Promise<T>): Promise<T> =>
    decisionLimit.during('', () => db.orm.transaction(run));
  return {
    list: (limit, before) => listQuarantined(db.sql, limit, before),
    read: (id) => readQuarantined(db.sql, id),
    retry: (decision) =>
      decide(async (tx): Promise<RetryResult> => {
        const found = await take(tx, db, { id: decision.id, lock: sql`for no key update` });
        if (found === null) return { kind: 'not_found' };
        const result = await writeRecord(found, writer, options);
        if (result.kind !== 'booked') return result;
        await tx.execute(sql`delete from usage_quarantine where id = ${found.id}`);
        const after = { charged_pico_usd: result.chargedPicoUsd.toString() };
        await audit.record(tx, { ...entryOf(decision, found), action: 'quarantined_record.booked', after });
        return result;
      }),
    discard: (decision, reason) =>
      decide(async (tx): Promise<DiscardResult> => {
        const found = await take(tx, db, { id: decision.id, lock: sql`for update` });
        if (found === null) return 'not_found';
        if (await isRecorded(db, found)) return 'booked';
        await tx.execute(sql`update usage_quarantine set discarded_at = now() where id = ${found.id}`);
        const entry = entryOf(decision, found);
        await audit.record(tx, { ...entry, action: 'quarantined_record.discarded', after: { reason } });
        return 'discarded';
      }),
  };
}

interface Taking {
  readonly id: string;
  /**
   * Lock mode. Writers take `for key share`, and `for update` blocks them: a retry, which writes the record, must not
   * use it.
   */
  readonly lock: SQL;
}

/** Locks and returns the record, so that no other decision is made on it before the end of the transaction. */
async function take(tx: Transaction, db: Db, { id, lock }: Taking): Promise<KeptRecord | null> {
  const locked = await tx.execute(
    sql`select 1 from usage_quarantine where id = ${id} and discarded_at is null ${lock}`,
  );
  return locked.length === 0 ? null : readKept(db.sql, id);
}

function entryOf({ author, organizationId }: QuarantineDecision, found: QuarantinedRecord) {
  return {
    organizationId: found.organizationId ?? organizationId,
    author,
    targetType: 'quarantined_record',
    targetId: found.id,
    before: { record: found.record, error: found.error },
  };
}

/** Decodes a stored record: JSON, or bytes that an earlier version could not read. */
function decode({ kept }: KeptRecord): UsageRecord | null {
  try {
    return decodeRecord(kept.startsWith('{') ? Buffer.from(kept) : Buffer.from(kept, 'base64'));
  } catch {
    return null;
  }
}

/** True if the database has the record. A try to write it may have ended between the record and the quarantine. */
async function isRecorded(db: Db, { organizationId, id }: Pick<QuarantinedRecord, 'organizationId' | 'id'>) {
  return organizationId !== null && (await readRecord(db, { organizationId, id, keyId: null })) !== null;
}

async function writeRecord(
  found: KeptRecord,
  writer: Writer,
  { db, wallet }: QuarantineReviewOptions,
): Promise<RetryResult> {
  const record = decode(found);
  if (record === null) return { kind: 'refused', error: 'this version cannot read the record' };
  const { id, organizationId, costPicoUsd } = record;
  try {
    const chargedPicoUsd = await wallet.chargeUnheld(organizationId, async () => {
      const wasRecorded = await isRecorded(db, record);
      const { writtenOff } = await writer.write([record]);
      return wasRecorded ? 0n : costPicoUsd - (writtenOff.get(id) ?? 0n);
    });
    return { kind: 'booked', chargedPicoUsd };
  } catch (error) {
    // Only errors about a value are a result; all others are thrown.
    if (!/^2[23]/.test(sqlStateOf(error) ?? '')) throw error;
    return { kind: 'refused', error: error instanceof Error ? error.message : String(error) };
  }
}
