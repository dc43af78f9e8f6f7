/** Counters of the engine, exactly as it generated; `/metrics` prints them. */
export interface Metrics {
  promptTokens: number;
  cachedPromptTokens: number;
  generationTokens: number;
  prefixQueries: number;
  prefixHits: number;
  finished: Record<'stop' | 'length' | 'abort' | 'error' | 'repetition', number>;
  /** Requests ended by id or by their client's leaving; vLLM does not count those as finished. */
  abortedRequests: number;
  firstTokenSeconds: Histogram;
  requestSeconds: Histogram;
  requestPromptTokens: Histogram;
  requestGenerationTokens: Histogram;
}

interface Histogram {
  bounds: readonly number[];
  counts: number[];
  sum: number;
  count: number;
}

const SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
const TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000];

function histogram(bounds: readonly number[]): Histogram {
  return { bounds, counts: bounds.map(() => 0), sum: 0, count: 0 };
}

/** Adds one observation. */
export function observe(target: Histogram, value: number): void {
  target.sum += value;
  target.count += 1;
  const index = target.bounds.findIndex((bound) => value <= bound);
  if (index >= 0) target.counts[index] = (target.counts[index] ?? 0) + 1;
}

export function createMetrics(): Metrics {
  return {
    promptTokens: 0,
    cachedPromptTokens: 0,
    generationTokens: 0,
    prefixQueries: 0,
    prefixHits: 0,
    finished: { stop: 0, length: 0, abort: 0, error: 0, repetition: 0 },
    abortedRequests: 0,
    firstTokenSeconds: histogram(SECONDS),
    requestSeconds: histogram(SECONDS),
    requestPromptTokens: histogram(TOKENS),
    requestGenerationTokens: histogram(TOKENS),
  };
}

/** Python prints every sample as a float. */
function float(value: number): string {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

interface Gauges {
  running: number;
  waiting: number;
  cacheTokens: number;
  sleeping: boolean;
  modelName: string;
  blockSize: number;
}

/** As the log of the start names it. */
const CACHE_TOKENS = 1_048_576;
const startedSeconds = Math.round(performance.timeOrigin) / 1000;

/** The Prometheus text of `/metrics`, with vLLM's names, labels and their order. */
export function renderMetrics(metrics: Metrics, gauges: Gauges): string {
  const model = `model_name="${gauges.modelName.replace(/["\\\n]/g, '_')}"`;
  const base = `engine="0",${model}`;
  const lines: string[] = [];
  const family = (name: string, type: string, samples: readonly (readonly [labels: string, value: number])[]): void => {
    lines.push(`# TYPE vllm:${name} ${type}`);
    for (const [labels, value] of samples) lines.push(`vllm:${name}{${labels}} ${float(value)}`);
  };
  const single = (name: string, type: string, value: number): void => family(name, type, [[base, value]]);
  const spread = (name: string, data: Histogram): void => {
    lines.push(`# TYPE vllm:${name} histogram`);
    let below = 0;
    data.bounds.forEach((bound, index) => {
      below += data.counts[index] ?? 0;
      lines.push(`vllm:${name}_bucket{engine="0",le="${float(bound)}",${model}} ${float(below)}`);
    });
    lines.push(`vllm:${name}_bucket{engine="0",le="+Inf",${model}} ${float(data.count)}`);
    lines.push(`vllm:${name}_count{${base}} ${float(data.count)}`, `vllm:${name}_sum{${base}} ${float(data.sum)}`);
  };
  single('num_requests_running', 'gauge', gauges.running);
  single('num_requests_waiting', 'gauge', gauges.waiting);
  family('num_requests_waiting_by_reason', 'gauge', [
    [`${base},reason="capacity"`, gauges.waiting],
    [`${base},reason="deferred"`, 0],
  ]);
  family('engine_sleep_state', 'gauge', [
    [`${base},sleep_state="awake"`, gauges.sleeping ? 0 : 1],
    [`${base},sleep_state="weights_offloaded"`, gauges.sleeping ? 1 : 0],
    [`${base},sleep_state="discard_all"`, 0],
  ]);
  single('kv_cache_usage_perc', 'gauge', gauges.cacheTokens / CACHE_TOKENS);
  single('prefix_cache_queries_total', 'counter', metrics.prefixQueries);
  single('prefix_cache_hits_total', 'counter', metrics.prefixHits);
  single('num_preemptions_total', 'counter', 0);
  single('prompt_tokens_total', 'counter', metrics.promptTokens);
  family('prompt_tokens_by_source_total', 'counter', [
    [`${base},source="local_compute"`, metrics.promptTokens - metrics.cachedPromptTokens],
    [`${base},source="local_cache_hit"`, metrics.cachedPromptTokens],
    [`${base},source="external_kv_transfer"`, 0],
  ]);
  single('prompt_tokens_cached_total', 'counter', metrics.cachedPromptTokens);
  single('generation_tokens_total', 'counter', metrics.generationTokens);
  family(
    'request_success_total',
    'counter',
    Object.entries(metrics.finished).map(
      ([reason, n]) => [`engine="0",finished_reason="${reason}",${model}`, n] as const,
    ),
  );
  spread('request_prompt_tokens', metrics.requestPromptTokens);
  spread('request_generation_tokens', metrics.requestGenerationTokens);
  spread('time_to_first_token_seconds', metrics.firstTokenSeconds);
  spread('e2e_request_latency_seconds', metrics.requestSeconds);
  family('cache_config_info', 'gauge', [
    [`block_size="${gauges.blockSize}",enable_prefix_caching="True",engine="0"`, 1],
  ]);
  lines.push('# TYPE process_start_time_seconds gauge', `process_start_time_seconds ${startedSeconds}`);
  lines.push(
    '# TYPE standin:aborted_requests_total counter',
    `standin:aborted_requests_total{${base}} ${float(metrics.abortedRequests)}`,
  );
  return `${lines.join('\n')}\n`;
}
