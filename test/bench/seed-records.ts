import type { Sql } from 'postgres';
import { uuidLowerBound } from '#base/id.ts';
import type { HourPlan, Series } from './seed-plan.ts';

export interface MonthPlan {
  /** YYYY-MM */
  readonly month: string;
  readonly hours: readonly HourPlan[];
}

export interface RecordsPlan {
  readonly series: readonly Series[];
  readonly codes: { readonly ids: ReadonlyMap<string, number>; readonly names: ReadonlyMap<string, number> };
  /** Requests of one commit. */
  readonly batch: number;
  readonly seed: number;
}

/** A series is drawn by one of so many numbers, each of which stands for one series. */
const slots = 65_536;

/** Numbers of the slots by series, as many as its share; at least one. */
function slotsOf(series: readonly Series[]): { slot: number; series: number }[] {
  let end = 0;
  let share = 0;
  return series.flatMap((one, index) => {
    share += one.share;
    const from = end;
    end = Math.min(slots, Math.max(from + 1, Math.round(share * slots)));
    if (index === series.length - 1) end = slots;
    return Array.from({ length: end - from }, (_, at) => ({ slot: from + at, series: index }));
  });
}

/** Parts of the hash of a row's number, 32 hexadecimal digits, as whole numbers and as numbers from 0 to 1. */
const bits = (from: number, digits: number): string =>
  `('x' || substr(m, ${from}, ${digits}))::bit(${digits * 4})::int`;
const fraction = (from: number): string => `(${bits(from, 4)} / 65536::float8)`;

/** Fills a month: in a table of its own that becomes its partition, or in the partition that is there. */
export async function fillMonth(sql: Sql, { month, hours }: MonthPlan, plan: RecordsPlan): Promise<void> {
  const { series, codes } = plan;
  const rows = series.map((one, index) => ({
    series: index,
    organization: codes.ids.get(one.organizationId),
    project: codes.ids.get(one.projectId),
    key: codes.ids.get(one.keyId),
    price_version: codes.ids.get(one.priceVersionId),
    model: codes.names.get(one.model),
    endpoint: codes.names.get(one.endpoint),
    input_price: one.inputPrice,
    output_price: one.outputPrice,
  }));
  const startMs = Date.parse(`${month}-01T00:00:00Z`);
  const start = new Date(startMs);
  const [from, to] = [startMs, Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1)].map(uuidLowerBound);
  const name = `usage_requests_${month.replace('-', '_')}`;
  await sql.begin(async (tx) => {
    const [found] = await tx`select to_regclass(${name}) is not null as there`;
    const isThere = found?.['there'] === true;
    if (!isThere) await tx.unsafe(`create table ${name} (like usage_requests including all excluding indexes)`);
    // Numbers of groups are drawn all at once: one for every row would be enough.
    const [last] = await tx<{ group_id: string }[]>`
      select setval('ledger_groups', nextval('ledger_groups') + ${hours.reduce((sum, { requests }) => sum + requests, 0) + 1}) as group_id`;
    await tx.unsafe("set local work_mem = '256MB'; set local maintenance_work_mem = '256MB'; set local jit = off");
    await tx.unsafe(slotsText, [JSON.stringify(rows), JSON.stringify(slotsOf(series))]);
    await tx.unsafe('analyze seed_slots');
    await tx.unsafe(recordsText(name, plan), [
      JSON.stringify(hours.map(({ startMs: ms, first, requests }) => ({ ms, first, requests }))),
      String(
        BigInt(last?.group_id ?? 0) -
          BigInt(hours.reduce((sum, { requests }) => sum + requests, 0)) -
          BigInt(hours[0]?.first ?? 0),
      ),
    ]);
    if (isThere) return;
    await tx.unsafe(`alter table ${name} add primary key (organization, id)`);
    await tx.unsafe(`create index on ${name} (key, id)`);
    await tx.unsafe(`create index on ${name} (group_id) where group_id is not null`);
    await tx.unsafe(`alter table usage_requests attach partition ${name} for values from ('${from}') to ('${to}')`);
  });
}

/** $1 series, $2 slots. A table that is known to be large is joined as one. */
const slotsText = `
  create temporary table seed_slots on commit drop as
  select p.slot, s.* from json_to_recordset($2::text::json) as p(slot integer, series integer)
  join json_to_recordset($1::text::json) as s(series integer, organization integer, project integer, key integer,
    price_version integer, model integer, endpoint integer, input_price bigint, output_price bigint) using (series)`;

