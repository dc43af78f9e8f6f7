import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';

/**
 * `canary` and `probe`: sent by the gateway to check a replica. `retry`: an attempt that another replica repeated.
 * `undelivered`: tokens of an answer that could not be delivered, and is not billed.
 */
export type EngineRequestKind = 'canary' | 'probe' | 'retry' | 'undelivered';

/** A request that an engine may have counted and that is in no organization's usage. */
export interface EngineRequest {
  readonly kind: EngineRequestKind;
  /** Catalog id. */
  readonly model: string;
  readonly replicaId: string;
  /** Milliseconds since the Unix epoch. */
  readonly startedMs: number;
  /** Counted as the engine does: the prompt once per choice. */
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** True if the engine did not report its final count. */
  readonly uncounted: boolean;
  /** The most that the engine may have counted for an uncounted request; null if there is no bound. */
  readonly uncountedMax: TokensMax | null;
}

export interface TokensMax {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Counts requests of these kinds in memory, and writes them as sums per replica and hour. */
export interface EngineRequests {
  note(request: EngineRequest): void;
  /** Never rejects: sums that cannot be written are kept for the next flush. */
  flush(): Promise<void>;
}

interface Sum extends Pick<EngineRequest, 'kind' | 'model' | 'replicaId'> {
  readonly hourMs: number;
  requests: number;
  uncounted: number;
  uncountedMax: TokensMax | null;
  promptTokens: number;
  completionTokens: number;
  lastMs: number;
}

const hourMs = 3_600_000;
/** Maximum number of sums in memory. More occur only in a long outage of Postgres, and are dropped. */
const heldMax = 100_000;

export interface EngineRequestsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

export function createEngineRequests({ db, clock, log }: EngineRequestsOptions): EngineRequests {
  let held = new Map<string, Sum>();
  let flushing: Promise<void> | null = null;

  function add(sum: Sum): void {
    const key = `${sum.hourMs} ${sum.kind} ${sum.replicaId} ${sum.model}`;
    const found = held.get(key);
    if (found === undefined) {
      if (held.size < heldMax) held.set(key, sum);
      return;
    }
    found.requests += sum.requests;
    found.uncounted += sum.uncounted;
    found.uncountedMax = addMax(found.uncountedMax, sum.uncountedMax);
    found.promptTokens += sum.promptTokens;
    found.completionTokens += sum.completionTokens;
    found.lastMs = Math.max(found.lastMs, sum.lastMs);
  }

  async function write(): Promise<void> {
    if (held.size === 0) return;
    const taken = held;
    held = new Map();
    try {
      await db.sql.unsafe(insertText, [JSON.stringify([...taken.values()].map(toRow))]);
    } catch (error) {
      log.warn(
        { err: error },
        "token counts of Headgate's own requests to engines, such as canaries, could not be recorded for reconciliation; retrying",
      );
      for (const sum of taken.values()) add(sum);
    }
  }

  return {
    note({ startedMs, uncounted, uncountedMax, ...request }) {
      const hour = startedMs - (startedMs % hourMs);
      const unknown = uncounted ? { uncounted: 1, uncountedMax } : { uncounted: 0, uncountedMax: noTokens };
      add({ ...request, ...unknown, hourMs: hour, requests: 1, lastMs: clock.now() });
    },
    async flush() {
      while (flushing !== null) await flushing;
      flushing = write().finally(() => {
        flushing = null;
      });
      await flushing;
    },
  };
}

const noTokens: TokensMax = { promptTokens: 0, completionTokens: 0 };

function addMax(a: TokensMax | null, b: TokensMax | null): TokensMax | null {
  if (a === null || b === null) return null;
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
  };
}

function toRow(sum: Sum): Record<string, unknown> {
  return {
    model: sum.model,
    replica: sum.replicaId,
    hour: new Date(sum.hourMs).toISOString(),
    kind: sum.kind,
    requests: sum.requests,
    uncounted: sum.uncounted,
    uncounted_prompt_tokens: sum.uncountedMax?.promptTokens ?? null,
    uncounted_completion_tokens: sum.uncountedMax?.completionTokens ?? null,
    prompt_tokens: sum.promptTokens,
    completion_tokens: sum.completionTokens,
    last_at: new Date(sum.lastMs).toISOString(),
  };
}

const counts = [
  'requests',
  'uncounted',
  'uncounted_prompt_tokens',
  'uncounted_completion_tokens',
  'prompt_tokens',
  'completion_tokens',
];

const insertText = `
  insert into engine_requests as e (model, replica, hour, kind, ${counts.join(', ')}, last_at)
  select model, replica, hour, kind, ${counts.join(', ')}, last_at
  from json_to_recordset($1::text::json) as t(model text, replica text, hour timestamptz, kind text,
    ${counts.map((name) => `${name} bigint`).join(', ')}, last_at timestamptz)
  order by hour, model, replica, kind
  on conflict (hour, model, replica, kind) do update set
    ${counts.map((name) => `${name} = e.${name} + excluded.${name}`).join(', ')},
    last_at = greatest(e.last_at, excluded.last_at)`;
