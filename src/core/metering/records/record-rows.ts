import postgres from 'postgres';
import { uuidTimeMs } from '#base/id.ts';
import { bucketOf, packFacts } from '#core/metering/tables/tables.ts';
import { claimsText } from '#core/stored-requests/stored-requests.ts';
import { discardedText } from './quarantine.ts';
import { repeatedReason, type UsageRecord } from './record.ts';

const hourMs = 3_600_000;
/** Maximum of choices, which is stored as smallint. */
const choicesMax = 32_767;

export interface WriteMoment {
  /** Time on the monotonic clock. */
  readonly nowMs: number;
  /** Least time of a commit, in milliseconds. */
  readonly commitMs: number;
}

/** A batch in the form that `recordsText` reads. */
export interface RecordRows {
  readonly rows: readonly Record<string, unknown>[];
  /** Values that rows refer to by their positions in these lists, counted from 1. */
  readonly ids: readonly string[];
  readonly names: readonly string[];
}

/** Returns the rows of a batch, with each id and each name once. */
export function toRows(records: readonly UsageRecord[], moment: WriteMoment): RecordRows {
  const ids = new Places();
  const names = new Places();
  const rows = records.map((record) => toRow(record, { ids, names }, moment));
  return { rows, ids: ids.values(), names: names.values() };
}

class Places {
  readonly #places = new Map<string, number>();

  of(value: string): number {
    const known = this.#places.get(value);
    if (known !== undefined) return known;
    const place = this.#places.size + 1;
    this.#places.set(value, place);
    return place;
  }

