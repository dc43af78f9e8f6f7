import { and, desc, eq, lt, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { ledgerEntries } from './schema.ts';

type LedgerEntryType = 'credit' | 'usage' | 'adjustment';

export interface LedgerEntry {
  readonly id: string;
  /** Number of the entry in the organization's ledger, from 1 on, in booking order; also the cursor of the list. */
  readonly number: number;
  readonly organizationId: string;
  readonly type: LedgerEntryType;
  /** Change of the balance; negative for usage. */
  readonly amountPicoUsd: bigint;
  readonly balanceAfterPicoUsd: bigint;
  /** Request of a usage entry for a single request; null for all others. */
  readonly requestId: string | null;
  /** Number of requests of a usage entry; null for other types. */
  readonly requests: number | null;
  /** Group number in the records of a usage entry for several requests; null for all others. */
  readonly groupId: number | null;
  readonly reference: string | null;
  readonly note: string | null;
  readonly createdAt: Date;
}

export interface LedgerPageRequest {
  readonly limit: number;
  /** Returns only entries with lower numbers; null for the newest. */
  readonly before: number | null;
  readonly type?: LedgerEntryType;
}

export interface LedgerPage {
  readonly entries: readonly LedgerEntry[];
  /** True if older entries exist. */
  readonly more: boolean;
}

type Row = typeof ledgerEntries.$inferSelect;

/** Converts a row to an entry with a signed amount: positive if the wallet gains. */
export function toLedgerEntry(row: Row): LedgerEntry {
  return {
    id: row.id,
    number: row.number,
    organizationId: row.organizationId,
    type: row.type,
    amountPicoUsd: row.creditAccount === 'wallet' ? row.amount : -row.amount,
    balanceAfterPicoUsd: row.balanceAfter,
    requestId: soleRequest(row),
    requests: row.requests,
    groupId: row.groupId,
    reference: row.reference,
    note: row.note,
    createdAt: row.createdAt,
  };
}

/**
 * Returns the request of a usage entry for a single request. In the chain, the entry's id is its first request's id;
 * entries from before the chain have the request in a separate column.
 */
function soleRequest({ type, groupId, requestId, id }: Row): string | null {
  return type === 'usage' && groupId === null ? (requestId ?? id) : null;
}

/** One page of an organization's entries, newest first. */
export async function readLedgerPage(db: Db, organizationId: string, page: LedgerPageRequest): Promise<LedgerPage> {
  const conditions = [eq(ledgerEntries.organizationId, organizationId)];
  if (page.before !== null) conditions.push(lt(ledgerEntries.number, page.before));
  if (page.type !== undefined) conditions.push(eq(ledgerEntries.type, page.type));
  // Written out, so that the index of these entries serves every plan.
  if (page.type === 'credit' || page.type === 'adjustment') conditions.push(sql`${ledgerEntries.type} <> 'usage'`);
  const rows = await db.orm
    .select()
    .from(ledgerEntries)
    .where(and(...conditions))
    .orderBy(desc(ledgerEntries.number))
    .limit(page.limit + 1);
  return { entries: rows.slice(0, page.limit).map(toLedgerEntry), more: rows.length > page.limit };
}
