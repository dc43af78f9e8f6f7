import { existsSync, globSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { describe, expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { readQuery } from './promql.ts';
import { metricNames, readEngineMetrics, readMetrics } from './read-metrics.ts';

const compose = new URL('../../../compose/', import.meta.url).pathname;
const read = (path: string): string => readFileSync(`${compose}${path}`, 'utf8');

const bench = useInference(() => ({ engines: { chat: standinFile('chat') }, env: { HEADGATE_METRICS_PORT: '0' } }));

/** Metrics that Prometheus adds by itself. */
const ownMetrics = ['up'];
/** Metrics of NVIDIA's exporter: https://docs.nvidia.com/datacenter/dcgm/latest/gpu-telemetry/dcgm-exporter.html */
const gpuMetrics = ['DCGM_FI_DEV_GPU_UTIL', 'DCGM_FI_DEV_FB_USED', 'DCGM_FI_DEV_FB_FREE'];
const gpuLabels = ['Hostname', 'gpu'];
const ownLabels = ['job', 'instance', 'le'];

/** The queries of a dashboard: of its panels, of panels in rows, and of its variables. */
function queriesOf(dashboard: Body): string[] {
  const panels: Body[] = dashboard.panels.flatMap((panel: Body) => [panel, ...(panel.panels ?? [])]);
  const shown = panels.flatMap((panel) => (panel.targets ?? []).map(({ expr }: Body): string => expr));
  const variables = dashboard.templating.list.filter(({ type }: Body) => type === 'query');
  return [...shown, ...variables.map(({ definition }: Body) => variableQuery(definition))];
}

/** `label_values(metric, label)` is Grafana's own. */
function variableQuery(definition: string): string {
  const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(definition) ?? [];
  return `count by (${label}) (${metric})`;
}

function ruleQueries(): string[] {
  const files = globSync('prometheus/rules/*.yml', { cwd: compose });
  const groups: Body[] = files.flatMap((path) => parse(read(path)).groups);
  return groups.flatMap(({ rules }) => rules.map(({ expr }: Body): string => expr));
}

/** Names of the queries that a gateway that has served something does not have. */
async function findUnknown(queries: readonly string[]): Promise<string[]> {
  await (await bench.chat({})).text();
  const text = `${await readMetrics(bench.gateway.metricsUrl)}${await readEngineMetrics(bench.gateway.metricsUrl)}`;
  const metrics = new Set([...metricNames(text), ...ownMetrics, ...gpuMetrics]);
  const labels = new Set([
    ...[...text.matchAll(/[{,](\w+)="/g)].map(([, name]) => name ?? ''),
    ...ownLabels,
    ...gpuLabels,
  ]);
  return queries.flatMap((query) => {
    const names = readQuery(query);
    return [
      ...names.metrics.filter((name) => !metrics.has(name)),
      ...names.labels.filter((name) => !labels.has(name)).map((name) => `label ${name}`),
    ];
  });
}

describe('the names in a query', () => {
  it.each([
    ['up', ['up'], []],
    [
      'sum by (model, le) (rate(a_total{status="5xx", route=~"/v1/.*"}[5m])) > 0.05',
      ['a_total'],
      ['model', 'le', 'status', 'route'],
    ],
    [
      'sum(rate(a_bucket[$__rate_interval])) without (le) / on (x) group_left (y) b{c!~"$d"}',
      ['a_bucket', 'b'],
      ['c', 'le', 'x', 'y'],
    ],
    ['a offset 5m and b or vector(0) unless c == bool 1e3', ['a', 'b', 'c'], []],
    ['a{b="c}d{e[5m]", f=\'g\'} * 2', ['a'], ['b', 'f']],
    ['histogram_quantile(0.99, sum by (le) (rate(a:b_bucket[5m:1m])))', ['a:b_bucket'], ['le']],
  ])('are read from %s', (query, metrics, labels) => {
    const names = readQuery(query);
    expect(names.metrics).toEqual(metrics);
    expect(names.labels.toSorted()).toEqual(labels.toSorted());
  });

  it('are reported when they do not exist', async () => {
    const query = 'sum by (user) (rate(headgate_requests_total[5m])) / headgate_nothing';
    expect(await findUnknown([query])).toEqual(['headgate_nothing', 'label user']);
  });
});

describe('the observability files', () => {
  it('query only existing metrics in the dashboard', async () => {
    const queries = queriesOf(JSON.parse(read('grafana/dashboards/headgate.json')));
    expect(queries.length).toBeGreaterThan(40);
    expect(await findUnknown(queries)).toEqual([]);
  });

  it('alert only on existing metrics', async () => {
    const queries = ruleQueries();
    expect(queries.length).toBeGreaterThan(15);
    expect(await findUnknown(queries)).toEqual([]);
  });

  it('show every metric of the gateway', async () => {
    const queries = [...queriesOf(JSON.parse(read('grafana/dashboards/headgate.json'))), ...ruleQueries()];
    const named = queries.flatMap((query) =>
      readQuery(query).metrics.map((name) => name.replace(/_(bucket|sum|count)$/, '')),
    );
    const text = await readMetrics(bench.gateway.metricsUrl);
    const told = [...text.matchAll(/^# TYPE (headgate_\S+)/gm)].map(([, name = '']) => name);
    expect(told.filter((name) => !named.includes(name))).toEqual([]);
  });

  it('scrape the metrics port of compose over a private network', () => {
    const { services }: Body = parse(read('compose.yaml'));
    const { services: more, networks }: Body = parse(read('compose.observability.yaml'));
    const [job, engines, gpus]: Body[] = parse(read('prometheus/prometheus.yml')).scrape_configs;
    for (const { dns_sd_configs: found } of [job, engines]) {
      expect(found[0].port).toBe(Number(services.gateway.environment.HEADGATE_METRICS_PORT));
      expect(found[0].names).toEqual(['gateway']);
    }
    expect(engines.metrics_path).toBe('/metrics/engines');
    expect(Object.keys(more)).toContain(gpus.dns_sd_configs[0].names[0]);
    expect(more['dcgm-exporter'].networks).toEqual(['metrics']);
    expect(networks.metrics.internal).toBe(true);
    expect(more.gateway.networks).toEqual(['metrics']);
    const published = [...more.prometheus.ports, ...more.grafana.ports];
    expect(published.filter((port) => !/^\$\{\w+:-127\.0\.0\.1:\d+\}:\d+$/.test(port))).toEqual([]);
    const mounted = [...more.prometheus.volumes, ...more.grafana.volumes].flatMap((volume: string) =>
      volume.startsWith('./') ? [volume.split(':', 1)[0] ?? ''] : [],
    );
    expect(mounted).toHaveLength(3);
    expect(mounted.filter((path) => !existsSync(`${compose}${path}`))).toEqual([]);
    // Pinned, as every image is.
    const images = Object.values<Body>(more).flatMap(({ image }) => image ?? []);
    expect(images).toHaveLength(3);
    for (const image of images) expect(image).toMatch(/:v?\d+\.\d+\.\d+(-[\w.-]+)?\}$/);
  });

  it('give the dashboard its provisioned data source', () => {
    const { datasources }: Body = parse(read('grafana/provisioning/datasources/headgate.yaml'));
    const dashboard: Body = JSON.parse(read('grafana/dashboards/headgate.json'));
    const chosen = dashboard.templating.list.find(({ name }: Body) => name === 'datasource');
    expect(chosen.current.value).toBe(datasources[0].uid);
    const ids = dashboard.panels.map(({ id }: Body) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });
});
