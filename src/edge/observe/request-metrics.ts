import { errorCodes } from '#base/errors.ts';
import type { CounterSeries, Family, HistogramSeries, Metrics } from '#base/metrics/metrics.ts';
import type { RequestSummary } from '#edge/inference/inference.ts';

/**
 * Metrics of requests. Labels are routes, models of the catalog and codes of the error table. Nothing grows with the
 * number of users, and model names that clients invent are no labels.
 */
export interface RequestMetrics {
  ended(summary: RequestSummary): void;
  waiting(modelId: string, change: 1 | -1): void;
  /** Counts a request of another route, by the pattern that it matched. */
  otherEnded(route: string, status: number, code: string | null): void;
}

/** Seconds. */
const addedBounds = [0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const firstTokenBounds = [0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 80, 160, 320];
const durationBounds = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280];
const coldBounds = [0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200];

/** Pico-dollars per USD. */
const picoPerUsd = 1e12;

/** Label of requests without a known model. */
const noModel = 'none';

/** Series of one model, created at its first request. */
interface ModelSeries {
  readonly inputTokens: CounterSeries;
  readonly cachedTokens: CounterSeries;
  readonly outputTokens: CounterSeries;
  readonly cost: CounterSeries;
  readonly cacheHits: CounterSeries;
  readonly cacheMisses: CounterSeries;
  readonly aborted: CounterSeries;
  readonly retries: CounterSeries;
  readonly duration: HistogramSeries;
  readonly firstToken: HistogramSeries;
  readonly coldWait: HistogramSeries;
}

export function createRequestMetrics(metrics: Metrics): RequestMetrics {
  const countRequest = createRequestCount(metrics);
  const refusals = metrics.counter({
    name: 'headgate_refusals_total',
    help: 'Requests that ended with an error, by error code',
    labelNames: ['code'],
  });
  const added = metrics.histogram(
    {
      name: 'headgate_added_latency_seconds',
      help: 'Latency added by the gateway itself, without the engine, the wait for the engine, and the upload of the request body',
      labelNames: ['route'],
    },
    addedBounds,
  );
  const fallbacks = metrics.counter({
    name: 'headgate_fallbacks_total',
    help: 'Requests that a fallback answered: `model` is the requested model, `fallback` the one that answered',
    labelNames: ['model', 'fallback'],
  });
  const seriesOf = createModelSeries(metrics);
  const addedOf = remember((route) => added.of(route));
  const refusalsOf = remember((code) => refusals.of(code));
  // Creates a series for each code from the start: a first rejection shows as an increase only from zero.
  for (const code of errorCodes) refusalsOf(code);
  const waiting = countWaiting(metrics);

  return {
    waiting,
    ended(summary) {
      countRequest(summary.route, summary.model ?? noModel, summary);
      if (summary.code !== null) refusalsOf(summary.code).add(1);
      const { addedMs } = summary;
      if (addedMs !== null && summary.outcome === 'completed') addedOf(summary.route).observe(addedMs / 1000);
      if (summary.model === null) return;
      addToModel(seriesOf(summary.model), summary);
      if (summary.fallbackFor !== null) fallbacks.of(summary.fallbackFor, summary.model).add(1);
    },
    otherEnded(route, status, code) {
      countRequest(route, noModel, { status, stream: false });
      if (code !== null) refusalsOf(code).add(1);
    },
  };
}

const statusClasses = ['1xx', '2xx', '3xx', '4xx', '5xx'];

type CountRequest = (route: string, model: string, end: Pick<RequestSummary, 'status' | 'stream'>) => void;

function createRequestCount(metrics: Metrics): CountRequest {
  const requests = metrics.counter({
    name: 'headgate_requests_total',
    help: 'Requests that ended, by status class such as 2xx; model is "none" if the request named no known model',
    labelNames: ['route', 'model', 'status', 'stream'],
  });
  // Caches the series by model, route, status class and streaming, so that a lookup builds no text.
  const known = remember((_model) => remember((_route): CounterSeries[] => []));
  return (route, model, { status, stream }) => {
    const list = known(model)(route);
    const statusClass = Math.min(Math.max(Math.floor(status / 100), 1), statusClasses.length) - 1;
    const at = statusClass * 2 + (stream ? 1 : 0);
    const series = list[at] ?? requests.of(route, model, statusClasses[statusClass] ?? '', String(stream));
    list[at] = series;
    series.add(1);
  };
}

