import type { Sql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { uuidLowerBound, uuidTimeMs } from '#base/id.ts';
import type { UsageRecord } from './record.ts';

const hourMs = 3_600_000;

/** A row as `json_to_recordset` reads it; amounts go as text, since a JSON number would lose their digits. */
function toRow(record: UsageRecord): Record<string, string | number | boolean | null> {
  const timeMs = uuidTimeMs(record.id);
  return {
    id: record.id,
    organization_id: record.organizationId,
    project_id: record.projectId,
    key_id: record.keyId,
    model: record.model,
    endpoint: record.endpoint,
    stream: record.stream,
    service_tier: record.serviceTier,
    status: record.status,
    outcome: record.outcome,
    reason: record.reason,
    cache_hit: record.cacheHit,
    input_tokens: record.usage.inputTokens,
    input_cached_tokens: record.usage.cachedTokens,
    output_tokens: record.usage.outputTokens,
    output_reasoning_tokens: record.usage.reasoningTokens,
    usage_source: record.usageSource,
    cost: record.costPicoUsd.toString(),
    written_off: record.writtenOffPicoUsd.toString(),
    price_version_id: record.priceVersionId,
    queued_ms: Math.round(record.queuedMs),
    first_byte_ms: record.firstByteMs === null ? null : Math.round(record.firstByteMs),
    total_ms: Math.round(record.totalMs),
    client_request_id: record.clientRequestId,
    hour: new Date(timeMs - (timeMs % hourMs)).toISOString(),
  };
}

/** A batch of records as the parameter of `recordsText`. */
export function recordsParameter(records: readonly UsageRecord[]): string {
  return JSON.stringify(records.map(toRow));
}

/**
 * A batch, $1, as parts of a WITH clause: the records, and in `booked` the hourly sums of those that are new. A record
 * that is there already counts nothing, so a batch may be repeated. Sums are taken in the order of their key, the same
 * for every writer.
 */
export const recordsText = `
    incoming as (
      select * from json_to_recordset($1::text::json) as t(
        id uuid, organization_id uuid, project_id uuid, key_id uuid, model text, endpoint text, stream boolean,
        service_tier text, status integer, outcome text, reason text, cache_hit boolean, input_tokens bigint, input_cached_tokens bigint,
        output_tokens bigint, output_reasoning_tokens bigint, usage_source text, cost numeric, written_off numeric,
        price_version_id uuid, queued_ms integer, first_byte_ms integer, total_ms integer, client_request_id text,
        hour timestamptz)
    ), inserted as (
      insert into usage_records (id, organization_id, project_id, key_id, model, endpoint, stream,
        service_tier, status, outcome, reason, cache_hit, input_tokens, input_cached_tokens, output_tokens,
        output_reasoning_tokens, usage_source, cost, written_off, currency, price_version_id, queued_ms, first_byte_ms, total_ms, client_request_id)
      select id, organization_id, project_id, key_id, model, endpoint, stream,
        service_tier, status, outcome, reason, cache_hit, input_tokens, input_cached_tokens, output_tokens,
        output_reasoning_tokens, usage_source, cost, written_off, 'USD', price_version_id, queued_ms, first_byte_ms, total_ms, client_request_id
      from incoming order by id
      on conflict (id) do nothing
      returning id
    ), booked as (
      insert into usage_hourly as h (organization_id, hour, key_id, project_id, model, requests, completed, aborted,
        ended, failed, cache_hits, input_tokens, input_cached_tokens, output_tokens, output_reasoning_tokens, cost)
      select organization_id, hour, key_id, project_id, model, count(*),
        count(*) filter (where outcome = 'completed'), count(*) filter (where outcome = 'aborted'),
        count(*) filter (where outcome = 'ended'), count(*) filter (where outcome = 'failed'),
        count(*) filter (where cache_hit), sum(input_tokens), sum(input_cached_tokens), sum(output_tokens),
        sum(output_reasoning_tokens), sum(cost)
      from incoming join inserted using (id)
      group by organization_id, hour, key_id, project_id, model
      order by organization_id, hour, key_id, project_id, model
      on conflict (organization_id, hour, key_id, project_id, model) do update set
        requests = h.requests + excluded.requests, completed = h.completed + excluded.completed,
        aborted = h.aborted + excluded.aborted, ended = h.ended + excluded.ended, failed = h.failed + excluded.failed,
        cache_hits = h.cache_hits + excluded.cache_hits, input_tokens = h.input_tokens + excluded.input_tokens,
        input_cached_tokens = h.input_cached_tokens + excluded.input_cached_tokens,
        output_tokens = h.output_tokens + excluded.output_tokens,
        output_reasoning_tokens = h.output_reasoning_tokens + excluded.output_reasoning_tokens,
        cost = h.cost + excluded.cost
      returning 1
    )`;

export interface RefusalKey {
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  /** Catalog id, or '' where the refusal came before a model was known. */
  readonly model: string;
  readonly code: string;
}

export interface RefusalCount extends RefusalKey {
  /** Milliseconds since the Unix epoch at which the minute begins. */
  readonly minuteMs: number;
  readonly count: number;
}

/** One statement that adds a batch of refusal counts. */
export function refusalStatement(sql: Sql, counts: readonly RefusalCount[]) {
  const rows = counts.map((entry) => ({
    organization_id: entry.organizationId,
    minute: new Date(entry.minuteMs).toISOString(),
    key_id: entry.keyId,
    project_id: entry.projectId,
    model: entry.model,
    code: entry.code,
    count: entry.count,
  }));
  return sql`
    insert into usage_refusals as r (organization_id, minute, key_id, project_id, model, code, count)
    select organization_id, minute, key_id, project_id, model, code, count
    from json_to_recordset(${JSON.stringify(rows)}::text::json) as t(
      organization_id uuid, minute timestamptz, key_id uuid, project_id uuid, model text, code text, count bigint)
    order by organization_id, minute, key_id, project_id, model, code
    on conflict (organization_id, minute, key_id, project_id, model, code) do update set count = r.count + excluded.count`;
}

/** First moment of the UTC month that is `months` after the one of `timeMs`. */
function monthStartMs(timeMs: number, months: number): number {
  const date = new Date(timeMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months, 1);
}

/** Makes the partitions of this month and the two that follow, where they are missing. */
export async function ensurePartitions(db: Db, clock: Clock): Promise<void> {
  for (const months of [0, 1, 2]) {
    const startMs = monthStartMs(clock.now(), months);
    const name = `usage_records_${new Date(startMs).toISOString().slice(0, 7).replace('-', '_')}`;
    const from = uuidLowerBound(startMs);
    const to = uuidLowerBound(monthStartMs(clock.now(), months + 1));
    await db.sql.begin(async (sql) => {
      await sql`select pg_advisory_xact_lock(hashtext('headgate usage partitions'))`;
      const [found] = await sql`select to_regclass(${name}) is not null as there`;
      if (found?.['there'] === true) return;
      await sql.unsafe(`create table ${name} partition of usage_records for values from ('${from}') to ('${to}')`);
    });
  }
}
