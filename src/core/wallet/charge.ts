import postgres, { type ISql, type PendingQuery, type Row } from 'postgres';
import { nextHeadSql, requestsHashSql, usageEntryHashSql } from './chain.ts';

/** An organization with charges in a batch. */
export interface ChargedOrganization {
  readonly organizationId: string;
  /** Number of requests in the batch that charge the organization; each costs more than zero. */
  readonly requests: number;
}

/**
 * Parts of a WITH clause that write the requests to be charged, with their parameters from $1 on. The parts may read
 * `charge_groups (organization_id, group_id)`: the group of an organization's requests, null for a single request. The
 * last part is `booked (organization_id, request_id, amount)`: the requests to charge, each with an amount above zero
 * and not charged before. A part that reads `booked` runs after all other parts.
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
 * Returns the statement that charges a batch: it writes one ledger entry per organization and updates the balances. An
 * entry for several requests has their group number and a hash over their ids and amounts. `booked` ensures that no
 * request is charged twice.
 *
 * The upsert locks the wallets in id order, so that batches of several gateways cannot deadlock. It works on each
 * wallet's newest state, whatever the statement's snapshot saw. The inserted values are the amount and the entry's
 * hash, which only the update uses. If a wallet does not exist, the upsert inserts one with zero entries; the ledger
 * entry then gets no number and PostgreSQL rejects the statement.
 * @param sql a pool, or a transaction in which this is the last statement
 * @throws an error for which `isUncovered` is true if a wallet's balance is less than its charge; nothing is written
 * then
 */
export function chargeStatement(sql: ISql, { organizations, now, booked }: ChargeBatch): PendingQuery<Row[]> {
  const parameters = [
    ...booked.parameters,
    arrayText(organizations.map(({ organizationId }) => organizationId)),
    arrayText(organizations.map(({ requests }) => String(requests > 1))),
    // As text: the pool is shared with drizzle, which disables the driver's own handling of dates.
    now.toISOString(),
    `${now.getTime()}000`,
  ];
  return sql.unsafe(chargeText(booked), parameters, { prepare: true });
}

/** True if a charge failed because the balance is too low, or because the organization has no wallet. */
export function isUncovered(error: unknown): boolean {
  if (!(error instanceof postgres.PostgresError)) return false;
  const { code, constraint_name: constraint, table_name: table, column_name: column } = error;
  const hasNoWallet = code === '23502' && table === 'ledger_entries' && column === 'number';
  return hasNoWallet || (code === '23514' && constraint === 'wallets_balance_not_negative');
}

/** The last statement text that was built. A process charges with the same parts as long as it runs. */
let known = { bookedText: '', text: '' };

/**
 * Builds the statement's text, without any value of the batch. With SQL fragments the driver would rebuild the text for
 * each batch.
 */
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

/**
 * Returns PostgreSQL's text form of an array of ids or numbers. The driver's own arrays need types that it fetches
 * later.
 */
function arrayText(items: readonly string[]): string {
  return `{${items.join(',')}}`;
}