function addToModel(series: ModelSeries, summary: RequestSummary): void {
  const { inputTokens, cachedTokens, outputTokens, costPicoUsd, cache, firstByteMs } = summary;
  series.inputTokens.add(inputTokens);
  series.cachedTokens.add(cachedTokens);
  series.outputTokens.add(outputTokens);
  // Rounded, for graphs. The records have the exact cost.
  if (costPicoUsd > 0n) series.cost.add(Number(costPicoUsd) / picoPerUsd);
  if (cache === 'hit') series.cacheHits.add(1);
  else if (cache === 'miss') series.cacheMisses.add(1);
  if (summary.abortedByClient) series.aborted.add(1);
  if (summary.retries > 0) series.retries.add(summary.retries);
  if (summary.cold) series.coldWait.observe(summary.queuedMs / 1000);
  if (summary.outcome !== 'completed') return;
  series.duration.observe(summary.totalMs / 1000);
  if (summary.stream && firstByteMs !== null) series.firstToken.observe(firstByteMs / 1000);
}

function createModelSeries(metrics: Metrics): (model: string) => ModelSeries {
  const labelNames = ['model'];
  const counter = (name: string, help: string): Family<CounterSeries> => metrics.counter({ name, help, labelNames });
  const inputTokens = counter('headgate_input_tokens_total', 'Billed prompt tokens, including cached tokens');
  const cachedTokens = counter(
    'headgate_cached_input_tokens_total',
    'Billed prompt tokens that were in the prompt cache of the engine',
  );
  const outputTokens = counter('headgate_output_tokens_total', 'Billed output tokens');
  const cost = counter(
    'headgate_cost_usd_total',
    'Charges in USD, rounded for graphs; the ledger has the exact amounts',
  );
  const aborted = counter(
    'headgate_aborted_requests_total',
    'Requests whose client disconnected before the response was complete',
  );
  const retries = counter('headgate_retries_total', 'Requests that were retried on another replica');
  const cache = metrics.counter({
    name: 'headgate_response_cache_requests_total',
    help: 'Requests looked up in the response cache, by result (hit or miss)',
    labelNames: ['model', 'result'],
  });
  const duration = metrics.histogram(
    {
      name: 'headgate_request_duration_seconds',
      help: 'Time from the arrival of a request to the last byte of its response, for complete responses',
      labelNames,
    },
    durationBounds,
  );
  const firstToken = metrics.histogram(
    {
      name: 'headgate_time_to_first_token_seconds',
      help: "Time from the arrival of a request to the engine's first byte, for complete streams",
      labelNames,
    },
    firstTokenBounds,
  );
  const coldWait = metrics.histogram(
    {
      name: 'headgate_cold_start_wait_seconds',
      help: 'Time that requests waited for their engine to start',
      labelNames,
    },
    coldBounds,
  );
  return remember((model) => ({
    inputTokens: inputTokens.of(model),
    cachedTokens: cachedTokens.of(model),
    outputTokens: outputTokens.of(model),
    cost: cost.of(model),
    cacheHits: cache.of(model, 'hit'),
    cacheMisses: cache.of(model, 'miss'),
    aborted: aborted.of(model),
    retries: retries.of(model),
    duration: duration.of(model),
    firstToken: firstToken.of(model),
    coldWait: coldWait.of(model),
  }));
}

function countWaiting(metrics: Metrics): (modelId: string, change: 1 | -1) => void {
  const waiting = new Map<string, number>();
  metrics.gauge(
    {
      name: 'headgate_waiting_requests',
      help: 'Requests that wait for an engine to start, or, with service tier flex, for free capacity',
      labelNames: ['model'],
    },
    (set) => waiting.forEach((count, model) => set(count, model)),
  );
  return (modelId, change) => void waiting.set(modelId, (waiting.get(modelId) ?? 0) + change);
}

function remember<Value>(make: (name: string) => Value): (name: string) => Value {
  const known = new Map<string, Value>();
  return (name) => {
    const found = known.get(name) ?? make(name);
    known.set(name, found);
    return found;
  };
}
