import { describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  type EngineFileOptions,
  errorOf,
  eventually,
  openOrganization,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const pricing =
  'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40, flex_multiplier: 0.333333 }';
const flexFile = (id: string, { lines = [], flags = [] }: EngineFileOptions = {}) =>
  standinFile(id, { priced: false, lines: [pricing, ...lines], flags });

const bench = useInference(() => ({
  engines: {
    plain: standinFile('plain'),
    cheap: flexFile('cheap'),
    narrow: flexFile('narrow', { flags: ['--max-num-seqs', '1'] }),
    four: flexFile('four', { flags: ['--max-num-seqs', '4'] }),
    two: flexFile('two', { lines: ['max_concurrent: 2'] }),
    one: flexFile('one', { lines: ['max_concurrent: 1'] }),
    small: flexFile('small', { lines: ['max_concurrent: 1'] }),
    cold: flexFile('cold'),
  },
  env: { HEADGATE_FLEX_QUEUE_MAX: '20' },
}));

const flex = (model: string, fields: object = {}): object => chatBody({ model, service_tier: 'flex', ...fields });

async function send(body: object, key?: string, signal?: AbortSignal): Promise<Response> {
  return bench.post(chatPath, body, {
    ...(key === undefined ? {} : { key }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Starts an engine, so that tests of its fullness need not wait for that. */
async function warm(model: string): Promise<void> {
  const answer = await send(chatBody({ model }));
  expect(answer.status).toBe(200);
  await answer.text();
}

/** A default stream that runs until it is left. */
async function occupy(model: string): Promise<() => Promise<void>> {
  const leaving = new AbortController();
  const body = chatBody({ model, stream: true, max_tokens: 8000, standin: { output_tokens: 8000, tpot_ms: 20 } });
  const answer = await send(body, undefined, leaving.signal);
  expect(answer.status).toBe(200);
  const reader = answer.body?.getReader();
  await reader?.read();
  return async () => {
    leaving.abort();
    await reader?.cancel().catch(() => undefined);
  };
}

describe('a flex request', () => {
  it('returns 400 when the engine file has no flex price', async () => {
    const refused = await errorOf(await send(flex('plain')));
    expect(refused).toMatchObject({ status: 400, code: 'unsupported_parameter', param: 'service_tier' });
    for (const tier of ['default', 'auto', null]) {
      const answer = await send(chatBody({ model: 'plain', service_tier: tier }));
      expect(answer.status).toBe(200);
      await answer.text();
      expect((await bench.recordOf(answer)).service_tier).toBe('default');
    }
  });

  it('costs its exact share of the prices, and its record shows the tier', async () => {
    for (const stream of [false, true]) {
      const answer = await send(flex('cheap', { stream, standin: { output_tokens: 7 } }));
      expect(answer.status).toBe(200);
      await answer.text();
      const record: Body = await bench.recordOf(answer);
      expect(record).toMatchObject({ service_tier: 'flex', output_tokens: 7, outcome: 'completed' });
      const { input_tokens: input, input_cached_tokens: cached } = record;
      // 100000, 50000 and 400000 times 0.333333, rounded up to whole micro-dollars per million tokens.
      const pico = (input - cached) * 33_334 + cached * 16_667 + 7 * 133_334;
      expect(Math.round(Number(record.cost) * 1e12)).toBe(pico);
    }
    const dear = await send(chatBody({ model: 'cheap', standin: { output_tokens: 7 } }));
    await dear.text();
    const record: Body = await bench.recordOf(dear);
    const { input_tokens: input, input_cached_tokens: cached } = record;
    expect(record.service_tier).toBe('default');
    expect(Math.round(Number(record.cost) * 1e12)).toBe((input - cached) * 100_000 + cached * 50_000 + 7 * 400_000);
  });

  it('shows its cost in a dry run', async () => {
    const ask = async (body: object): Promise<Body> =>
      (await bench.post(chatPath, body, { headers: { 'x-headgate-dry-run': 'true' } })).json();
    const cheap = await ask(flex('cheap', { max_tokens: 100 }));
    const bytes = Buffer.byteLength(JSON.stringify(flex('cheap', { max_tokens: 100 })));
    expect(Math.round(Number(cheap.estimated_cost) * 1e12)).toBe(Math.ceil(bytes / 4) * 33_334 + 100 * 133_334);
  });

  it('has its price in the price list when offered', async () => {
    const { data }: Body = await (await bench.gateway.request('/v1/pricing')).json();
    expect(data.find(({ model }: Body) => model === 'cheap').flex).toEqual({
      input_per_million: '0.033334',
      output_per_million: '0.133334',
      cached_input_per_million: '0.016667',
    });
    expect(data.find(({ model }: Body) => model === 'plain')).not.toHaveProperty('flex');
  });

  it('starts a cold model', async () => {
    const answer = await send(flex('cold', { stream: true }));
    expect(answer.status).toBe(200);
    expect(answer.headers.get('x-headgate-start')).toBe('cold');
    expect(await answer.text()).toContain('[DONE]');
  });
});

describe('a full engine with flex requests', () => {
  it('keeps a lease free for default requests', async () => {
    await warm('four');
    const slow = { max_tokens: 40, standin: { output_tokens: 40, tpot_ms: 10 } };
    const flood = Array.from({ length: 20 }, async () => (await send(flex('four', slow))).text());
    const socket = bench.socketOf('four');
    // It has been full, and flex has stepped back from it.
    await eventually(async () => (await readMetric(socket, 'vllm:num_requests_waiting')) > 0);
    await eventually(async () => (await readMetric(socket, 'vllm:num_requests_running')) === 3);
    const load: number[] = [];
    for (let count = 0; count < 5; count += 1) {
      const answer = await send(chatBody({ model: 'four', stream: true, max_tokens: 2 }));
      load.push(await readMetric(socket, 'vllm:num_requests_waiting'));
      await answer.text();
    }
    expect(load).toEqual([0, 0, 0, 0, 0]);
    await Promise.all(flood);
  });

  it('serves default requests first by its own load report, and all flex requests in the end', async () => {
    await warm('narrow');
    const slow = { max_tokens: 30, standin: { output_tokens: 30, tpot_ms: 10 } };
    let flexDone = 0;
    const waiting = Array.from({ length: 8 }, async () => {
      const answer = await send(flex('narrow', slow));
      expect(answer.status).toBe(200);
      await answer.text();
      flexDone += 1;
    });
    await eventually(async () => flexDone >= 1);
    for (let count = 0; count < 3; count += 1) {
      const answer = await send(chatBody({ model: 'narrow', ...slow }));
      expect(answer.status).toBe(200);
      await answer.text();
    }
    // One may run and one may stand in the engine's own queue whenever a default request comes.
    expect(flexDone).toBeLessThan(8);
    await Promise.all(waiting);
    expect(flexDone).toBe(8);
  });

  it('makes flex requests wait with comments at max_concurrent, while default requests pass', async () => {
    await warm('two');
    const leave = [await occupy('two'), await occupy('two')];
    const waiting = send(flex('two', { stream: true }));
    const passing = await send(chatBody({ model: 'two' }));
    expect(passing.status).toBe(200);
    await passing.text();
    const answer = await waiting;
    expect(answer.headers.get('x-headgate-start')).toBe('warm');
    const reader = answer.body?.getReader();
    const first = Buffer.from((await reader?.read())?.value ?? []).toString();
    expect(first).toMatch(/^: /);
    expect(await readMetric(bench.socketOf('two'), 'vllm:num_requests_running')).toBe(2);
    for (const go of leave) await go();
    let text = '';
    for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) {
      text += Buffer.from(read.value).toString();
    }
    expect(text).toContain('[DONE]');
    const record: Body = await bench.recordOf(answer);
    expect(record).toMatchObject({ service_tier: 'flex', outcome: 'completed' });
    expect(record.timings_ms.queued).toBeGreaterThan(4000);
  });

  it('shares its leases fairly among keys, by tokens', async () => {
    await warm('one');
    const leave = await occupy('one');
    const { key: greedy } = await openOrganization(bench.gateway, '1');
    const { key: modest } = await openOrganization(bench.gateway, '1');
    const order: string[] = [];
    const run = async (name: string, key: string): Promise<void> => {
      const answer = await send(flex('one', { max_tokens: 50, standin: { output_tokens: 50, tpot_ms: 1 } }), key);
      expect(answer.status).toBe(200);
      await answer.text();
      order.push(name);
    };
    const runs: Promise<void>[] = [];
    const held = async (key: string): Promise<string> => (await bench.wallet(key)).held;
    for (const [name, key] of [
      ...Array.from({ length: 10 }, () => ['greedy', greedy]),
      ...Array.from({ length: 3 }, () => ['modest', modest]),
    ]) {
      const before = await held(key ?? '');
      runs.push(run(name ?? '', key ?? ''));
      await eventually(async () => (await held(key ?? '')) !== before);
    }
    await leave();
    await Promise.all(runs);
    expect(order).toHaveLength(13);
    // Turn by turn: the three of the one who came late stand among the first of the other.
    expect(order.slice(0, 7).filter((name) => name === 'modest')).toHaveLength(3);
  });

  it('returns 503 with Retry-After when the flex queue is full', async () => {
    await warm('small');
    const leave = await occupy('small');
    const waiting = Array.from({ length: 40 }, () => send(flex('small')));
    const early: Response[] = [];
    for (const answer of waiting) void answer.then((got) => early.push(got));
    await eventually(async () => early.length >= 20);
    expect(early).toHaveLength(20);
    for (const answer of early.slice(0, 20)) {
      expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
      expect(await errorOf(answer)).toMatchObject({ status: 503, code: 'overloaded' });
    }
    await leave();
    const answers = await Promise.all(waiting);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(20);
  });

  it('releases everything of a client that leaves the queue', async () => {
    await warm('small');
    const leave = await occupy('small');
    const { key } = await openOrganization(bench.gateway, '1');
    const leaving = new AbortController();
    const sent = send(flex('small'), key, leaving.signal).catch(() => null);
    await eventually(async () => (await bench.wallet(key)).held !== '0');
    leaving.abort();
    await sent;
    await eventually(async () => (await bench.wallet(key)).held === '0');
    expect((await bench.wallet(key)).balance).toBe('1');
    await leave();
    const after = await send(flex('small'), key);
    expect(after.status).toBe(200);
    await after.text();
  });
});
