import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  askEngine,
  type Body,
  errorOf,
  eventually,
  externalFile,
  framesOf,
  json,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { type StandIn, startStandIn } from '#test/standin/engine.ts';

/** Engines that keep answering their probes, and generate nothing or little. */

const watched = ['wedged_seconds: 1'];
const one = ['--max-num-seqs', '1'];

let far: StandIn | null = null;
let farUrl = '';
afterAll(() => far?.stop());

const bench = useInference(async () => {
  far = await startStandIn(['--host', '127.0.0.1', '--port', '0', '--served-model-name', 'far', '--dev-mode'], {
    tcp: true,
  });
  farUrl = /http:\/\/127\.0\.0\.1:\d+/.exec(far.log())?.[0] ?? '';
  return {
    engines: {
      single: standinFile('single', { lines: watched }),
      pair: standinFile('pair', { lines: [...watched, 'replicas: { min: 2, max: 2 }'] }),
      // The canary waits behind the only request that these can run.
      slow: standinFile('slow', { lines: watched, flags: one }),
      whole: standinFile('whole', { lines: watched, flags: [...one, '--no-enable-chunked-prefill'] }),
      far: externalFile('far', farUrl, { lines: [...watched, 'fallbacks: [single]'] }),
    },
    env: { HEADGATE_METRICS_PORT: '0' },
  };
});

interface Running {
  readonly engineId: string;
  readonly pid: number;
  readonly socketPath: string;
}

function runningOf(engineId: string): readonly Running[] {
  const folder = join(bench.gateway.dataDir, 'engines', 'running');
  const records = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Running);
  return records.filter((record) => record.engineId === engineId);
}

/** Stops an engine from making tokens, as a dead GPU does; its probes answer 200. */
const frozen = { prompt: 'x', standin: { freeze: true, status: 503 } };

async function freeze(model: string, socketPath: string): Promise<void> {
  expect((await askEngine(socketPath, '/v1/completions', { model, ...frozen })).status).toBe(503);
  expect((await askEngine(socketPath, '/health')).status).toBe(200);
}

const engine = async (id: string): Promise<Body> => (await bench.gateway.request(`/v1/admin/engines/${id}`)).json();

async function metric(pattern: RegExp): Promise<number> {
  const text = await (await fetch(`${bench.gateway.metricsUrl}/metrics`)).text();
  return Number(pattern.exec(text)?.[1] ?? 0);
}

async function warm(model: string): Promise<void> {
  expect((await bench.chat({ model })).status).toBe(200);
}

describe('an engine that generates nothing and answers its probes', () => {
  it.each([[false], [true]])(
    'is restarted, and its request is answered by the next replica, stream %s',
    async (stream) => {
      await warm('single');
      const [before] = runningOf('single');
      const wedges = await metric(/headgate_engine_wedges_total\{engine="single"\} (\d+)/);
      await freeze('single', before?.socketPath ?? '');
      const answer = await bench.chat({ model: 'single', stream, stream_options: undefined });
      expect(answer.status).toBe(200);
      const text = await answer.text();
      expect(text).toContain('"content"');
      const [after] = runningOf('single');
      expect(after?.pid).not.toBe(before?.pid);
      expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed' });
      await eventually(
        async () => (await metric(/headgate_engine_wedges_total\{engine="single"\} (\d+)/)) === wedges + 1,
      );
    },
  );

  it('gives the requests without a byte to the other replica, and breaks off a stream that has begun', async () => {
    await warm('pair');
    await eventually(
      async () => (await engine('pair')).replicas.filter(({ state }: Body) => state === 'ready').length === 2,
    );
    const begun = await Promise.all(
      Array.from({ length: 4 }, () =>
        bench.chat({ model: 'pair', stream: true, max_tokens: 600, standin: { output_tokens: 600, tpot_ms: 20 } }),
      ),
    );
    const busy = await Promise.all(
      runningOf('pair').map(({ socketPath }) => readMetric(socketPath, 'vllm:num_requests_running')),
    );
    const at = busy.indexOf(Math.max(...busy));
    const first = runningOf('pair')[at];
    const second = runningOf('pair')[1 - at];
    await freeze('pair', first?.socketPath ?? '');
    const fresh = await Promise.all(Array.from({ length: 6 }, () => bench.chat({ model: 'pair' })));
    expect(fresh.map(({ status }) => status)).toEqual(fresh.map(() => 200));
    await eventually(() => Promise.resolve(runningOf('pair').every(({ pid }) => pid !== first?.pid)));
    expect(runningOf('pair').map(({ pid }) => pid)).toContain(second?.pid);
    const frames = await Promise.all(begun.map(async (answer) => framesOf(await answer.text())));
    const broken = frames.filter((all) => all.some(({ error }) => error !== undefined));
    expect(broken).toHaveLength(busy[at] ?? 0);
  });
});

describe('a slow engine', () => {
  it.each([
    ['slow', 'reads a long prompt in pieces', 'a b '.repeat(100), { ttft_ms: 5000 }],
    ['whole', 'reads a long prompt at once', 'a b '.repeat(3500), { ttft_ms: 5000 }],
    ['slow', 'makes a token now and then', 'Hello', { tpot_ms: 600 }],
  ])('%s keeps running when it %s', async (model, _, content, standin) => {
    await warm(model);
    const [before] = runningOf(model);
    const answer = await bench.chat({ model, messages: [{ role: 'user', content }], standin });
    expect(answer.status).toBe(200);
    expect(runningOf(model)).toEqual([before]);
    expect(await metric(new RegExp(`headgate_engine_wedges_total\\{engine="${model}"\\} (\\d+)`))).toBe(0);
  });
});

describe('an external engine that generates nothing', () => {
  it('leaves routing until it answers a canary, and its request goes to a fallback', async () => {
    await warm('far');
    const post = (path: string, body: object): Promise<Response> =>
      fetch(`${farUrl}${path}`, { method: 'POST', headers: json, body: JSON.stringify(body) });
    await post('/v1/completions', { model: 'far', ...frozen });
    const moved = await bench.chat({ model: 'far' }, { headers: { 'x-headgate-allow-fallback': 'true' } });
    expect(moved.status).toBe(200);
    expect(moved.headers.get('x-headgate-fallback')).toBe('single');
    const refused = await bench.chat({ model: 'far' });
    expect(refused.headers.get('retry-after')).not.toBeNull();
    expect(await errorOf(refused)).toMatchObject({ status: 503, message: expect.stringMatching(/stopped generating/) });
    expect(await engine('far')).toMatchObject({ state: 'retrying', replicas: [{ state: 'checking', healthy: true }] });
    await post('/resume', {});
    await eventually(async () => (await engine('far')).state === 'ready');
    await warm('far');
    expect((await engine('far')).last_failure).toBeNull();
  });
});
