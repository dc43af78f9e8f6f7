import type { ISql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import { holdPartitions, readFloorMs } from '#core/metering/tables/tables.ts';
import { ledgerUsageSql } from '#core/wallet/wallet.ts';
import {
  isUnsure,
  type SequencesMax,
  toUnsure,
  type Unsure,
  unsureColumns,
  type UnsureRow,
} from './unsure-sequences.ts';

/** Parameters for the hours of a span. */
export interface AskedOfHours {
  readonly edges: readonly Edge[];
  readonly most: SequencesMax;
}

/** Time between two full hours, in milliseconds since the Unix epoch; `toMs` is excluded. */
export interface HourSpan {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Time from which an engine of a model may have counted tokens that were not read by `toMs`. Milliseconds since the
 * Unix epoch.
 */
export interface Edge {
  /** Catalog id. */
  readonly model: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/** Usage of a model's requests that were admitted in an hour, from the database. Amounts are pico-dollars. */
export interface UsageHour extends Unsure {
  readonly model: string;
  readonly hourMs: number;
  readonly requests: number;
  readonly cacheHits: number;
  readonly inputTokens: number;
  /** Prompt tokens as an engine counts them: those of a prompt once for each choice. */
  readonly promptTokens: number;
  /**
   * Prompt tokens of incomplete answers that an engine may not have counted: those of their choices, and of an
   * estimate.
   */
  readonly promptTokensUnsure: number;
  readonly outputTokens: number;
  readonly costPicoUsd: bigint;
  /** The same values in the hour's sums; null if there are none. */
  readonly sums: HourSums | null;
  /** True if retention has deleted the records: then all values are from the sums. */
  readonly isBeforeRetention: boolean;
}

export interface HourSums {
  readonly requests: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costPicoUsd: bigint;
}

/** A ledger entry that differs from its records, or an entry without records, or records without an entry. */
export interface LedgerDifference {
  readonly organizationId: string;
  /** Id of the ledger entry; null if there is none. */
  readonly entryId: string | null;
  /** Id of the first request. */
  readonly requestId: string;
  readonly hourMs: number;
  /** Null if no record is left that names it. */
  readonly model: string | null;
  readonly ledgerPicoUsd: bigint;
  readonly recordsPicoUsd: bigint;
  readonly ledgerRequests: number;
  readonly recordsCount: number;
}

export interface EndedLater extends Unsure {
  readonly model: string;
  readonly hourMs: number;
}

/** Tokens of requests that were running at an edge. */
export interface EdgeTokens {
  readonly promptTokens: number;
  readonly outputTokens: number;
}

export interface UsageHours {
  /** Hours with usage. */
  readonly hours: readonly UsageHour[];
  /** Unsure requests by the hour in which they ended, if that is not the hour of their admission. */
  readonly endedLater: readonly EndedLater[];
  /** In the order of the requested edges. */
  readonly edges: readonly EdgeTokens[];
  readonly ledger: readonly LedgerDifference[];
}

const hourMs = 3_600_000;
/** Maximum duration of requests that are looked for in the hour of their end. */
const requestMsMax = 24 * hourMs;
/** Limits of each of the four statements, which have a separate connection. */
const limits = { lockTimeoutMs: null, statementTimeoutMs: 180_000, idleInTransactionTimeoutMs: 60_000 };
const differencesMax = 1000;
/** Maximum number of suspects: they include groups that reach beyond the span, which are no differences. */
const suspectsMax = 3 * differencesMax;

/**
 * Reads usage in one snapshot, each record a few times; memory is bounded by models, hours and edges. No index has the
 * order of ids only, so reading a part of a month takes as long as all of it.
 */
export async function readUsageHours(db: Db, span: HourSpan, asked: AskedOfHours): Promise<UsageHours> {
  const session = db.session(limits);
  try {
    return await session.begin('isolation level repeatable read read only', (tx) => readHoursIn(tx, span, asked));
  } finally {
    await session.end({ timeout: 5 });
  }
}

async function readHoursIn(tx: ISql, span: HourSpan, { edges, most }: AskedOfHours): Promise<UsageHours> {
  await tx.unsafe(`set local work_mem = '64MB'; set local jit = off`);
  await holdPartitions(tx);
  const floorMs = await readFloorMs(tx);
  const longer = { fromMs: span.fromMs - requestMsMax, toMs: span.toMs };
  return {
    hours: await readHours(tx, span, { floorMs, most }),
    endedLater: await readEndedLater(tx, longer, span, most),
    edges: await readEdges(tx, longer, edges),
    ledger: await readDifferences(tx, span, floorMs),
  };
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/** SQL for the milliseconds since the Unix epoch in the first 48 bits of an id. */
const timeOfId = `('x' || substr(replace(r.id::text, '-', ''), 1, 12))::bit(48)::bigint`;
const promptTokens = 'r.input_tokens::bigint * coalesce(r.choices, 1)';

interface HourRow extends UnsureRow {
  readonly model: string;
  readonly hour_ms: string;
  readonly requests: string;
  readonly cache_hits: string;
  readonly input_tokens: string;
  readonly prompt_tokens: string;
  readonly prompt_unsure: string;
  readonly output_tokens: string;
  readonly cost: string;
  readonly sum_requests: string | null;
  readonly sum_cache_hits: string | null;
  readonly sum_input: string | null;
  readonly sum_output: string | null;
  readonly sum_cost: string | null;
}

/** SQL for records from id $1 to $2 beside the sums from hour $3 to $4. */
const hoursText = (most: SequencesMax): string => `
  select (select name from usage_names where code = coalesce(x.model, s.model)) as model,
    (coalesce(x.hour, (extract(epoch from s.hour) / 3600)::bigint) * 3600000)::text as hour_ms,
    coalesce(x.requests, 0)::text as requests, coalesce(x.cache_hits, 0)::text as cache_hits,
    coalesce(x.input_tokens, 0)::text as input_tokens, coalesce(x.prompt_tokens, 0)::text as prompt_tokens,
    coalesce(x.prompt_unsure, 0)::text as prompt_unsure, coalesce(x.output_tokens, 0)::text as output_tokens,
    coalesce(x.cost, 0)::text as cost, coalesce(x.unsure, 0)::text as unsure,
    x.unsure_sequences::text, x.unsure_texts::text, x.unsure_prompt_tokens::text,
    x.unsure_completion_tokens::text, s.requests::text as sum_requests,
    s.cache_hits::text as sum_cache_hits, s.input::text as sum_input, s.output::text as sum_output,
    s.cost::text as sum_cost
  from (
    select r.model, ${timeOfId} / 3600000 as hour, count(*) as requests,
      count(*) filter (where r.cache_hit) as cache_hits, sum(r.input_tokens) as input_tokens,
      sum(${promptTokens}) as prompt_tokens,
      sum(${promptTokens} - case r.usage_source when 'counted' then 0 else r.input_tokens end)
        filter (where r.outcome <> 'completed') as prompt_unsure,
      sum(r.output_tokens) as output_tokens, sum(r.cost) as cost, count(*) filter (where ${isUnsure}) as unsure,
      ${unsureColumns(most)}
    from usage_requests r where r.id >= $1::uuid and r.id < $2::uuid group by 1, 2
  ) as x full join (
    select model, hour, sum(requests) as requests, sum(cache_hits) as cache_hits, sum(input_tokens) as input,
      sum(output_tokens) as output, sum(cost) as cost
    from usage_hourly where hour >= $3::timestamptz and hour < $4::timestamptz group by 1, 2
  ) as s on s.model = x.model and s.hour = to_timestamp(x.hour * 3600)`;

async function readHours(
  sql: ISql,
  { fromMs, toMs }: HourSpan,
  { floorMs, most }: { readonly floorMs: number; readonly most: SequencesMax },
): Promise<readonly UsageHour[]> {
  const parameters = [uuidLowerBound(fromMs), uuidLowerBound(toMs), momentOf(fromMs), momentOf(toMs)];
  return (await sql.unsafe<HourRow[]>(hoursText(most), parameters)).map((row) => toHour(row, floorMs));
}

function toHour(row: HourRow, floorMs: number): UsageHour {
  const sums: HourSums | null =
    row.sum_requests === null
      ? null
      : {
          requests: Number(row.sum_requests),
          inputTokens: Number(row.sum_input),
          outputTokens: Number(row.sum_output),
          costPicoUsd: BigInt(row.sum_cost ?? 0),
        };
  const hour = {
    model: row.model,
    hourMs: Number(row.hour_ms),
    requests: Number(row.requests),
    cacheHits: Number(row.cache_hits),
    inputTokens: Number(row.input_tokens),
    promptTokens: Number(row.prompt_tokens),
    promptTokensUnsure: Number(row.prompt_unsure),
    outputTokens: Number(row.output_tokens),
    costPicoUsd: BigInt(row.cost),
    ...toUnsure(row),
    sums,
    isBeforeRetention: false,
  };
  if (hour.hourMs >= floorMs || sums === null) return hour;
  const cacheHits = Number(row.sum_cache_hits);
  return { ...hour, ...sums, cacheHits, promptTokens: sums.inputTokens, isBeforeRetention: true };
}

const momentOf = (timeMs: number): string => new Date(timeMs).toISOString();

interface EdgeRow {
  readonly edge: number;
  readonly prompt_tokens: string;
  readonly output_tokens: string;
}

/**
 * SQL for tokens at edges. $3: by model and hour the earliest time after which the end of a request may matter; $4: the
 * edges. $3 is joined by equality, so that a hash join drops nearly all records before they are compared with every
 * edge.
 */
const edgesText = `
  with late as materialized (
    select r.model, ${timeOfId} as from_ms, ${timeOfId} + r.total_ms as to_ms, ${promptTokens} as prompt_tokens,
      r.output_tokens
    from usage_requests r join usage_names n on n.code = r.model
    join json_to_recordset($3::text::json) as l(model text, hour bigint, from_ms bigint)
      on l.model = n.name and l.hour = ${timeOfId} / 3600000
    where r.id >= $1::uuid and r.id < $2::uuid and ${timeOfId} + r.total_ms > l.from_ms
  )
  select e.edge, sum(r.prompt_tokens)::text as prompt_tokens, sum(r.output_tokens)::text as output_tokens
  from json_to_recordset($4::text::json) as e(edge integer, model text, from_ms bigint, to_ms bigint)
  join usage_names n on n.name = e.model
  join late r on r.model = n.code and r.from_ms < e.to_ms and r.to_ms > e.from_ms
  group by e.edge`;

async function readEdges(
  sql: ISql,
  { fromMs, toMs }: HourSpan,
  edges: readonly Edge[],
): Promise<readonly EdgeTokens[]> {
  const found = edges.map((): Mutable<EdgeTokens> => ({ promptTokens: 0, outputTokens: 0 }));
  const asked = edges.map((edge, index) => {
    return { edge: index, model: edge.model, from_ms: Math.floor(edge.fromMs), to_ms: edge.toMs };
  });
  const least: { model: string; hour: number; from_ms: number }[] = [];
  for (const [model, own] of Map.groupBy(asked, (edge) => edge.model)) {
    // Goes backwards from the last hour, so that each edge is visited once.
    const lastFirst = own.toSorted((a, b) => b.to_ms - a.to_ms);
    let from = Infinity;
    let next = 0;
    for (let hour = Math.ceil(toMs / hourMs) - 1; hour * hourMs >= fromMs; hour -= 1) {
      for (; next < lastFirst.length && (lastFirst[next]?.to_ms ?? 0) > hour * hourMs; next += 1) {
        from = Math.min(from, lastFirst[next]?.from_ms ?? Infinity);
      }
      if (from !== Infinity) least.push({ model, hour, from_ms: from });
    }
  }
  const bounds = [uuidLowerBound(fromMs), uuidLowerBound(toMs)];
  const rows = await sql.unsafe<EdgeRow[]>(edgesText, [...bounds, JSON.stringify(least), JSON.stringify(asked)]);
  for (const { edge, prompt_tokens: prompt, output_tokens: output } of rows) {
    const tokens = found[edge];
    if (tokens !== undefined) Object.assign(tokens, { promptTokens: Number(prompt), outputTokens: Number(output) });
  }
  return found;
}

const laterText = (most: SequencesMax): string => `
  select n.name as model, (((${timeOfId} + r.total_ms) / 3600000) * 3600000)::text as hour_ms, count(*)::text as unsure,
    ${unsureColumns(most)}
  from usage_requests r join usage_names n on n.code = r.model
  where r.id >= $1::uuid and r.id < $2::uuid and ${isUnsure}
    and (${timeOfId} + r.total_ms) / 3600000 > ${timeOfId} / 3600000
  group by 1, 2`;

type LaterRow = UnsureRow & Pick<HourRow, 'model' | 'hour_ms'>;

async function readEndedLater(sql: ISql, { fromMs, toMs }: HourSpan, span: HourSpan, most: SequencesMax) {
  const bounds = [uuidLowerBound(fromMs), uuidLowerBound(toMs)];
  const rows = await sql.unsafe<LaterRow[]>(laterText(most), bounds);
  return rows
    .map((row) => ({ model: row.model, hourMs: Number(row.hour_ms), ...toUnsure(row) }))
    .filter(({ hourMs: hour }) => hour >= span.fromMs && hour < span.toMs);
}

interface DifferenceRow {
  readonly organization_id: string;
  readonly entry_id: string | null;
  readonly request_id: string;
  readonly hour_ms: string;
  readonly model: string | null;
  readonly ledger: string;
  readonly records: string;
  readonly ledger_requests: string;
  readonly records_count: string;
}

const recordsOf = (where: string): string => `
  select r.organization, count(*) as requests, sum(r.cost) as amount, (array_agg(r.id order by r.id))[1] as first,
    case when min(r.model) = max(r.model) then min(r.model) end as model, r.group_id
  from usage_requests r where ${where} group by r.organization, r.group_id`;

/**
 * SQL for entries whose first request lies between ids $1 and $2 beside the sums of their records, and for records
 * between these ids without an entry; none from before id $3, whose records retention may have deleted. A group may
 * reach beyond the span, so differences inside it are read again for the whole group.
 */
const differencesText = `
  with ${ledgerUsageSql}, entries as (
    select e.*, n.code as organization from ledger_usage e left join usage_ids n on n.id = e.organization_id
  ), inside as (
    select r.organization, r.group_id, count(*) as requests, sum(r.cost) as amount from usage_requests r
    where r.id >= $1::uuid and r.id < $2::uuid and r.group_id is not null group by r.organization, r.group_id
  ), suspects as (
    select coalesce(e.group_id, i.group_id) as group_id, coalesce(e.organization, i.organization) as organization
    from (select * from entries where group_id is not null and request_id >= $1::uuid and request_id < $2::uuid) as e
    full join inside i on i.organization = e.organization and i.group_id = e.group_id
    where e.id is null or i.group_id is null or e.amount <> i.amount or e.requests <> i.requests
    order by e.request_id nulls first limit ${suspectsMax}
  ), groups as (
    select coalesce(e.organization_id, (select id from usage_ids where code = s.organization)) as organization_id,
      e.id as entry_id, coalesce(e.request_id, g.first) as request_id, g.model, coalesce(e.amount, 0) as ledger,
      coalesce(g.amount, 0) as records, coalesce(e.requests, 0) as ledger_requests,
      coalesce(g.requests, 0) as records_count
    from suspects s left join entries e on e.organization = s.organization and e.group_id = s.group_id
    left join lateral (${recordsOf('r.organization = s.organization and r.group_id = s.group_id')}) as g on true
  ), singles as (
    select coalesce(e.organization_id, (select id from usage_ids where code = r.organization)) as organization_id,
      e.id as entry_id, coalesce(e.request_id, r.id) as request_id, r.model, coalesce(e.amount, 0) as ledger,
      coalesce(r.cost, 0) as records, case when e.id is null then 0 else 1 end as ledger_requests,
      case when r.id is null then 0 else 1 end as records_count
    from (select * from entries where group_id is null and request_id >= $1::uuid and request_id < $2::uuid) as e
    full join (select * from usage_requests
      where id >= $1::uuid and id < $2::uuid and group_id is null and cost > 0) as r
      on r.organization = e.organization and r.id = e.request_id
  )
  select d.organization_id::text, d.entry_id::text, d.request_id::text,
    ((('x' || substr(replace(d.request_id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000) * 3600000)::text as hour_ms,
    (select name from usage_names where code = d.model) as model, d.ledger::text, d.records::text,
    d.ledger_requests::text, d.records_count::text
  from (select * from groups union all select * from singles) as d
  where (d.ledger <> d.records or d.ledger_requests <> d.records_count) and d.request_id >= $3::uuid
  order by d.request_id limit ${differencesMax}`;

async function readDifferences(
  sql: ISql,
  { fromMs, toMs }: HourSpan,
  floorMs: number,
): Promise<readonly LedgerDifference[]> {
  const bounds = [fromMs, toMs, floorMs].map(uuidLowerBound);
  const rows = await sql.unsafe<DifferenceRow[]>(differencesText, bounds);
  return rows.map((row) => ({
    organizationId: row.organization_id,
    entryId: row.entry_id,
    requestId: row.request_id,
    hourMs: Math.min(Math.max(Number(row.hour_ms), fromMs), toMs - hourMs),
    model: row.model,
    ledgerPicoUsd: BigInt(row.ledger),
    recordsPicoUsd: BigInt(row.records),
    ledgerRequests: Number(row.ledger_requests),
    recordsCount: Number(row.records_count),
  }));
}
