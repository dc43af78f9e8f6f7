import type { ISql, PendingQuery, Row } from 'postgres';
import { uuidv7 } from '#base/id.ts';

/** What a settled request costs its organization. */
export interface Charge {
  readonly requestId: string;
  readonly organizationId: string;
  /** Above zero: a request that costs nothing has no ledger entry. */
  readonly amountPicoUsd: bigint;
}

/** Parts of a WITH clause, of which the last is called `booked`, with their parameters from $1 on. */
export interface BookedParts {
  readonly text: string;
  readonly parameters: readonly string[];
}

export interface ChargeBatch {
  readonly charges: readonly Charge[];
  readonly now: Date;
  readonly booked?: BookedParts | undefined;
}

const noParts: BookedParts = { text: '', parameters: [] };

/**
 * One statement that charges a batch: a ledger entry per request that has none yet, and the balances of their
 * organizations. Charging a request again changes nothing; two transactions that charge the same request at the same
 * moment end in a unique violation (`ledger_entries_request_key`) for one of them, and its repetition changes nothing.
 *
 * The upsert takes the wallets' locks in id order, so that batches of several gateways cannot block one another in a
 * circle, and works on each wallet's newest state whatever the statement's snapshot saw. Sequence numbers are given
 * after it, hence under the lock: `balance_after` is a running sum in the order of `seq`.
 *
 * The look-up of earlier entries is a scalar subquery because it then stays one index probe per row, also in a plan
 * that was prepared while the ledger was empty.
 * @param sql a transaction, or several statements' pipeline in one
 * @param batch.booked write what is charged for; they are part of the statement, and done before a wallet is locked
 * @throws RangeError for an amount that is not above zero
 */
export function chargeStatement(sql: ISql, { charges, now, booked = noParts }: ChargeBatch): PendingQuery<Row[]> {
  const byRequest = new Map<string, Charge>();
  for (const charge of charges) {
    if (charge.amountPicoUsd <= 0n) throw new RangeError(`request ${charge.requestId} charges nothing`);
    if (!byRequest.has(charge.requestId)) byRequest.set(charge.requestId, charge);
  }
  const rows = [...byRequest.values()];
  const parameters = [
    ...booked.parameters,
    arrayText(rows.map(() => uuidv7(now.getTime()))),
    arrayText(rows.map((row) => row.requestId)),
    arrayText(rows.map((row) => row.organizationId)),
    arrayText(rows.map((row) => row.amountPicoUsd.toString())),
    // As text: the pool is shared with drizzle, which takes the driver's own handling of dates away.
    now.toISOString(),
  ];
  return sql.unsafe(chargeText(booked), parameters, { prepare: true });
}

/** The last one that was made: a process charges with the same parts all its life. */
let known = { bookedText: '', text: '' };

/** A constant text: the driver would put one of fragments together anew for each batch. Nothing of a batch is in it. */
function chargeText({ text: bookedText, parameters }: BookedParts): string {
  if (known.text !== '' && known.bookedText === bookedText) return known.text;
  const [entryIds, requestIds, organizationIds, amounts, at] = [1, 2, 3, 4, 5].map((n) => `$${parameters.length + n}`);
  const first = bookedText === '' ? '' : `${bookedText},`;
  // Reading a part to its end is what makes Postgres run it before the others.
  const isBooked = bookedText === '' ? '' : '(SELECT count(*) FROM booked) IS NOT NULL AND';
  const text = `
    WITH ${first} fresh AS MATERIALIZED (
      SELECT i.* FROM unnest(${entryIds}::uuid[], ${requestIds}::uuid[], ${organizationIds}::uuid[], ${amounts}::numeric[])
        AS i(entry_id, request_id, organization_id, amount)
      WHERE ${isBooked} (SELECT e.request_id FROM ledger_entries e WHERE e.request_id = i.request_id) IS NULL
    ), charged AS (
      INSERT INTO wallets AS w (organization_id, currency, balance, updated_at)
      SELECT organization_id, 'USD', -sum(amount), ${at}::timestamptz FROM fresh
      GROUP BY organization_id ORDER BY organization_id
      ON CONFLICT (organization_id, currency) DO UPDATE
        SET balance = w.balance + excluded.balance, updated_at = excluded.updated_at
      RETURNING w.organization_id, w.balance
    )
    INSERT INTO ledger_entries (id, organization_id, type, debit_account, credit_account, amount, currency,
      balance_after, request_id, created_at)
    SELECT f.entry_id, f.organization_id, 'usage', 'wallet', 'revenue', f.amount, 'USD',
      c.balance + sum(f.amount) OVER (PARTITION BY f.organization_id)
        - sum(f.amount) OVER (PARTITION BY f.organization_id ORDER BY f.request_id),
      f.request_id, ${at}::timestamptz
    FROM fresh f JOIN charged c USING (organization_id)
    ORDER BY f.organization_id, f.request_id`;
  known = { bookedText, text };
  return text;
}

/** Postgres' text form of an array of ids or numbers; the driver's own needs types that it fetches some time later. */
function arrayText(items: readonly string[]): string {
  return `{${items.join(',')}}`;
}
