import type { Db } from '#base/database/database.ts';
import type { EngineCounters } from '#core/fleet/serving/serving.ts';

/** A run as kept in memory while it lasts. Times are milliseconds since the Unix epoch. */
export interface RunRow {
  readonly id: string;
  readonly model: string;
  readonly replicaId: string;
  readonly driver: string;
  readonly host: string;
  readonly gpuIds: readonly string[];
  /** Part of its card that each GPU is, in 28ths. */
  readonly gpuShare: number;
  readonly specHash: string;
  readonly image: string | null;
  /** For a replica that was found running, the time of the first reading of its counters. */
  startedMs: number;
  /** When the run got its GPUs; null: at its start. */
  heldMs: number | null;
  readyMs: number | null;
  endedMs: number | null;
  ended: 'clean' | 'unclean' | null;
  endReason: string | null;
  exitCode: number | null;
  first: EngineCounters | null;
  last: EngineCounters | null;
  scrapedMs: number | null;
}

/** The counters of a run at one moment of an hour. */
export interface HourRow {
  readonly runId: string;
  readonly hourMs: number;
  readonly counters: EngineCounters;
  readonly scrapedMs: number;
}

interface StoredRun {
  readonly id: string;
  readonly model: string;
  readonly replica: string;
  readonly driver: string;
  readonly host: string;
  readonly gpus: readonly string[];
  readonly gpu_share: number;
  readonly spec_hash: string;
  readonly image: string | null;
  readonly started_ms: string;
  readonly held_ms: string | null;
  readonly ready_ms: string | null;
  readonly prompt_tokens_first: string | null;
  readonly generation_tokens_first: string | null;
  readonly requests_first: string | null;
  readonly prompt_tokens_last: string | null;
  readonly generation_tokens_last: string | null;
  readonly requests_last: string | null;
  readonly scraped_ms: string | null;
  readonly process_started_at: string | null;
}

const epochMs = (column: string): string => `(extract(epoch from ${column}) * 1000)::bigint::text`;

/** Reads the runs of a scope without a recorded end. */
export async function readOpenRuns({ sql }: Db, scope: string): Promise<readonly RunRow[]> {
  const rows = await sql<StoredRun[]>`
    select id::text, model, replica, driver, host, gpus, gpu_share, spec_hash, image,
      ${sql.unsafe(epochMs('started_at'))} as started_ms, ${sql.unsafe(epochMs('held_at'))} as held_ms,
      ${sql.unsafe(epochMs('ready_at'))} as ready_ms,
      prompt_tokens_first::text, generation_tokens_first::text, requests_first::text,
      prompt_tokens_last::text, generation_tokens_last::text, requests_last::text,
      ${sql.unsafe(epochMs('scraped_at'))} as scraped_ms, process_started_at
    from replica_runs where scope = ${scope} and ended_at is null`;
  return rows.map((row) => ({
    id: row.id,
    model: row.model,
    replicaId: row.replica,
    driver: row.driver,
    host: row.host,
    gpuIds: row.gpus,
    gpuShare: row.gpu_share,
    specHash: row.spec_hash,
    image: row.image,
    startedMs: Number(row.started_ms),
    heldMs: row.held_ms === null ? null : Number(row.held_ms),
    readyMs: row.ready_ms === null ? null : Number(row.ready_ms),
    endedMs: null,
    ended: null,
    endReason: null,
    exitCode: null,
    first: countersOf(row, 'first'),
    last: countersOf(row, 'last'),
    scrapedMs: row.scraped_ms === null ? null : Number(row.scraped_ms),
  }));
}

function countersOf(row: StoredRun, which: 'first' | 'last'): EngineCounters | null {
  const promptTokens = row[`prompt_tokens_${which}`];
  if (promptTokens === null) return null;
  return {
    promptTokens: Number(promptTokens),
    generationTokens: Number(row[`generation_tokens_${which}`]),
    requests: Number(row[`requests_${which}`]),
    processStartedAt: row.process_started_at,
  };
}

