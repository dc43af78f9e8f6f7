import type { Clock } from '#base/clock.ts';
import { type Db, sqlStateOf, type Transaction } from '#base/db.ts';
import { Turns } from '#base/turns.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import { type SQL, sql } from 'drizzle-orm';
import { type KeptRecord, listQuarantined, type QuarantinedRecord, readKept, readQuarantined } from './quarantine.ts';
import { readRecord } from './record-list.ts';
import type { UsageRecord } from './record.ts';
import { decodeRecord } from './spooled-record.ts';
import { createWriter, type Writer } from './writer.ts';

/** Who decides, and whose audit log shows it where a record does not say whose it is. */
export interface QuarantineDecision {
  /** Of the record. */
  readonly id: string;
  readonly author: Author;
  readonly organizationId: string;
}

export type RetryResult =
  | { readonly kind: 'booked'; readonly chargedPicoUsd: bigint }
  /** It is in quarantine still. `error` is PostgreSQL's, or says why it is no record. */
  | { readonly kind: 'refused'; readonly error: string }
  | { readonly kind: 'not_found' };

/** `booked` is one that the books have after all: it is charged, and `retry` takes it out of quarantine. */
export type DiscardResult = 'discarded' | 'booked' | 'not_found';

/** What an operator does with records that the books refused. */
export interface QuarantineReview {
  /** Newest request first. @param before only those with a lower id; null for the newest */
  list(limit: number, before: string | null): Promise<readonly QuarantinedRecord[]>;
  read(id: string): Promise<QuarantinedRecord | null>;
  /** Books and charges a record, once, as if it had been taken at first; no more than its wallet has. */
  retry(decision: QuarantineDecision): Promise<RetryResult>;
  /** Gives a record up for good: nobody is charged, wherever else it may be kept, and the audit log keeps it. */
  discard(decision: QuarantineDecision, reason: string): Promise<DiscardResult>;
}

export interface QuarantineReviewOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly wallet: Wallet;
  readonly audit: Audit;
}

const turnBounds = { atOnceMax: 1, waitingMax: 100 };

export function createQuarantineReview(options: QuarantineReviewOptions): QuarantineReview {
  const { db, audit } = options;
  const writer = createWriter(options);
  const turns = new Turns(turnBounds);
  /** One at a time: a decision needs a connection beside the one of its transaction. */
  const decide = <T>(run: (tx: Transaction) => Promise<T>): Promise<T> =>
    turns.during('', () => db.orm.transaction(run));
  return {
    list: (limit, before) => listQuarantined(db.sql, limit, before),
    read: (id) => readQuarantined(db.sql, id),
    retry: (decision) =>
      decide(async (tx): Promise<RetryResult> => {
        const found = await take(tx, db, { id: decision.id, lock: sql`for no key update` });
        if (found === null) return { kind: 'not_found' };
        const booked = await book(found, writer, options);
        if (booked.kind !== 'booked') return booked;
        await tx.execute(sql`delete from usage_quarantine where id = ${found.id}`);
        const after = { charged_pico_usd: booked.chargedPicoUsd.toString() };
        await audit.record(tx, { ...entryOf(decision, found), action: 'quarantined_record.booked', after });
        return booked;
      }),
    discard: (decision, reason) =>
      decide(async (tx): Promise<DiscardResult> => {
        const found = await take(tx, db, { id: decision.id, lock: sql`for update` });
        if (found === null) return 'not_found';
        if (await isInBooks(db, found)) return 'booked';
        await tx.execute(sql`update usage_quarantine set discarded_at = now() where id = ${found.id}`);
        const entry = entryOf(decision, found);
        await audit.record(tx, { ...entry, action: 'quarantined_record.discarded', after: { reason } });
        return 'discarded';
      }),
  };
}

interface Taking {
  readonly id: string;
  /** A writer takes `for key share`: `for update` keeps it away, which who has it book the record must not. */
  readonly lock: SQL;
}

/** The record, which nobody else decides on before the end of the transaction. */
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

/** A record as it was kept: JSON, or bytes that an earlier version could not read. */
function decode({ kept }: KeptRecord): UsageRecord | null {
  try {
    return decodeRecord(kept.startsWith('{') ? Buffer.from(kept) : Buffer.from(kept, 'base64'));
  } catch {
    return null;
  }
}

/** A try to book it may have ended between the books and the quarantine. */
async function isInBooks(db: Db, { organizationId, id }: Pick<QuarantinedRecord, 'organizationId' | 'id'>) {
  return organizationId !== null && (await readRecord(db, { organizationId, id, keyId: null })) !== null;
}

async function book(found: KeptRecord, writer: Writer, { db, wallet }: QuarantineReviewOptions): Promise<RetryResult> {
  const record = decode(found);
  if (record === null) return { kind: 'refused', error: 'it is no record that this version can read' };
  const { id, organizationId, costPicoUsd } = record;
  try {
    const chargedPicoUsd = await wallet.chargeUnheld(organizationId, async () => {
      const isBooked = await isInBooks(db, record);
      const { writtenOff } = await writer.write([record]);
      return isBooked ? 0n : costPicoUsd - (writtenOff.get(id) ?? 0n);
    });
    return { kind: 'booked', chargedPicoUsd };
  } catch (error) {
    // What PostgreSQL says of a value; everything else is no answer to the question.
    if (!/^2[23]/.test(sqlStateOf(error) ?? '')) throw error;
    return { kind: 'refused', error: error instanceof Error ? error.message : String(error) };
  }
}
