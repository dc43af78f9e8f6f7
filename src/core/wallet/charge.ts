import postgres, { type ISql, type PendingQuery, type Row } from 'postgres';
import { nextHeadSql, requestsHashSql, usageEntryHashSql } from './chain.ts';

/** An organization that a batch has charges for. */
export interface ChargedOrganization {
  readonly organizationId: string;
  /** How many requests of the batch charge it; each of them more than nothing. */
  readonly requests: number;
}

/**
 * Parts of a WITH clause that write what is charged for, with their parameters from $1 on. They may read
 * `charge_groups (organization_id, group_id)`: the group that an organization's requests belong to, null for one alone.
 * The last of them is `booked (organization_id, request_id, amount)`: the requests that are to be charged, each with
 * more than nothing, and none that has been charged before. Whoever reads it finds all other parts done.
 */
export interface BookedParts {
  readonly text: string;
  readonly parameters: readonly string[];
}

export interface ChargeBatch {
  readonly organizations: readonly ChargedOrganization[];
  readonly now: Date;
  readonly booked: BookedParts;
}

/**
 * One statement that charges a batch: per organization one ledger entry and the balance. An entry of several requests
 * bears the number of their group and a hash over their ids and amounts; that no request is charged twice is the
 * business of `booked`.
 *
 * The upsert takes the wallets' locks in id order, so that batches of several gateways cannot block one another in a
 * circle, and works on each wallet's newest state whatever the statement's snapshot saw. What it proposes are the
 * amount and the entry's hash, which only an update makes use of: a wallet that it would have to make would be one of
 * no entries, and the entry, which is numbered after it, is refused without a number.
 * @param sql a pool, or a transaction in which this comes last
 * @throws an error that `isUncovered` knows where a wallet does not hold what is charged; nothing is written then
 */
export function chargeStatement(sql: ISql, { organizations, now, booked }: ChargeBatch): PendingQuery<Row[]> {
  const parameters = [
    ...booked.parameters,
    arrayText(organizations.map(({ organizationId }) => organizationId)),
    arrayText(organizations.map(({ requests }) => String(requests > 1))),
    // As text: the pool is shared with drizzle, which takes the driver's own handling of dates away.
    now.toISOString(),
    `${now.getTime()}000`,
  ];
  return sql.unsafe(chargeText(booked), parameters, { prepare: true });
}

/** Whether a charge failed because a wallet holds less, or because an organization has none. */
export function isUncovered(error: unknown): boolean {
  if (!(error instanceof postgres.PostgresError)) return false;
  const { code, constraint_name: constraint, table_name: table, column_name: column } = error;
  const hasNoWallet = code === '23502' && table === 'ledger_entries' && column === 'number';
  return hasNoWallet || (code === '23514' && constraint === 'wallets_balance_not_negative');
}

/** The last one that was made: a process charges with the same parts all its life. */
let known = { bookedText: '', text: '' };

/** A constant text: the driver would put one of fragments together anew for each batch. Nothing of a batch is in it. */
function chargeText({ text: bookedText, parameters }: BookedParts): string {
  if (known.text !== '' && known.bookedText === bookedText) return known.text;
  const [organizationIds, grouped, at, atMicros] = [1, 2, 3, 4].map((n) => `$${parameters.length + n}`);
  const hash = usageEntryHashSql({
    id: 's.id::text',
    organizationId: 's.organization_id::text',
    amount: 's.amount::text',
    createdAtMicros: `${atMicros}::text`,
    requests: 's.requests::text',
    groupId: 'g.group_id::text',
    requestsHash: "CASE WHEN g.group_id IS NOT NULL THEN encode(s.requests_hash, 'hex') END",
  });
  const text = `
    WITH charge_groups AS MATERIALIZED (
      SELECT organization_id, CASE WHEN grouped THEN nextval('ledger_groups') END AS group_id
      FROM unnest(${organizationIds}::uuid[], ${grouped}::boolean[]) AS t(organization_id, grouped)
    ), ${bookedText}, summed AS (
      SELECT organization_id, (array_agg(request_id ORDER BY request_id))[1] AS id, count(*)::integer AS requests,
        sum(amount) AS amount, ${requestsHashSql} AS requests_hash
      FROM booked GROUP BY organization_id
    ), entries AS MATERIALIZED (
      SELECT s.organization_id, s.id, s.requests, s.amount, g.group_id,
        CASE WHEN g.group_id IS NOT NULL THEN s.requests_hash END AS requests_hash, ${hash} AS entry_hash
      FROM summed s JOIN charge_groups g USING (organization_id)
    ), charged AS (
      INSERT INTO wallets AS w (organization_id, currency, balance, updated_at, entries, head)
      SELECT organization_id, 'USD', amount, ${at}::timestamptz, 0, entry_hash FROM entries ORDER BY organization_id
      ON CONFLICT (organization_id, currency) DO UPDATE
        SET balance = w.balance - excluded.balance, updated_at = excluded.updated_at, entries = w.entries + 1,
          head = ${nextHeadSql('w.head', 'excluded.head', 'w.entries + 1', 'w.balance - excluded.balance')}
      RETURNING w.organization_id, w.balance, w.entries, w.head
    )
    INSERT INTO ledger_entries (number, created_at, group_id, requests, type, debit_account, credit_account,
      organization_id, id, amount, currency, balance_after, head, requests_hash)
    SELECT nullif(c.entries, 0), ${at}::timestamptz, e.group_id, e.requests, 'usage', 'wallet', 'revenue',
      e.organization_id, e.id, e.amount, 'USD', c.balance, c.head, e.requests_hash
    FROM entries e JOIN charged c USING (organization_id)`;
  known = { bookedText, text };
  return text;
}

/** Postgres' text form of an array of ids or numbers; the driver's own needs types that it fetches some time later. */
function arrayText(items: readonly string[]): string {
  return `{${items.join(',')}}`;
}
