import type { Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine } from './engine-http.ts';

/** Requests that an engine runs, and requests that wait inside the engine. */
export interface EngineLoad {
  readonly running: number;
  readonly waiting: number;
}

/** `none` if an engine does not report its load, `unknown` if the engine did not answer. */
export type LoadReport = EngineLoad | 'none' | 'unknown';

const answerTimeoutMs = 2000;

/** Counts since an engine's process began, from vLLM's counters of these names. */
export interface EngineCounters {
  /** Counts the prompt once per choice, when the choice's first token is made. */
  readonly promptTokens: number;
  readonly generationTokens: number;
  /** Finished requests, counted once per choice. */
  readonly requests: number;
  /** Start of the engine's process, in seconds since the Unix epoch as the engine writes them; null if not reported. */
  readonly processStartedAt: string | null;
}

/** One reading of an engine's metrics. */
export interface EngineReading {
  readonly load: LoadReport;
  /** null if the engine has no such counters, or did not answer. */
  readonly counters: EngineCounters | null;
  /** Changes whenever the engine makes progress, also in the middle of a long prompt; null as for `counters`. */
  readonly progress: string | null;
  /** Share of the cache of keys and values that is in use, of the fullest engine core; null as for `counters`. */
  readonly kvCacheUse: number | null;
}

const nothingRead = { counters: null, progress: null, kvCacheUse: null };

/** Reads an engine's GET /metrics (Prometheus text) once, over its own connection. */
export async function readEngine(replica: Replica): Promise<EngineReading> {
  const answer = await askEngine(replica, { method: 'GET', path: '/metrics', timeoutMs: answerTimeoutMs });
  if (typeof answer === 'string') return { load: 'unknown', ...nothingRead };
  if (answer.status !== 200) return { load: 'none', ...nothingRead };
  const counters = parseCounters(answer.text);
  const used = [...answer.text.matchAll(cacheUse)].map(([, value]) => value);
  return {
    load: parseLoad(answer.text),
    counters,
    progress: counters && parseProgress(counters, used),
    kvCacheUse: used.length === 0 ? null : Math.max(...used.map(Number)),
  };
}

export async function readLoad(replica: Replica): Promise<LoadReport> {
  return (await readEngine(replica)).load;
}

const counters = /^vllm:(prompt_tokens|generation_tokens|request_success)_total(?:\{[^}]*\})? ([0-9.eE+]+)$/gm;
const processStart = /^process_start_time_seconds ([0-9.eE+]+)$/m;

/**
 * Sums the counters over the engine cores, and over the finish reasons of requests: each has its own line.
 * @returns null for an engine without such counters
 */
export function parseCounters(text: string): EngineCounters | null {
  const sums = { prompt_tokens: 0, generation_tokens: 0, request_success: 0 };
  const seen = new Set<string>();
  for (const [, name, value] of text.matchAll(counters)) {
    sums[name as keyof typeof sums] += Number(value);
    seen.add(name ?? '');
  }
  if (!seen.has('prompt_tokens') || !seen.has('generation_tokens')) return null;
  return {
    promptTokens: sums.prompt_tokens,
    generationTokens: sums.generation_tokens,
    requests: sums.request_success,
    processStartedAt: processStart.exec(text)?.[1] ?? null,
  };
}

const cacheUse = /^vllm:kv_cache_usage_perc(?:\{[^}]*\})? ([0-9.eE+-]+)$/gm;

/**
 * Combines tokens and the use of the cache of keys and values. vLLM counts a prompt once it is read completely, and
 * until then only the use of the cache grows, with each piece of the prompt. The gauge of running requests does not
 * show whether an engine works: a frozen engine keeps its last value.
 */
function parseProgress(
  { promptTokens, generationTokens }: EngineCounters,
  used: readonly (string | undefined)[],
): string {
  return [promptTokens, generationTokens, ...used].join(' ');
}

const gauges = /^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? ([0-9.eE+]+)$/gm;

/** @returns `none` for an engine without such gauges */
export function parseLoad(text: string): LoadReport {
  const sums = { running: 0, waiting: 0 };
  let seen = false;
  for (const [, name, value] of text.matchAll(gauges)) {
    sums[name === 'running' ? 'running' : 'waiting'] += Number(value);
    seen = true;
  }
  return seen ? sums : 'none';
}

/** Returns the summed load of an engine's replicas. */
export function sumLoads(reports: readonly LoadReport[]): LoadReport {
  const loads = reports.filter((report) => typeof report === 'object');
  if (loads.length === 0)
    return reports.length > 0 && reports.every((report) => report === 'none') ? 'none' : 'unknown';
  return loads.reduce((sum, { running, waiting }) => ({
    running: sum.running + running,
    waiting: sum.waiting + waiting,
  }));
}
