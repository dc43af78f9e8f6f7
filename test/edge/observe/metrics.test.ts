import { describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  eventually,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { readMetrics, seriesValue } from './read-metrics.ts';

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    slow: standinFile('slow', { flags: ['--start-delay-ms', '800'] }),
    broken: standinFile('broken', { flags: ['--fail-start', 'oom'] }),
  },
  env: { HEADGATE_METRICS_PORT: '0' },
}));

const read = (): Promise<string> => readMetrics(bench.gateway.metricsUrl);
const valueOf = async (series: string): Promise<number> => seriesValue(await read(), series) ?? 0;

/** Waits until a series has come to a value: what is counted last may come after the last byte of an answer. */
async function reaches(series: string, value: number): Promise<void> {
  await eventually(async () => (await valueOf(series)) === value);
}

/** Sends the second half of a body later. */
function sendSlowly(fields: object, afterMs: number): Promise<Response> {
  const bytes = new TextEncoder().encode(JSON.stringify(chatBody(fields)));
  const body = new ReadableStream({
    async start(controller) {
      controller.enqueue(bytes.subarray(0, 20));
      await new Promise((resolve) => setTimeout(resolve, afterMs));
      controller.enqueue(bytes.subarray(20));
      controller.close();
    },
  });
  const headers = { authorization: `Bearer ${bench.gateway.key}`, 'content-type': 'application/json' };
  return fetch(new URL(chatPath, bench.gateway.url), { method: 'POST', headers, body, duplex: 'half' });
}

const chatSeries = (status: string, stream: boolean, model = 'chat'): string =>
  `headgate_requests_total{route="/v1/chat/completions",model="${model}",status="${status}",stream="${stream}"}`;

