import type { Sql } from 'postgres';
import type { Author } from '#core/audit/audit.ts';
import { nextHeadSql, requestsHashSql, usageEntryHashSql } from '#core/wallet/chain.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import type { Series } from './seed-plan.ts';

export interface LedgerPlan {
  readonly series: readonly Series[];
  readonly wallet: Wallet;
  readonly author: Author;
  readonly reference: string;
  readonly told: (text: string) => void;
}

/** Time of settlement: two seconds after a request's admission, in milliseconds since the Unix epoch. */
const settledMs = `(('x' || substr(replace(request_id::text, '-', ''), 1, 12))::bit(48)::bigint + 2000)`;

/**
 * Credits each organization what its requests cost and a quarter more, and charges it for them: an entry per group or
 * request, numbered and chained after what its ledger has. What the ledger has already is not charged again.
 */
export async function chargeSeeded(sql: Sql, { series, wallet, author, reference, told }: LedgerPlan): Promise<void> {
  const byOrganization = Map.groupBy(series, ({ organizationId }) => organizationId);
  for (const [organizationId, own] of byOrganization) {
    const keyIds = JSON.stringify([...new Set(own.map(({ keyId }) => keyId))]);
    const [total] = await sql.unsafe<{ cost: string }[]>(
      `select coalesce(sum(cost), 0)::text as cost from usage_daily
      where organization = (select code from usage_ids where id = $1) and key in (
        select code from usage_ids where id in (select json_array_elements_text($2::text::json)::uuid))`,
      [organizationId, keyIds],
    );
    const cost = BigInt(total?.cost ?? 0);
    if (cost === 0n) continue;
    await wallet.credit({ organizationId, amountPicoUsd: cost + cost / 4n, reference, note: null, author });
    await sql.begin(async (tx) => {
      await tx.unsafe("set local work_mem = '256MB'; set local jit = off; set local statement_timeout = 0");
      await tx.unsafe(chainText);
      await tx.unsafe(entriesText, [organizationId, keyIds]);
      await tx.unsafe(
        `update wallets w set balance = e.balance_after, entries = e.number, head = e.head
        from (select * from ledger_entries where organization_id = $1 order by number desc limit 1) e
        where w.organization_id = e.organization_id and w.currency = 'USD'`,
        [organizationId],
      );
      await tx.unsafe('drop aggregate pg_temp.chain(bytea, bytea, bigint, numeric)');
    });
  }
  told('ledger');
}

/** The head after each row of a window. */
const chainText = `
  create or replace function pg_temp.next_head(head bytea, first bytea, hash bytea, number bigint, balance numeric)
    returns bytea language sql as $$ select ${nextHeadSql('coalesce(head, first)', 'hash', 'number', 'balance')} $$;
  create aggregate pg_temp.chain(first bytea, hash bytea, number bigint, balance numeric)
    (sfunc = pg_temp.next_head, stype = bytea)`;

/** $1 organization, $2 keys. */
const entriesText = `
  with requests as (
    select group_id, id as request_id, cost as amount from usage_requests
    where organization = (select code from usage_ids where id = $1::uuid) and cost > 0 and key in (
      select code from usage_ids where id in (select json_array_elements_text($2::text::json)::uuid))
  ), summed as (
    select $1::uuid as organization_id, group_id, min(request_id::text)::uuid as id, count(*)::integer as requests,
      sum(amount) as amount, max(${settledMs}) as at_ms, case when group_id is not null then ${requestsHashSql} end as requests_hash
    from requests group by group_id, case when group_id is null then request_id end
  ), hashed as (
    select s.*, ${usageEntryHashSql({
      id: 's.id::text',
      organizationId: 's.organization_id::text',
      amount: 's.amount::text',
      createdAtMicros: "s.at_ms || '000'",
      requests: 's.requests::text',
      groupId: 's.group_id::text',
      requestsHash: "encode(s.requests_hash, 'hex')",
    })} as entry_hash from summed s
  ), numbered as (
    select h.*, w.head as first, w.entries + row_number() over ordered as number,
      w.balance - sum(h.amount) over ordered as balance_after
    from hashed h join wallets w on w.organization_id = h.organization_id and w.currency = 'USD'
    window ordered as (order by h.at_ms, h.id)
  )
  insert into ledger_entries (number, created_at, group_id, requests, type, debit_account, credit_account, organization_id,
    id, amount, currency, balance_after, head, requests_hash)
  select number, to_timestamp(at_ms / 1000.0), group_id, requests, 'usage', 'wallet', 'revenue', organization_id, id, amount,
    'USD', balance_after, pg_temp.chain(first, entry_hash, number, balance_after) over (order by number), requests_hash
  from numbered order by number`;
