import type { EngineAnswer, EngineHistoryAnswer } from '#edge/contract/engines.ts';
import {
  chart,
  type ChartOptions,
  count,
  empty,
  figures,
  html,
  type Html,
  type MaybeHtml,
  type PortalParts,
  section,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { engineApiPath, enginePath, memory } from './engine-words.ts';

/** The load of an engine and its GPUs, now and over the last hour. */

type Load = EngineHistoryAnswer['load'][number];
type Gpu = EngineHistoryAnswer['gpus'][number];
type GpuSample = Gpu['samples'][number];

/** A point of a chart covers two minutes, so that each has a sample of a GPU that is read every minute. */
const pointSeconds = 120;
const pointCount = 30;

const percent = (share: number | null): string => (share === null ? '' : `${Math.round(share * 100)} %`);
const perSecond = (rate: number | null): string =>
  rate === null ? '' : `${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} tokens/s`;
const requests = (value: number | null): string => (value === null ? '' : count(Math.round(value)));

/** An older reading says nothing about now: the engine has stopped answering. */
const nowSecondsMax = 60;

/** Shows what the engine reports now; nothing for an engine without metrics. */
export function loadFigures({ load }: EngineAnswer, nowMs: number): MaybeHtml {
  if (load === null || nowMs / 1000 - load.at > nowSecondsMax) return null;
  const { generation_tokens_per_second: output, prompt_tokens_per_second: input, kv_cache_use: cache } = load;
  return figures([
    { label: 'In the engine', value: count(load.running), note: 'running requests of all gateways' },
    { label: 'Engine queue', value: count(load.waiting), note: 'waiting requests inside the engine' },
    { label: 'Output', value: perSecond(output) || 'not known yet', note: 'of all replicas' },
    { label: 'Input', value: perSecond(input) || 'not known yet', note: 'prompt tokens of all replicas' },
    { label: 'KV cache', value: percent(cache) || 'unknown', note: 'in use, in the fullest replica' },
  ]);
}

/** The part of the engine's page that is replaced every minute. */
export async function loadSection(visit: Visit, { clock }: PortalParts, engine: EngineAnswer): Promise<Html> {
  const history = await visit.get<EngineHistoryAnswer>(engineApiPath(engine.id, '/history'));
  const nowSeconds = Math.floor(clock.now() / 1000);
  return html`<div
    id="charts"
    hx-get="${enginePath(engine.id, '/charts')}"
    hx-trigger="every 60s"
    hx-swap="outerHTML"
    hx-headers='{"X-Poll":"1"}'
  >
    ${section('load', 'Load of the last hour', loadCharts(history, engine, nowSeconds))}
    ${section('gpus', 'GPUs of the last hour', gpuCharts(history, engine, nowSeconds))}
  </div>`;
}

/** Returns the charts only, for the page that shows them. */
export async function engineCharts(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const engine = await visit.get<EngineAnswer>(engineApiPath(id));
  return visit.context.html(await loadSection(visit, parts, engine));
}

const sinceText = html`<p class="quiet">
  Readings of this gateway since its start, at most for one hour; means of two minutes. Times are UTC.
</p>`;

function loadCharts({ load }: EngineHistoryAnswer, { kind }: EngineAnswer, nowSeconds: number): Html {
  if (kind !== 'vllm') return empty('No metrics of this engine', 'Headgate reads the metrics of vLLM only.');
  if (load.length === 0)
    return empty('No readings in the last hour', 'They begin a few seconds after a replica is ready.');
  const of = (name: string, value: (one: Load) => number | null, text: (value: number | null) => string) =>
    seriesOf(name, means(load, value, nowSeconds), text);
  const points = labels(nowSeconds);
  const drawn: readonly Pick<ChartOptions, 'title' | 'unit' | 'series'>[] = [
    {
      title: 'Tokens per second',
      unit: 'count',
      series: [
        of('Output tokens', (one) => one.generation_tokens_per_second, perSecond),
        of('Input tokens', (one) => one.prompt_tokens_per_second, perSecond),
      ],
    },
    {
      title: 'Requests in the engine',
      unit: 'count',
      series: [of('Running', ({ running }) => running, requests), of('Waiting', ({ waiting }) => waiting, requests)],
    },
    { title: 'KV cache in use', unit: 'share', series: [of('KV cache', (one) => one.kv_cache_use, percent)] },
  ];
  return html`${charts(drawn, points)} ${valuesTable(drawn, points)} ${sinceText}`;
}

function gpuCharts({ gpus }: EngineHistoryAnswer, engine: EngineAnswer, nowSeconds: number): Html {
  if (gpus.length === 0) return noGpus(engine);
  const of = (value: (sample: GpuSample) => number | null) =>
    gpus.map(({ id, host, samples }) => seriesOf(`${id} (${host})`, means(samples, value, nowSeconds), percent));
  const share = ({ memory_used_bytes: used, memory_bytes: all }: GpuSample): number => used / Math.max(1, all);
  const drawn = [
    { title: 'GPU memory in use', unit: 'share' as const, series: of(share) },
    { title: 'GPU use', unit: 'share' as const, series: of(({ busy }) => busy) },
  ];
  const points = labels(nowSeconds);
  return html`${gpuTable(gpus)} ${charts(drawn, points)} ${valuesTable(drawn, points)} ${sinceText}`;
}

function noGpus({ gpus, gpus_needed: needed, driver }: EngineAnswer): Html {
  if (driver === 'external') return empty('No GPUs known', 'This engine is external.');
  if (needed === null && gpus.length === 0)
    return empty('No GPU', 'The engine file asks for no GPU. Its field gpus assigns some.');
  if (gpus.length === 0) return empty('No readings in the last hour', 'They begin when a replica holds a GPU.');
  return empty(
    'No readings of these GPUs',
    driver === 'swarm'
      ? 'Headgate does not read the GPUs of a swarm.'
      : 'nvidia-smi gave no answer for them. It does not report MIG slices or GPUs of other makers.',
  );
}

function gpuTable(gpus: readonly Gpu[]): Html {
  return table({
    caption: 'GPUs of the engine',
    columns: [
      { title: 'GPU', isWide: true },
      { title: 'Host' },
      { title: 'Memory in use', isNumber: true },
      { title: 'Highest', isNumber: true },
      { title: 'Use', isNumber: true },
      { title: 'Mean', isNumber: true },
    ],
    rows: gpus.map(({ id, host, samples }) => {
      const last = samples.at(-1);
      const used = samples.map(({ memory_used_bytes: bytes }) => bytes);
      const busy = samples.flatMap((sample) => sample.busy ?? []);
      return [
        html`<code>${id}</code>`,
        host,
        last === undefined ? '' : `${memory(last.memory_used_bytes)} of ${memory(last.memory_bytes)}`,
        memory(Math.max(0, ...used)),
        percent(last?.busy ?? null) || html`<span class="quiet">unknown</span>`,
        busy.length === 0 ? html`<span class="quiet">unknown</span>` : percent(mean(busy)),
      ];
    }),
  });
}

function charts(drawn: readonly Pick<ChartOptions, 'title' | 'unit' | 'series'>[], points: readonly string[]): Html {
  return html`<div class="charts">
    ${drawn.map(
      ({ title, unit, series }) =>
        html`<div>
          <h3>${title}</h3>
          ${chart({ title: `${title}, over the last hour`, kind: 'lines', unit, points, series })}
        </div>`,
    )}
  </div>`;
}

/** The numbers of charts, newest first; times without a reading are left out. */
function valuesTable(drawn: readonly Pick<ChartOptions, 'title' | 'series'>[], points: readonly string[]): Html {
  const all = drawn.flatMap(({ title, series }) => series.map((one) => ({ ...one, title })));
  const rows = points.flatMap((point, at) =>
    all.every(({ values }) => values[at] === null) ? [] : [[point, ...all.map((one) => one.labels[at] ?? '')]],
  );
  return html`<details class="fold">
    <summary>Values by time</summary>
    ${table({
      caption: 'Values by time (UTC), newest first',
      columns: [
        { title: 'Time (UTC)' },
        ...all.map(({ title, name }) => ({ title: `${title}: ${name}`, isNumber: true })),
      ],
      rows: rows.toReversed(),
    })}
  </details>`;
}

function seriesOf(name: string, values: readonly (number | null)[], text: (value: number | null) => string) {
  return { name, values, labels: values.map(text) };
}

/** Returns the time of each point of a chart. */
function labels(nowSeconds: number): readonly string[] {
  return Array.from({ length: pointCount }, (_, at) => {
    const seconds = firstPoint(nowSeconds) + at * pointSeconds;
    return new Date(seconds * 1000).toISOString().slice(11, 16);
  });
}

const firstPoint = (nowSeconds: number): number =>
  (Math.floor(nowSeconds / pointSeconds) - pointCount + 1) * pointSeconds;

/** Returns the mean of the samples of each point; null where there is none. */
function means<Sample extends { readonly at: number }>(
  samples: readonly Sample[],
  value: (sample: Sample) => number | null,
  nowSeconds: number,
): readonly (number | null)[] {
  const first = firstPoint(nowSeconds);
  const values = Map.groupBy(samples, ({ at }) => Math.floor((at - first) / pointSeconds));
  return Array.from({ length: pointCount }, (_, at) => {
    const known = (values.get(at) ?? []).flatMap((sample) => value(sample) ?? []);
    return known.length === 0 ? null : mean(known);
  });
}

const mean = (values: readonly number[]): number => values.reduce((sum, one) => sum + one, 0) / values.length;
