import { and, desc, eq, lt } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { ledgerEntries } from './schema.ts';

type LedgerEntryType = 'credit' | 'usage' | 'adjustment';

export interface LedgerEntry {
  readonly id: string;
  /** Order in which balances came about; a cursor of the list. */
  readonly seq: number;
  readonly organizationId: string;
  readonly type: LedgerEntryType;
  /** What the balance gained; negative for usage. */
  readonly amountPicoUsd: bigint;
  readonly balanceAfterPicoUsd: bigint;
  readonly requestId: string | null;
  readonly reference: string | null;
  readonly note: string | null;
  readonly createdAt: Date;
}

export interface LedgerPageRequest {
  readonly limit: number;
  /** `seq` of the last entry of the page before; null for the newest. */
  readonly cursor: number | null;
  readonly type?: LedgerEntryType;
}

export interface LedgerPage {
  readonly entries: readonly LedgerEntry[];
  /** Null when there is nothing older. */
  readonly nextCursor: number | null;
}

export interface LedgerProof {
  /** The balance equals the sum, and every entry's `balance_after` the running sum up to it. */
  readonly balanced: boolean;
  readonly balancePicoUsd: bigint;
  readonly sumPicoUsd: bigint;
  readonly entries: number;
  /** Entries whose `balance_after` is not the running sum. */
  readonly entriesBroken: number;
}

/** A row as the room's callers see it: signed from the wallet's side. */
export function toLedgerEntry(row: typeof ledgerEntries.$inferSelect): LedgerEntry {
  return {
    id: row.id,
    seq: row.seq,
    organizationId: row.organizationId,
    type: row.type,
    amountPicoUsd: row.creditAccount === 'wallet' ? row.amount : -row.amount,
    balanceAfterPicoUsd: row.balanceAfter,
    requestId: row.requestId,
    reference: row.reference,
    note: row.note,
    createdAt: row.createdAt,
  };
}

/** One page of an organization's entries, newest first. */
export async function readLedgerPage(db: Db, organizationId: string, page: LedgerPageRequest): Promise<LedgerPage> {
  const conditions = [eq(ledgerEntries.organizationId, organizationId)];
  if (page.cursor !== null) conditions.push(lt(ledgerEntries.seq, page.cursor));
  if (page.type !== undefined) conditions.push(eq(ledgerEntries.type, page.type));
  const rows = await db.orm
    .select()
    .from(ledgerEntries)
    .where(and(...conditions))
    .orderBy(desc(ledgerEntries.seq))
    .limit(page.limit + 1);
  const entries = rows.slice(0, page.limit).map(toLedgerEntry);
  return { entries, nextCursor: rows.length > page.limit ? (entries.at(-1)?.seq ?? null) : null };
}

interface ProofRow {
  readonly balance: string;
  readonly total: string;
  readonly entries: number;
  readonly broken: number;
}

/** Adds an organization's whole ledger up, in one snapshot beside its balance. */
export async function proveLedger(db: Db, organizationId: string): Promise<LedgerProof> {
  const [row] = await db.sql<ProofRow[]>`
    WITH signed AS (
      SELECT seq, balance_after, CASE WHEN credit_account = 'wallet' THEN amount ELSE -amount END AS amount
      FROM ledger_entries WHERE organization_id = ${organizationId} AND currency = 'USD'
    ), running AS (SELECT amount, balance_after, sum(amount) OVER (ORDER BY seq) AS expected FROM signed)
    SELECT coalesce((SELECT balance FROM wallets WHERE organization_id = ${organizationId} AND currency = 'USD'), 0)
        AS balance,
      coalesce(sum(amount), 0) AS total, count(*)::int AS entries,
      (count(*) FILTER (WHERE balance_after <> expected))::int AS broken
    FROM running`;
  if (row === undefined) throw new Error('the sums of the ledger came without a row');
  const balancePicoUsd = BigInt(row.balance);
  const sumPicoUsd = BigInt(row.total);
  const balanced = balancePicoUsd === sumPicoUsd && row.broken === 0;
  return { balanced, balancePicoUsd, sumPicoUsd, entries: row.entries, entriesBroken: row.broken };
}