describe('the metrics port', () => {
  it('serves only metrics and health, and only GET and HEAD', async () => {
    const ask = (path: string, method = 'GET'): Promise<Response> =>
      fetch(new URL(path, bench.gateway.metricsUrl ?? ''), { method });
    expect((await ask('/')).status).toBe(404);
    expect((await ask('/v1/models')).status).toBe(404);
    const posted = await ask('/metrics', 'POST');
    expect([posted.status, posted.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
    const head = await ask('/metrics', 'HEAD');
    expect([head.status, await head.text()]).toEqual([200, '']);
    const answer = await ask('/metrics');
    expect(answer.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    expect((await ask('/readyz')).status).toBe(200);
  });

  it('differs from the API port', async () => {
    expect((await bench.gateway.request('/metrics')).status).toBe(404);
  });
});

describe('the metrics', () => {
  it('have no label that clients can grow: no key, organization, unknown model or path', async () => {
    await bench.chat({ model: 'made-up-by-a-client' });
    await bench.gateway.request('/made/up/by/a/client', { key: null });
    await bench.gateway.request('/v1/keys/key_made_up_by_a_client');
    await reaches('headgate_refusals_total{code="model_not_found"}', 1);
    const text = await read();
    expect(text).not.toContain('made');
    const labels = new Set([...text.matchAll(/[{,](\w+)="/g)].map(([, name]) => name ?? ''));
    const own = [
      'route',
      'model',
      'status',
      'stream',
      'code',
      'engine',
      'phase',
      'state',
      'scope',
      'result',
      'store',
      'le',
    ];
    // Metrics of prom-client about the process and Node.
    const ofNode = ['kind', 'type', 'space', 'version', 'major', 'minor', 'patch'];
    expect([...labels].filter((name) => ![...own, ...ofNode].includes(name))).toEqual([]);
    const keys: Body = await (await bench.gateway.request('/v1/keys')).json();
    expect(text).not.toContain(keys.data[0].id.replace(/^\w+_/, ''));
  });

  it('count requests, tokens and cost like the records', async () => {
    const before = await read();
    const streamed = await bench.chat({ stream: true, standin: { output_tokens: 5 } });
    await streamed.text();
    const plain = await bench.chat({ standin: { output_tokens: 7 } });
    await plain.text();
    await reaches(chatSeries('2xx', true), (seriesValue(before, chatSeries('2xx', true)) ?? 0) + 1);
    await reaches(chatSeries('2xx', false), (seriesValue(before, chatSeries('2xx', false)) ?? 0) + 1);
    const records = [await bench.recordOf(streamed), await bench.recordOf(plain)];
    const sum = (field: string): number => records.reduce((total, record) => total + Number(record[field]), 0);
    const text = await read();
    const added = (name: string): number =>
      (seriesValue(text, `${name}{model="chat"}`) ?? 0) - (seriesValue(before, `${name}{model="chat"}`) ?? 0);
    expect(added('headgate_input_tokens_total')).toBe(sum('input_tokens'));
    expect(added('headgate_output_tokens_total')).toBe(12);
    expect(added('headgate_cost_usd_total')).toBeCloseTo(sum('cost'), 10);
    expect(added('headgate_time_to_first_token_seconds_count')).toBe(1);
    expect(added('headgate_request_duration_seconds_count')).toBe(2);
  });

  it("measure the latency that the gateway adds, without the engine's time and slow bodies", async () => {
    const name = 'headgate_added_latency_seconds';
    const label = '{route="/v1/chat/completions"}';
    const before = await read();
    const standin = { ttft_ms: 700, output_tokens: 1 };
    await (await bench.chat({ stream: true, standin })).text();
    await (await bench.chat({ standin })).text();
    expect((await sendSlowly({ standin }, 700)).status).toBe(200);
    const count = (seriesValue(before, `${name}_count${label}`) ?? 0) + 3;
    await reaches(`${name}_count${label}`, count);
    const text = await read();
    const added = (seriesValue(text, `${name}_sum${label}`) ?? 0) - (seriesValue(before, `${name}_sum${label}`) ?? 0);
    expect(added).toBeGreaterThan(0);
    expect(added).toBeLessThan(0.7);
    const duration = 'headgate_request_duration_seconds_sum{model="chat"}';
    expect((seriesValue(text, duration) ?? 0) - (seriesValue(before, duration) ?? 0)).toBeGreaterThan(2.8);
  });

  it("show running and waiting requests, the engine's start, and the wait for it", async () => {
    const answer = bench.chat({ model: 'slow', stream: true, standin: { ttft_ms: 1000 } });
    await reaches('headgate_waiting_requests{model="slow"}', 1);
    expect(await valueOf('headgate_requests_in_flight')).toBe(1);
    await reaches('headgate_engine_state{engine="slow",phase="starting"}', 1);
    await reaches('headgate_engine_state{engine="slow",phase="ready"}', 1);
    await reaches('headgate_engine_running_requests{engine="slow"}', 1);
    expect(await valueOf('headgate_waiting_requests{model="slow"}')).toBe(0);
    await (await answer).text();
    await reaches('headgate_cold_start_wait_seconds_count{model="slow"}', 1);
    await reaches('headgate_requests_in_flight', 0);
    expect(await valueOf('headgate_cold_start_wait_seconds_sum{model="slow"}')).toBeGreaterThan(0.8);
    expect(await valueOf('headgate_engine_start_duration_seconds_count{engine="slow"}')).toBe(1);
    expect(await valueOf('headgate_engine_replicas{engine="slow",state="ready"}')).toBe(1);
  });

  it('show a failed engine, and the errors of its requests', async () => {
    const before = await valueOf('headgate_refusals_total{code="upstream_error"}');
    expect((await bench.chat({ model: 'broken' })).status).toBe(503);
    await reaches('headgate_refusals_total{code="upstream_error"}', before + 1);
    await reaches(chatSeries('5xx', false, 'broken'), 1);
    await reaches('headgate_engine_state{engine="broken",phase="retrying"}', 1);
    expect(await valueOf('headgate_engine_failures_total{engine="broken"}')).toBe(1);
  });

  it('count hits and misses of the response cache, and clients that leave', async () => {
    const keys: Body = await (await bench.gateway.request('/v1/keys')).json();
    const path = `/v1/keys/${keys.data[0].id}`;
    await bench.gateway.request(path, { method: 'PATCH', body: { cache_responses: true } });
    for (let times = 0; times < 2; times += 1) await (await bench.chat({ seed: 4711 })).text();
    await reaches('headgate_response_cache_requests_total{model="chat",result="miss"}', 1);
    await reaches('headgate_response_cache_requests_total{model="chat",result="hit"}', 1);
    await bench.gateway.request(path, { method: 'PATCH', body: { cache_responses: false } });
    const leaving = new AbortController();
    const answer = await bench.chat({ stream: true, standin: { tpot_ms: 200 } }, { signal: leaving.signal });
    leaving.abort();
    await answer.text().catch(() => undefined);
    await reaches('headgate_aborted_requests_total{model="chat"}', 1);
    expect(await valueOf('headgate_retries_total{model="chat"}')).toBe(0);
  });

  it('show the stores, the records and the process', async () => {
    const text = await read();
    expect(seriesValue(text, 'headgate_store_up{store="postgres"}')).toBe(1);
    expect(seriesValue(text, 'headgate_store_up{store="redis"}')).toBe(null);
    expect(seriesValue(text, 'headgate_books_up')).toBe(1);
    expect(seriesValue(text, 'headgate_books_pending_records')).toBe(0);
    expect(seriesValue(text, 'headgate_books_lag_seconds')).toBe(0);
    const commits = seriesValue(text, 'headgate_books_commit_duration_seconds_count') ?? 0;
    expect(commits).toBeGreaterThan(0);
    expect(seriesValue(text, 'headgate_books_commit_records_sum') ?? 0).toBeGreaterThanOrEqual(commits);
    expect(seriesValue(text, 'headgate_ready')).toBe(1);
    expect(seriesValue(text, 'headgate_fleet_leader{scope="machine"}')).toBe(1);
    expect(seriesValue(text, 'process_cpu_seconds_total') ?? 0).toBeGreaterThan(0);
    expect(text).toContain('nodejs_eventloop_lag_p99_seconds');
    // No backup yet: the age of the database.
    expect(seriesValue(text, 'headgate_backup_age_seconds')).toBeLessThan(3600);
  });
});