const momentOf = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

function toRow(run: RunRow): Record<string, unknown> {
  return {
    id: run.id,
    model: run.model,
    replica: run.replicaId,
    driver: run.driver,
    host: run.host,
    gpus: run.gpuIds,
    gpu_share: run.gpuShare,
    spec_hash: run.specHash,
    image: run.image,
    started_at: momentOf(run.startedMs),
    held_at: momentOf(run.heldMs),
    ready_at: momentOf(run.readyMs),
    ended_at: momentOf(run.endedMs),
    ended: run.ended,
    end_reason: run.endReason,
    exit_code: run.exitCode,
    prompt_tokens_first: run.first?.promptTokens ?? null,
    generation_tokens_first: run.first?.generationTokens ?? null,
    requests_first: run.first?.requests ?? null,
    prompt_tokens_last: run.last?.promptTokens ?? null,
    generation_tokens_last: run.last?.generationTokens ?? null,
    requests_last: run.last?.requests ?? null,
    scraped_at: momentOf(run.scrapedMs),
    process_started_at: run.last?.processStartedAt ?? null,
  };
}

/** Writes runs and hours in their current state, all or none. Repeating the call changes nothing. */
export async function writeRuns(
  { sql }: Db,
  scope: string,
  { runs, hours }: { readonly runs: readonly RunRow[]; readonly hours: readonly HourRow[] },
): Promise<void> {
  const hourRows = hours.map(({ runId, hourMs, counters, scrapedMs }) => ({
    run_id: runId,
    hour: momentOf(hourMs),
    prompt_tokens: counters.promptTokens,
    generation_tokens: counters.generationTokens,
    requests: counters.requests,
    scraped_at: momentOf(scrapedMs),
  }));
  await sql.unsafe(writeText, [scope, JSON.stringify(runs.map(toRow)), JSON.stringify(hourRows)]);
}

const changing = [
  'started_at',
  'held_at',
  'ready_at',
  'ended_at',
  'ended',
  'end_reason',
  'exit_code',
  'prompt_tokens_first',
  'generation_tokens_first',
  'requests_first',
  'prompt_tokens_last',
  'generation_tokens_last',
  'requests_last',
  'scraped_at',
  'process_started_at',
];
const columns = ['id', 'model', 'replica', 'driver', 'host', 'gpus', 'gpu_share', 'spec_hash', 'image', ...changing];

const writeText = `
  with hours as (
    insert into replica_hours as h (run_id, hour, prompt_tokens, generation_tokens, requests, scraped_at)
    select run_id, hour, prompt_tokens, generation_tokens, requests, scraped_at
    from json_to_recordset($3::text::json) as t(run_id uuid, hour timestamptz, prompt_tokens bigint,
      generation_tokens bigint, requests bigint, scraped_at timestamptz)
    on conflict (run_id, hour) do update set prompt_tokens = excluded.prompt_tokens,
      generation_tokens = excluded.generation_tokens, requests = excluded.requests, scraped_at = excluded.scraped_at
      where h.scraped_at <= excluded.scraped_at
  )
  insert into replica_runs as r (scope, ${columns.join(', ')})
  select $1, ${columns.join(', ')}
  from json_to_recordset($2::text::json) as t(id uuid, model text, replica text, driver text, host text, gpus jsonb, gpu_share smallint,
    spec_hash text, image text, started_at timestamptz, held_at timestamptz, ready_at timestamptz, ended_at timestamptz, ended text,
    end_reason text, exit_code integer, prompt_tokens_first bigint, generation_tokens_first bigint,
    requests_first bigint, prompt_tokens_last bigint, generation_tokens_last bigint, requests_last bigint,
    scraped_at timestamptz, process_started_at text)
  on conflict (id) do update set ${changing.map((name) => `${name} = excluded.${name}`).join(', ')}`;
