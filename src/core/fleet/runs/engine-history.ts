import type { Db } from '#base/database/database.ts';
import type { EngineRequestKind, TokensMax } from './engine-requests.ts';

/** A run of a replica. Times are milliseconds since the Unix epoch. */
export interface ReplicaRun {
  readonly id: string;
  /** Catalog id. */
  readonly model: string;
  readonly replicaId: string;
  readonly host: string;
  readonly startedMs: number;
  /** null while the run lasts. */
  readonly endedMs: number | null;
  readonly ended: 'clean' | 'unclean' | null;
  readonly endReason: string | null;
  /** When the counters were last read; null for an engine without counters. */
  readonly scrapedMs: number | null;
  /** When the counters were last read before the span. */
  readonly readBeforeMs: number | null;
  /**
   * True if the engine had counted something before its first reading: the replica was found running, and not started
   * here.
   */
  readonly isFound: boolean;
}

/** The counts of an engine between the last readings of two hours. */
export interface CountedHour {
  readonly runId: string;
  readonly hourMs: number;
  readonly promptTokens: number;
  readonly generationTokens: number;
  readonly requests: number;
  /** When the counters were last read in this hour. */
  readonly scrapedMs: number;
}

/** Requests to an engine that are in no organization's usage, by the hour in which they began. */
export interface OwnRequests {
  readonly model: string;
  readonly hourMs: number;
  readonly kind: EngineRequestKind;
  readonly requests: number;
  readonly uncounted: number;
  /** The most that engines may have counted for the uncounted requests; null if there is no bound. */
  readonly uncountedMax: TokensMax | null;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** When the last of these requests ended. */
  readonly lastMs: number;
}

export interface EngineHistory {
  /** All runs that overlap the span, oldest first. */
  readonly runs: readonly ReplicaRun[];
  /** Hours of each run, in order. */
  readonly hours: readonly CountedHour[];
  readonly own: readonly OwnRequests[];
}

const epochMs = (column: string): string => `(extract(epoch from ${column}) * 1000)::bigint::text`;

interface RunRow {
  readonly id: string;
  readonly model: string;
  readonly replica: string;
  readonly host: string;
  readonly started_ms: string;
  readonly ended_ms: string | null;
  readonly ended: 'clean' | 'unclean' | null;
  readonly end_reason: string | null;
  readonly scraped_ms: string | null;
  readonly before_ms: string | null;
  readonly is_found: boolean;
}

const runsText = `
  select id::text, model, replica, host, ${epochMs('started_at')} as started_ms, ${epochMs('ended_at')} as ended_ms,
    ended, end_reason, ${epochMs('scraped_at')} as scraped_ms,
    (select ${epochMs('max(h.scraped_at)')} from replica_hours h where h.run_id = r.id and h.hour < $1::timestamptz)
      as before_ms, coalesce(prompt_tokens_first + generation_tokens_first, 0) > 0 as is_found
  from replica_runs r where (ended_at is null or ended_at >= $1::timestamptz) and started_at < $2::timestamptz
  order by started_at, id`;

interface HourRow {
  readonly run_id: string;
  readonly hour_ms: string;
  readonly prompt_tokens: string;
  readonly generation_tokens: string;
  readonly requests: string;
  readonly scraped_ms: string;
}

/** Subtracts the reading of the hour before; for the first hour, the counters with which the run began. */
const since = (name: string): string =>
  `(h.${name} - coalesce(lag(h.${name}) over w, r.${name}_first, h.${name}))::text`;

const hoursText = `
  select * from (
    select h.run_id::text, ${epochMs('h.hour')} as hour_ms, ${since('prompt_tokens')} as prompt_tokens,
      ${since('generation_tokens')} as generation_tokens, ${since('requests')} as requests,
      ${epochMs('h.scraped_at')} as scraped_ms
    from replica_runs r join replica_hours h on h.run_id = r.id
    where (r.ended_at is null or r.ended_at >= $1::timestamptz) and r.started_at < $2::timestamptz
      and h.hour < $2::timestamptz
    window w as (partition by h.run_id order by h.hour)
  ) as counted where hour_ms::bigint >= extract(epoch from $1::timestamptz) * 1000 order by run_id, hour_ms`;

interface OwnRow {
  readonly model: string;
  readonly hour_ms: string;
  readonly kind: EngineRequestKind;
  readonly requests: string;
  readonly uncounted: string;
  readonly uncounted_prompt: string | null;
  readonly uncounted_completion: string | null;
  readonly prompt_tokens: string;
  readonly completion_tokens: string;
  readonly last_ms: string;
}

/** null as soon as one of the requests has no bound. */
const uncountedMax = (kind: 'prompt' | 'completion'): string => `
    case when bool_or(uncounted > 0 and uncounted_${kind}_tokens is null) then null
      else coalesce(sum(uncounted_${kind}_tokens), 0) end::text as uncounted_${kind}`;

const ownText = `
  select model, ${epochMs('hour')} as hour_ms, kind, sum(requests)::text as requests,
    sum(uncounted)::text as uncounted, ${uncountedMax('prompt')}, ${uncountedMax('completion')}, sum(prompt_tokens)::text as prompt_tokens,
    sum(completion_tokens)::text as completion_tokens, ${epochMs('max(last_at)')} as last_ms
  from engine_requests where hour >= $1::timestamptz and hour < $2::timestamptz
  group by model, hour, kind order by hour, model, kind`;

/** Reads the history of engines between two full hours; `toMs` is exclusive. */
export async function readEngineHistory({ sql }: Db, fromMs: number, toMs: number): Promise<EngineHistory> {
  const span = [new Date(fromMs).toISOString(), new Date(toMs).toISOString()];
  const runs = await sql.unsafe<RunRow[]>(runsText, span);
  const hours = await sql.unsafe<HourRow[]>(hoursText, span);
  const own = await sql.unsafe<OwnRow[]>(ownText, span);
  return {
    runs: runs.map((row) => ({
      id: row.id,
      model: row.model,
      replicaId: row.replica,
      host: row.host,
      startedMs: Number(row.started_ms),
      endedMs: row.ended_ms === null ? null : Number(row.ended_ms),
      ended: row.ended,
      endReason: row.end_reason,
      scrapedMs: row.scraped_ms === null ? null : Number(row.scraped_ms),
      readBeforeMs: row.before_ms === null ? null : Number(row.before_ms),
      isFound: row.is_found,
    })),
    hours: hours.map((row) => ({
      runId: row.run_id,
      hourMs: Number(row.hour_ms),
      promptTokens: Number(row.prompt_tokens),
      generationTokens: Number(row.generation_tokens),
      requests: Number(row.requests),
      scrapedMs: Number(row.scraped_ms),
    })),
    own: own.map((row) => ({
      model: row.model,
      hourMs: Number(row.hour_ms),
      kind: row.kind,
      requests: Number(row.requests),
      uncounted: Number(row.uncounted),
      uncountedMax:
        row.uncounted_prompt === null || row.uncounted_completion === null
          ? null
          : { promptTokens: Number(row.uncounted_prompt), completionTokens: Number(row.uncounted_completion) },
      promptTokens: Number(row.prompt_tokens),
      completionTokens: Number(row.completion_tokens),
      lastMs: Number(row.last_ms),
    })),
  };
}