  values(): readonly string[] {
    return [...this.#places.keys()];
  }
}

/**
 * Returns a row as `json_to_recordset` reads it, which takes what is undefined, and so absent, for null. Amounts go as
 * text, since a JSON number would lose their digits.
 */
function toRow(
  record: UsageRecord,
  { ids, names }: { readonly ids: Places; readonly names: Places },
  { nowMs, commitMs }: WriteMoment,
): Record<string, unknown> {
  const timeMs = uuidTimeMs(record.id);
  const { facts, settledMs = nowMs, waitedMs } = record;
  return {
    id: record.id,
    organization_id: record.organizationId,
    organization_at: ids.of(record.organizationId),
    project_at: ids.of(record.projectId),
    key_at: ids.of(record.keyId),
    price_version_at: ids.of(record.priceVersionId),
    model_at: names.of(record.model),
    endpoint_at: names.of(record.endpoint),
    stream: record.stream,
    service_tier: record.serviceTier === 'default' ? undefined : record.serviceTier,
    status: record.status,
    outcome: record.outcome,
    failure: record.reason ?? undefined,
    cache_hit: record.cacheHit,
    input_tokens: record.usage.inputTokens,
    input_cached_tokens: record.usage.cachedTokens,
    output_tokens: record.usage.outputTokens,
    output_reasoning_tokens: record.usage.reasoningTokens,
    usage_source: record.usageSource,
    amount: record.costPicoUsd.toString(),
    beyond: record.writtenOffPicoUsd === 0n ? undefined : record.writtenOffPicoUsd.toString(),
    queued_ms: Math.round(record.queuedMs),
    first_byte_ms: record.firstByteMs === null ? undefined : Math.round(record.firstByteMs),
    total_ms: Math.round(record.totalMs),
    client_request_id: record.clientRequestId ?? undefined,
    known: facts === undefined ? undefined : packFacts(facts).toString('hex'),
    waited_ms: Math.round(waitedMs ?? nowMs - settledMs),
    commit_ms: waitedMs === undefined ? commitMs : undefined,
    choices: (record.choices ?? 1) === 1 ? undefined : Math.min(record.choices ?? 1, choicesMax),
    fallback_at: record.fallbackFor === undefined ? undefined : names.of(record.fallbackFor),
    prompt_tokens_max: record.promptTokensMax,
    completion_tokens_max: record.completionTokensMax,
    input_cache_write_tokens: record.usage.cacheWriteTokens === 0 ? undefined : record.usage.cacheWriteTokens,
    ...bucketsOf(record),
    hour: new Date(timeMs - (timeMs % hourMs)).toISOString(),
    end_user: record.namedUser,
    counted_user: record.endUser,
  };
}

/** Returns the buckets of the request's values; cached answers have none, and only streams have times of tokens. */
function bucketsOf({ stream, cacheHit, usage, queuedMs, firstByteMs, totalMs }: UsageRecord) {
  if (cacheHit) return {};
  const queued = { queued_bucket: bucketOf(queuedMs) };
  if (!stream || firstByteMs === null || usage.outputTokens === 0) return queued;
  const first = { ...queued, first_byte_bucket: bucketOf(firstByteMs) };
  const generatingMs = totalMs - firstByteMs;
  if (usage.outputTokens < 2 || generatingMs < 1) return first;
  return { ...first, speed_bucket: bucketOf(((usage.outputTokens - 1) * 1000) / generatingMs) };
}

const columns = `organization, project, key, price_version, model, endpoint, input_tokens, input_cached_tokens,
        output_tokens, output_reasoning_tokens, queued_ms, first_byte_ms, total_ms, outcome, usage_source, status, stream,
        cache_hit, id, cost, written_off, service_tier, reason, client_request_id, facts, choices, fallback_for,
        prompt_tokens_max, completion_tokens_max, input_cache_write_tokens, end_user`;
const sumColumns = `requests, completed, aborted, ended, failed, cache_hits, input_tokens, input_cached_tokens,
        output_tokens, output_reasoning_tokens, cost`;
const sums = `count(*), count(*) filter (where outcome = 'completed'), count(*) filter (where outcome = 'aborted'),
        count(*) filter (where outcome = 'ended'), count(*) filter (where outcome = 'failed'),
        count(*) filter (where cache_hit), sum(input_tokens), sum(input_cached_tokens), sum(output_tokens),
        sum(output_reasoning_tokens), sum(cost)`;
const added = sumColumns
  .split(',')
  .map((name) => `${name.trim()} = s.${name.trim()} + excluded.${name.trim()}`)
  .join(', ');

/**
 * SQL for the spending of end users, used only if a record counts one: a separate statement, so that no other batch
 * pays for it.
 */
const userParts = {
  column: ', counted_user text',
  table: `of_users as (
      insert into usage_users as s (organization, day, end_user, cost)
      select organization, (hour at time zone 'UTC')::date as day, counted_user, sum(cost)
      from fresh where counted_user is not null and cost > 0 and (select count(*) from latency) is not null
      group by organization, counted_user, day
      order by organization, counted_user, day
      on conflict (organization, end_user, day) do update set cost = s.cost + excluded.cost
      returning 1
    ), of_user_models as (
      insert into usage_user_models as s (organization, model, day, end_user, cost)
      select organization, model, (hour at time zone 'UTC')::date as day, counted_user, sum(cost)
      from fresh where counted_user is not null and cost > 0 and (select count(*) from of_users) is not null
      group by organization, counted_user, day, model
      order by organization, counted_user, day, model
      on conflict (organization, end_user, day, model) do update set cost = s.cost + excluded.cost
      returning 1
    ), `,
  last: 'of_user_models',
};
const withoutUsers: typeof userParts = { column: '', table: '', last: 'latency' };

/**
 * Looks up the codes of the lists of ids, $3, and names, $4. A missing code gives null, which `usage_requests` rejects.
 * A fallback may be null there, so a missing code of a fallback sets the row's model to null.
 */
const codesText = `codes as materialized (
      select array(select (select code from usage_ids where id = t.value::uuid)
          from json_array_elements_text($3::text::json) with ordinality as t(value, place) order by place) as ids,
        array(select (select code from usage_names where name = t.value)
          from json_array_elements_text($4::text::json) with ordinality as t(value, place) order by place) as names
    )`;
const codedColumns = `c.ids[t.organization_at] as organization, c.ids[t.project_at] as project, c.ids[t.key_at] as key,
        c.ids[t.price_version_at] as price_version, c.names[t.endpoint_at] as endpoint,
        c.names[t.fallback_at] as fallback_for,
        case when t.fallback_at is null or c.names[t.fallback_at] is not null then c.names[t.model_at] end as model`;

/** True if a row of the batch refers to something that has no code in the database; nothing was written. */
export function isUncoded(error: unknown): boolean {
  if (!(error instanceof postgres.PostgresError) || error.code !== '23502') return false;
  const { table_name: table = '', column_name: column = '' } = error;
  return table.startsWith('usage_requests') && codedNames.includes(column);
}

const codedNames = ['organization', 'project', 'key', 'price_version', 'model', 'endpoint'];

const textOf = (users: typeof userParts): string => `${codesText}, given as materialized (
      select t.*, ${codedColumns} from codes c cross join json_to_recordset($1::text::json) as t(
        id uuid, organization_id uuid, organization_at integer, project_at integer, key_at integer,
        price_version_at integer, model_at integer, endpoint_at integer, stream boolean, service_tier text, status smallint, outcome usage_outcome,
        failure text, cache_hit boolean, input_tokens integer, input_cached_tokens integer, output_tokens integer,
        output_reasoning_tokens integer, usage_source usage_source, amount numeric, beyond numeric,
        queued_ms integer, first_byte_ms integer, total_ms integer, client_request_id text, choices smallint, fallback_at integer, prompt_tokens_max bigint,
        completion_tokens_max bigint, input_cache_write_tokens integer, end_user text, known text, waited_ms double precision,
        commit_ms double precision, first_byte_bucket smallint, speed_bucket smallint, queued_bucket smallint,
        hour timestamptz${users.column})
    ), ${discardedText('given')}, ${claimsText('$2', 'discarded')}, incoming as materialized (
      select g.*, case when is_repeated then 0 else amount end as cost,
        case when is_repeated then nullif(coalesce(beyond, 0) + amount, 0) else beyond end as written_off,
        case when is_repeated then coalesce(failure, '${repeatedReason}') else failure end as reason,
        decode(known, 'hex') || substr(int4send(least(16777215, round(waited_ms + case when commit_ms is null then 0
          else greatest(commit_ms, extract(epoch from clock_timestamp() - statement_timestamp()) * 1000) end))::integer),
          2) as facts
      from given g cross join lateral (select id in (select id from repeated) as is_repeated) r
      where g.id not in (select id from discarded)
    ), inserted as (
      insert into usage_requests (group_id, ${columns})
      select g.group_id, ${columns}
      from incoming i left join charge_groups g on g.organization_id = i.organization_id and i.cost > 0
      order by id
      on conflict (organization, id) do nothing
      returning id
    ), fresh as materialized (
      select i.* from incoming i join inserted using (id)
    ), hourly as (
      insert into usage_hourly as s (organization, hour, key, project, model, ${sumColumns})
      select organization, hour, key, project, model, ${sums}
      from fresh group by organization, hour, key, project, model
      order by organization, hour, key, project, model
      on conflict (organization, hour, key, project, model) do update set ${added}
      returning 1
    ), daily as (
      insert into usage_daily as s (organization, day, key, project, model, ${sumColumns})
      select organization, (hour at time zone 'UTC')::date as day, key, project, model, ${sums}
      from fresh where (select count(*) from hourly) is not null
      group by organization, day, key, project, model
      order by organization, day, key, project, model
      on conflict (organization, day, key, project, model) do update set ${added}
      returning 1
    ), latency as (
      insert into usage_latency as s (organization, hour, key, project, model, measure, bucket, requests)
      select organization, hour, key, project, model, m.measure, m.bucket, count(*)
      from fresh cross join lateral (values (1, first_byte_bucket), (2, speed_bucket), (3, queued_bucket))
        as m(measure, bucket)
      where m.bucket is not null and (select count(*) from daily) is not null
      group by organization, hour, key, project, model, m.measure, m.bucket
      order by organization, hour, key, project, model, m.measure, m.bucket
      on conflict (organization, hour, key, project, model, measure, bucket)
        do update set requests = s.requests + excluded.requests
      returning 1
    ), ${users.table}booked as (
      select organization_id, id as request_id, cost as amount from fresh
      where cost > 0 and (select count(*) from ${users.last}) is not null
    )`;

const plainText = textOf(withoutUsers);
const usersText = textOf(userParts);

/**
 * SQL for a batch, $1, with its Idempotency-Keys, $2, and the values of its rows, $3 and $4, as `BookedParts`: the
 * records, and the sums and histograms of the new ones. Sums are updated in the order of their key, the same for
 * every writer. A request whose key belongs to another request is written off. A record that an operator discarded
 * changes nothing.
 */
export const recordsText = (records: readonly UsageRecord[]): string =>
  records.some(({ endUser }) => endUser !== undefined) ? usersText : plainText;