/** $1 hours, $2 what makes a row's number one of a group. */
function recordsText(table: string, { batch, seed }: RecordsPlan): string {
  return `
    with drawn as materialized (
      select h.first + k as n, h.first + (k - 1) / ${batch} * ${batch} + 1 as batch, md5('${seed} ' || (h.first + k)) as m,
        h.ms + ((k - 1) * 3600000.0 / h.requests)::bigint as ms
      from json_to_recordset($1::text::json) as h(ms bigint, first bigint, requests integer)
      cross join lateral generate_series(1, h.requests) as k
    ), counted as (
      select d.n, d.batch, d.m, d.ms, s.*, ${bits(27, 2)} as fate,
        (50 * 100 ^ ${fraction(4)})::integer as input, (10 * 100 ^ ${fraction(8)})::integer as made
      from drawn d join seed_slots s on s.slot = ${bits(1, 4)}
    ), priced as (
      select *, case when fate >= 254 then 0 else input end as input_tokens,
        case when fate >= 254 or output_price = 0 then 0 else made end as output_tokens
      from counted
    ), costed as (
      select *, input_tokens * input_price + output_tokens * output_price as cost from priced
    )
    insert into ${table} (group_id, organization, project, key, price_version, model, endpoint, input_tokens,
      input_cached_tokens, output_tokens, output_reasoning_tokens, queued_ms, first_byte_ms, total_ms, outcome, usage_source,
      status, stream, cache_hit, id, cost, reason, client_request_id, facts)
    select case when cost > 0 and count(*) filter (where cost > 0) over same > 1
        then $2::bigint + min(n) over same end,
      organization, project, key, price_version, model, endpoint, input_tokens,
      case when fate % 3 = 0 then input_tokens / 2 else 0 end, output_tokens,
      case when fate % 5 = 0 then output_tokens / 2 else 0 end, case when fate % 11 = 0 then 40 else 0 end, 60 + fate,
      200 + made * 10,
      (case when fate < 243 then 'completed' when fate < 250 then 'aborted' when fate < 254 then 'ended' else 'failed' end)::usage_outcome,
      (case when fate < 243 then 'engine' when fate < 254 then 'last_seen' else 'none' end)::usage_source,
      case when fate >= 254 then 502 else 200 end, fate % 4 <> 0, false,
      (lpad(to_hex(ms), 12, '0') || '7' || substr(m, 12, 3) || '8' || substr(m, 15, 3) || substr(m, 16, 12))::uuid, cost,
      case when fate >= 254 then 'engine_error' when fate >= 250 then 'insufficient_funds' end,
      case when fate % 20 = 1 then 'req-' || substr(m, 1, 24) end,
      -- Two limits, a replica of some hours: as the rows of a gateway.
      decode('6902' || '3b09' || '808b02' || substr(m, 1, 14) || '000003', 'hex')
    from costed window same as (partition by batch, organization)
    order by n`;
}

const sums = `count(*), count(*) filter (where outcome = 'completed'), count(*) filter (where outcome = 'aborted'),
  count(*) filter (where outcome = 'ended'), count(*) filter (where outcome = 'failed'), count(*) filter (where cache_hit),
  sum(input_tokens), sum(input_cached_tokens), sum(output_tokens), sum(output_reasoning_tokens), sum(cost)`;
const sumColumns = `requests, completed, aborted, ended, failed, cache_hits, input_tokens, input_cached_tokens, output_tokens,
  output_reasoning_tokens, cost`;

/** Sums of all records of these keys, and refusals of about one in a hundred. */
export async function sumSeeded(sql: Sql, series: readonly Series[]): Promise<void> {
  const keys = `(select code from usage_ids where id in (select json_array_elements_text($1::text::json)::uuid))`;
  const parameters = [JSON.stringify([...new Set(series.map(({ keyId }) => keyId))])];
  await sql.begin(async (tx) => {
    // Ten million rows are summed in longer than a request may take.
    await tx.unsafe("set local work_mem = '256MB'; set local jit = off; set local statement_timeout = 0");
    await tx.unsafe(
      `insert into usage_hourly (organization, hour, key, project, model, ${sumColumns})
      select organization, to_timestamp((('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000) * 3600) as hour,
        key, project, model, ${sums} from usage_requests where key in ${keys} group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5`,
      parameters,
    );
    await tx.unsafe(
      `insert into usage_daily (organization, day, key, project, model, ${sumColumns})
      select organization, (hour at time zone 'UTC')::date as day, key, project, model,
        ${sumColumns
          .split(',')
          .map((name) => `sum(${name})`)
          .join(', ')}
      from usage_hourly where key in ${keys} group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5`,
      parameters,
    );
    await tx.unsafe(
      `insert into usage_refusals (organization_id, minute, key_id, project_id, model, code, count)
      select o.id, h.hour + (h.requests % 60) * interval '1 minute', k.id, p.id, m.name,
        case when h.requests % 2 = 0 then 'rate_limit_exceeded' else 'insufficient_funds' end, 1 + h.requests / 100
      from usage_hourly h join usage_ids o on o.code = h.organization join usage_ids k on k.code = h.key
      join usage_ids p on p.code = h.project join usage_names m on m.code = h.model
      where h.key in ${keys} and h.requests % 20 = 7
      on conflict do nothing`,
      parameters,
    );
  });
}
