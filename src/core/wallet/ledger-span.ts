import type { ISql } from 'postgres';
import type { LedgerEntry } from './ledger.ts';

/**
 * A span of an organization's ledger: consecutive entries, after the last entry before the start, up to the last entry
 * before the end. Opening balance plus all amounts equals the closing balance.
 */
export interface LedgerSpan {
  readonly openingPicoUsd: bigint;
  readonly closingPicoUsd: bigint;
  readonly creditedPicoUsd: bigint;
  /** Sum of adjustments up and down. */
  readonly adjustedPicoUsd: bigint;
  readonly chargedPicoUsd: bigint;
  /** Credits and adjustments, oldest first. */
  readonly bookings: readonly SpanChange[];
  /** Number of entries in the ledger at the end of the span. */
  readonly entries: number;
  /** Head of the chain at the end of the span; null before the chain began. */
  readonly head: Buffer | null;
}

export interface SpanChange extends Pick<LedgerEntry, 'id' | 'amountPicoUsd' | 'reference' | 'note' | 'createdAt'> {
  readonly type: 'credit' | 'adjustment';
}

/** Upper bound for the difference between gateways' clocks, with a wide margin. */
const skewMs = 3_600_000;

interface End {
  readonly number: number;
  readonly balance: bigint;
  readonly head: Buffer | null;
}

const beginning: End = { number: 0, balance: 0n, head: null };

export interface SpanRequest {
  readonly organizationId: string;
  /** Milliseconds since the Unix epoch; the span ends before `toMs`. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** Reads a span of the ledger. @param tx a transaction with one snapshot, since entries are added meanwhile */
export async function readLedgerSpan(tx: ISql, { organizationId, fromMs, toMs }: SpanRequest): Promise<LedgerSpan> {
  const first = await findEnd(tx, organizationId, fromMs);
  const last = await findEnd(tx, organizationId, toMs);
  const sums = await sumTypes(tx, organizationId, first.number, last.number);
  return {
    openingPicoUsd: first.balance,
    closingPicoUsd: last.balance,
    creditedPicoUsd: sums.get('credit') ?? 0n,
    adjustedPicoUsd: sums.get('adjustment') ?? 0n,
    chargedPicoUsd: -(sums.get('usage') ?? 0n),
    bookings: await readChanges(tx, organizationId, first.number, last.number),
    entries: last.number,
    head: last.head,
  };
}

interface ChangeRow {
  readonly id: string;
  readonly type: SpanChange['type'];
  readonly amount: string;
  readonly reference: string | null;
  readonly note: string | null;
  readonly created_ms: string;
}

async function readChanges(
  tx: ISql,
  organizationId: string,
  after: number,
  until: number,
): Promise<readonly SpanChange[]> {
  const rows = await tx<ChangeRow[]>`
    SELECT id::text, type::text, (CASE WHEN credit_account = 'wallet' THEN amount ELSE -amount END)::text AS amount,
      reference, note, (extract(epoch FROM created_at) * 1000)::bigint::text AS created_ms
    FROM ledger_entries
    WHERE organization_id = ${organizationId} AND number > ${after} AND number <= ${until} AND type <> 'usage'
    ORDER BY number`;
  return rows.map(({ id, type, amount, reference, note, created_ms: createdMs }) => {
    return { id, type, amountPicoUsd: BigInt(amount), reference, note, createdAt: new Date(Number(createdMs)) };
  });
}

async function sumTypes(
  tx: ISql,
  organizationId: string,
  after: number,
  until: number,
): Promise<ReadonlyMap<string, bigint>> {
  const rows = await tx<{ type: string; amount: string }[]>`
    SELECT type::text, sum(CASE WHEN credit_account = 'wallet' THEN amount ELSE -amount END)::text AS amount
    FROM ledger_entries WHERE organization_id = ${organizationId} AND number > ${after} AND number <= ${until}
    GROUP BY type`;
  return new Map(rows.map(({ type, amount }) => [type, BigInt(amount)]));
}

/**
 * Returns the last entry before a moment. Entries are in booking order, and their times are nearly in this order: the
 * search reads all entries around the moment, so that it finds the same entry at any later time.
 */
async function findEnd(tx: ISql, organizationId: string, timeMs: number): Promise<End> {
  const [low, high] = [
    await search(tx, organizationId, timeMs - skewMs),
    await search(tx, organizationId, timeMs + skewMs),
  ];
  const [row] = await tx<{ number: string; balance: string; head: Buffer | null }[]>`
    SELECT number::text, balance_after::text AS balance, head FROM ledger_entries e
    WHERE organization_id = ${organizationId} AND number >= ${low} AND number <= ${high}
      AND created_at < ${new Date(timeMs).toISOString()}::timestamptz ORDER BY e.number DESC LIMIT 1`;
  return row === undefined ? beginning : { number: Number(row.number), balance: BigInt(row.balance), head: row.head };
}

/** Returns the number of an entry before a moment whose next entry is not before the moment. */
async function search(tx: ISql, organizationId: string, timeMs: number): Promise<number> {
  const [last] = await tx<{ number: string }[]>`
    SELECT number::text FROM ledger_entries e WHERE organization_id = ${organizationId} ORDER BY e.number DESC LIMIT 1`;
  let [low, high] = [0, Number(last?.number ?? 0)];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const [row] = await tx<{ is_before: boolean }[]>`
      SELECT created_at < ${new Date(timeMs).toISOString()}::timestamptz AS is_before FROM ledger_entries e
      WHERE organization_id = ${organizationId} AND number <= ${middle} ORDER BY number DESC LIMIT 1`;
    if (row?.is_before === true) low = middle;
    else high = middle - 1;
  }
  return low;
}
