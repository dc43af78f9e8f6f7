import type { ISql } from 'postgres';
import type { Db } from '#base/database/database.ts';
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
  const [first, last] = await findEnds(tx, organizationId, { fromMs, toMs });
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
 * Returns the last entry before the start of a span, and before its end. Entries are in booking order, and their times
 * are nearly in this order: the search reads all entries around a moment, so that it finds the same entry at any later
 * time.
 */
async function findEnds(tx: ISql, organizationId: string, span: Omit<SpanRequest, 'organizationId'>) {
  const times = [span.fromMs, span.toMs];
  const around = times.flatMap((timeMs) => [timeMs - skewMs, timeMs + skewMs]);
  const numbers = await numbersBefore(tx, organizationId, around);
  const find = async (at: number): Promise<End> => {
    const [row] = await tx<{ number: string; balance: string; head: Buffer | null }[]>`
      SELECT number::text, balance_after::text AS balance, head FROM ledger_entries e
      WHERE organization_id = ${organizationId} AND number >= ${numbers[2 * at] ?? 0} AND number <= ${numbers[2 * at + 1] ?? 0}
        AND created_at < ${new Date(times[at] ?? 0).toISOString()}::timestamptz ORDER BY e.number DESC LIMIT 1`;
    return row === undefined ? beginning : { number: Number(row.number), balance: BigInt(row.balance), head: row.head };
  };
  return [await find(0), await find(1)] as const;
}

/** Returns for each moment the number of an entry before it whose next entry is not before it; 0 if there is none. */
async function numbersBefore(tx: ISql, organizationId: string, timesMs: readonly number[]): Promise<readonly number[]> {
  const times = timesMs.map((timeMs) => new Date(timeMs).toISOString());
  const rows = await tx<{ number: string }[]>`
    WITH RECURSIVE halved AS (
      SELECT place, time, 0::bigint AS low, coalesce((SELECT number FROM ledger_entries
        WHERE organization_id = ${organizationId} ORDER BY number DESC LIMIT 1), 0) AS high
      FROM unnest(${`{${times.join(',')}}`}::timestamptz[]) WITH ORDINALITY AS asked (time, place)
      UNION ALL
      SELECT place, time, CASE WHEN found.created_at < time THEN middle ELSE low END,
        CASE WHEN found.created_at < time THEN high ELSE middle - 1 END
      FROM (SELECT *, (low + high + 1) / 2 AS middle FROM halved WHERE low < high) step
      LEFT JOIN LATERAL (SELECT created_at FROM ledger_entries
        WHERE organization_id = ${organizationId} AND number <= middle ORDER BY number DESC LIMIT 1) found ON true)
    SELECT low::text AS number FROM halved WHERE low >= high ORDER BY place`;
  return rows.map(({ number }) => Number(number));
}

/** A UTC day of a ledger. */
export interface LedgerDay {
  /** Start of the day, in milliseconds since the Unix epoch. */
  readonly dayMs: number;
  /** Balance after the last entry before the end of the day. */
  readonly balancePicoUsd: bigint;
  readonly creditedPicoUsd: bigint;
  /** Sum of adjustments up and down. */
  readonly adjustedPicoUsd: bigint;
  readonly chargedPicoUsd: bigint;
}

const dayLengthMs = 86_400_000;

export interface DaysRequest {
  readonly organizationId: string;
  /** A moment of the last day, in milliseconds since the Unix epoch. */
  readonly untilMs: number;
  readonly days: number;
}

/** Reads UTC days of a ledger, oldest first. Of entries close to midnight, the order of booking decides the day. */
export function readLedgerDays({ sql }: Db, request: DaysRequest): Promise<readonly LedgerDay[]> {
  return sql.begin('isolation level repeatable read read only', (tx) => readDays(tx, request));
}

async function readDays(tx: ISql, { organizationId, untilMs, days }: DaysRequest): Promise<readonly LedgerDay[]> {
  const fromMs = (Math.floor(untilMs / dayLengthMs) - days + 1) * dayLengthMs;
  const times = Array.from({ length: days + 1 }, (_, index) => fromMs + index * dayLengthMs);
  const numbers = await numbersBefore(tx, organizationId, times);
  const balances = await tx<{ balance: string }[]>`
    SELECT coalesce(found.balance_after, 0)::text AS balance
    FROM unnest(${`{${numbers.join(',')}}`}::bigint[]) WITH ORDINALITY AS asked (last, place)
    LEFT JOIN LATERAL (SELECT balance_after FROM ledger_entries
      WHERE organization_id = ${organizationId} AND number <= last ORDER BY number DESC LIMIT 1) found ON true
    ORDER BY place`;
  const booked = await tx<{ day: number; type: string; amount: string }[]>`
    SELECT width_bucket(number - 1, ${`{${numbers.join(',')}}`}::bigint[]) - 1 AS day, type::text,
      sum(CASE WHEN credit_account = 'wallet' THEN amount ELSE -amount END)::text AS amount
    FROM ledger_entries WHERE organization_id = ${organizationId} AND type <> 'usage'
      AND number > ${numbers[0] ?? 0} AND number <= ${numbers.at(-1) ?? 0}
    GROUP BY 1, 2`;
  return times.slice(0, days).map((dayMs, index) => {
    const sum = (type: string): bigint =>
      BigInt(booked.find((row) => row.day === index && row.type === type)?.amount ?? 0);
    const balance = (at: number): bigint => BigInt(balances[at]?.balance ?? 0);
    const [creditedPicoUsd, adjustedPicoUsd, balancePicoUsd] = [sum('credit'), sum('adjustment'), balance(index + 1)];
    const chargedPicoUsd = balance(index) + creditedPicoUsd + adjustedPicoUsd - balancePicoUsd;
    return { dayMs, balancePicoUsd, creditedPicoUsd, adjustedPicoUsd, chargedPicoUsd };
  });
}
