import { and, desc, eq, lt } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { ledgerEntries } from './schema.ts';

type LedgerEntryType = 'credit' | 'usage' | 'adjustment';

export interface LedgerEntry {
  readonly id: string;
  /** Counts the organization's entries from 1 on, in the order in which balances came about; a cursor of the list. */
  readonly number: number;
  readonly organizationId: string;
  readonly type: LedgerEntryType;
  /** What the balance gained; negative for usage. */
  readonly amountPicoUsd: bigint;
  readonly balanceAfterPicoUsd: bigint;
  /** The request of a usage entry of one. */
  readonly requestId: string | null;
  /** Requests of a usage entry; null for other types. */
  readonly requests: number | null;
  /** What the records of a usage entry of several requests bear; null for any other. */
  readonly groupId: number | null;
  readonly reference: string | null;
  readonly note: string | null;
  readonly createdAt: Date;
}

export interface LedgerPageRequest {
  readonly limit: number;
  /** Only entries before the one of this number; null for the newest. */
  readonly before: number | null;
  readonly type?: LedgerEntryType;
}

export interface LedgerPage {
  readonly entries: readonly LedgerEntry[];
  /** Whether there is anything older. */
  readonly more: boolean;
}

type Row = typeof ledgerEntries.$inferSelect;

/** An entry as the room's callers see it: signed from the wallet's side. */
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

/** An entry of the chain is named after its first request; one from before it names its request beside. */
function soleRequest({ type, groupId, requestId, id }: Row): string | null {
  return type === 'usage' && groupId === null ? (requestId ?? id) : null;
}

/** One page of an organization's entries, newest first. */
export async function readLedgerPage(db: Db, organizationId: string, page: LedgerPageRequest): Promise<LedgerPage> {
  const conditions = [eq(ledgerEntries.organizationId, organizationId)];
  if (page.before !== null) conditions.push(lt(ledgerEntries.number, page.before));
  if (page.type !== undefined) conditions.push(eq(ledgerEntries.type, page.type));
  const rows = await db.orm
    .select()
    .from(ledgerEntries)
    .where(and(...conditions))
    .orderBy(desc(ledgerEntries.number))
    .limit(page.limit + 1);
  return { entries: rows.slice(0, page.limit).map(toLedgerEntry), more: rows.length > page.limit };
}
