import { and, asc, eq, gt, lte, ne } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { type LedgerEntry, toLedgerEntry } from './ledger.ts';
import { ledgerEntries } from './schema.ts';

/**
 * A span of an organization's ledger: entries that follow each other, from behind the last one of before the span to
 * the last one of before its end, so that opening balance and all amounts come to the closing balance.
 */
export interface LedgerSpan {
  readonly openingPicoUsd: bigint;
  readonly closingPicoUsd: bigint;
  readonly creditedPicoUsd: bigint;
  /** Up and down. */
  readonly adjustedPicoUsd: bigint;
  readonly chargedPicoUsd: bigint;
  /** Credits and adjustments, oldest first. */
  readonly bookings: readonly LedgerEntry[];
  /** How many entries the ledger had at the end of the span. */
  readonly entries: number;
  /** What the chain came to then; null before it began. */
  readonly head: Buffer | null;
}

/** Clocks of gateways differ: by far less than this. */
const skewMs = 3_600_000;

interface End {
  readonly number: number;
  readonly balance: bigint;
  readonly head: Buffer | null;
}

const beginning: End = { number: 0, balance: 0n, head: null };

/** @param fromMs milliseconds since the Unix epoch, in; `toMs` not */
export async function readLedgerSpan(
  db: Db,
  organizationId: string,
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): Promise<LedgerSpan> {
  const first = await findEnd(db, organizationId, fromMs);
  const last = await findEnd(db, organizationId, toMs);
  const sums = await sumTypes(db, organizationId, first.number, last.number);
  const rows = await db.orm
    .select()
    .from(ledgerEntries)
    .where(
      and(
        eq(ledgerEntries.organizationId, organizationId),
        gt(ledgerEntries.number, first.number),
        lte(ledgerEntries.number, last.number),
        ne(ledgerEntries.type, 'usage'),
      ),
    )
    .orderBy(asc(ledgerEntries.number));
  return {
    openingPicoUsd: first.balance,
    closingPicoUsd: last.balance,
    creditedPicoUsd: sums.get('credit') ?? 0n,
    adjustedPicoUsd: sums.get('adjustment') ?? 0n,
    chargedPicoUsd: -(sums.get('usage') ?? 0n),
    bookings: rows.map(toLedgerEntry),
    entries: last.number,
    head: last.head,
  };
}

async function sumTypes(
  { sql }: Db,
  organizationId: string,
  after: number,
  until: number,
): Promise<ReadonlyMap<string, bigint>> {
  const rows = await sql<{ type: string; amount: string }[]>`
    SELECT type::text, sum(CASE WHEN credit_account = 'wallet' THEN amount ELSE -amount END)::text AS amount
    FROM ledger_entries WHERE organization_id = ${organizationId} AND number > ${after} AND number <= ${until}
    GROUP BY type`;
  return new Map(rows.map(({ type, amount }) => [type, BigInt(amount)]));
}

/**
 * The last entry of before a moment. Entries stand in the order in which they were booked, and their moments nearly so:
 * whatever the order of those around it, the same one is found at any later time.
 */
async function findEnd(db: Db, organizationId: string, timeMs: number): Promise<End> {
  const [low, high] = [
    await search(db, organizationId, timeMs - skewMs),
    await search(db, organizationId, timeMs + skewMs),
  ];
  const [row] = await db.sql<{ number: string; balance: string; head: Buffer | null }[]>`
    SELECT number::text, balance_after::text AS balance, head FROM ledger_entries e
    WHERE organization_id = ${organizationId} AND number >= ${low} AND number <= ${high}
      AND created_at < ${new Date(timeMs).toISOString()}::timestamptz ORDER BY e.number DESC LIMIT 1`;
  return row === undefined ? beginning : { number: Number(row.number), balance: BigInt(row.balance), head: row.head };
}

/** Some number of an entry of before a moment whose next one is not. */
async function search({ sql }: Db, organizationId: string, timeMs: number): Promise<number> {
  const [last] = await sql<{ number: string }[]>`
    SELECT number::text FROM ledger_entries e WHERE organization_id = ${organizationId} ORDER BY e.number DESC LIMIT 1`;
  let [low, high] = [0, Number(last?.number ?? 0)];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const [row] = await sql<{ is_before: boolean }[]>`
      SELECT created_at < ${new Date(timeMs).toISOString()}::timestamptz AS is_before FROM ledger_entries e
      WHERE organization_id = ${organizationId} AND number <= ${middle} ORDER BY number DESC LIMIT 1`;
    if (row?.is_before === true) low = middle;
    else high = middle - 1;
  }
  return low;
}
