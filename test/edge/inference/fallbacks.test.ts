import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FailingEngines, type Fault, startFailingEngines } from './failing-engines.ts';
import {
  type Body,
  errorOf,
  eventually,
  externalFile,
  framesOf,
  openOrganization,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const allow = { 'x-headgate-allow-fallback': 'true' };
/** Output tokens cost 4 micro-dollars, ten times those of other models here. */
const dear = 'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4 }';
const nowhere = 'http://127.0.0.1:1';

const naming = (fallbacks: string, more: readonly string[] = []): { readonly lines: readonly string[] } => ({
  lines: [`fallbacks: [${fallbacks}]`, ...more],
});

const faults: readonly Fault[] = [
  'sick',
  'busy',
  'picky',
  'vague',
  'mute',
  'shy',
  'early',
  'wordy',
  'torn',
  'empty',
  'other',
  'cut',
];
let failing: FailingEngines | null = null;
afterAll(() => failing?.close());

const failingFile = (fault: Fault): string => externalFile(fault, failing?.urlOf(fault) ?? '', naming('spare'));

const bench = useInference(async () => {
  failing = await startFailingEngines();
  return {
    engines: {
      spare: standinFile('spare', { priced: false, lines: [dear, 'aliases: [reserve]'] }),
      well: standinFile('well', naming('spare')),
      broken: standinFile('broken', { flags: ['--fail-start', 'bad-model'], ...naming('spare') }),
      ...Object.fromEntries(faults.map((fault) => [fault, failingFile(fault)])),
      gone: externalFile('gone', nowhere, naming('RESERVE')),
      chain: externalFile('chain', nowhere, naming('sick, gone, narrow, picky, spare')),
      narrow: standinFile('narrow', { lines: ['max_n: 1'] }),
      circle: externalFile('circle', nowhere, naming('gone')),
      late: standinFile('late', {
        flags: ['--start-delay-ms', '60000'],
        ...naming('spare', ['start_timeout_seconds: 7']),
      }),
      slow: standinFile('slow', { flags: ['--start-delay-ms', '2500'], ...naming('spare') }),
      queued: standinFile('queued', { flags: ['--start-delay-ms', '60000'], ...naming('spare') }),
    },
    env: { HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '2', HEADGATE_START_QUEUE_MAX: '1' },
  };
});

const headerOf = ({ headers }: Response): string | null => headers.get('x-headgate-fallback');
const ask = (fields: object, options: object = {}): Promise<Response> =>
  bench.chat(fields, { headers: allow, ...options });

async function keyOf(management: string, fields: object = {}): Promise<{ id: string; secret: string }> {
  const body = { name: 'app', requests_per_minute: null, max_concurrency: null, ...fields };
  const made = await bench.gateway.request('/v1/keys', { key: management, body });
  expect(made.status).toBe(201);
  return made.json() as Promise<{ id: string; secret: string }>;
}

/** Tokens that the engine of a model has made in all. */
async function made(model: string): Promise<number> {
  return readMetric(bench.socketOf(model), 'vllm:generation_tokens_total');
}

beforeAll(async () => {
  await (await bench.chat({ model: 'spare' })).text();
});

describe('a request without a fallback', () => {
  it('fails when it does not allow fallbacks', async () => {
    for (const headers of [{}, { 'x-headgate-allow-fallback': 'false' }]) {
      for (const model of ['broken', 'sick', 'gone']) {
        const answer = await bench.chat({ model }, { headers });
        expect(headerOf(answer)).toBeNull();
        expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
        expect(await bench.recordOf(answer)).toMatchObject({ model, fallback_for: null, outcome: 'failed', cost: '0' });
      }
    }
  });

  it.each([['yes'], ['1'], ['TRUE'], [''], ['true, true']])(
    'returns 400 for X-Headgate-Allow-Fallback: %j',
    async (text) => {
      const answer = await ask({ model: 'gone' }, { headers: { 'x-headgate-allow-fallback': text } });
      expect(await errorOf(answer)).toMatchObject({
        status: 400,
        code: 'invalid_value',
        param: 'x-headgate-allow-fallback',
      });
    },
  );

  it('is answered by its own model when that works', async () => {
    const answer = await ask({ model: 'well' });
    expect([answer.status, headerOf(answer)]).toEqual([200, null]);
    expect(((await answer.json()) as Body).model).toBe('well');
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'well', fallback_for: null });
  });

  it('is answered by its own model when that is only cold', async () => {
    const answer = await ask({ model: 'slow' });
    expect([answer.status, headerOf(answer)]).toEqual([200, null]);
    expect(answer.headers.get('x-headgate-start')).toBe('cold');
    expect(((await answer.json()) as Body).model).toBe('slow');
  });

  it.each([['picky'], ['vague']])('returns 400 when the engine blames the request: %s', async (model) => {
    for (const stream of [true, false]) {
      const answer = await ask({ model, stream });
      expect(headerOf(answer)).toBeNull();
      expect(await errorOf(answer)).toMatchObject({ status: 400, type: 'invalid_request_error' });
    }
  });

  it('keeps the error when it is rejected before it reaches an engine', async () => {
    expect(await errorOf(await ask({ model: 'gone', priority: 5 }))).toMatchObject({ status: 400, param: 'priority' });
    expect(await errorOf(await ask({ model: 'nothing' }))).toMatchObject({ code: 'model_not_found' });
    const { key } = await openOrganization(bench.gateway, null);
    expect(await errorOf(await ask({ model: 'gone' }, { key }))).toMatchObject({ status: 402 });
    const owner = await openOrganization(bench.gateway, '1');
    const limited = await keyOf(owner.key, { requests_per_minute: 1 });
    expect((await ask({ model: 'gone' }, { key: limited.secret })).status).toBe(200);
    expect(await errorOf(await ask({ model: 'gone' }, { key: limited.secret }))).toMatchObject({ status: 429 });
  });

  it('fails after a JSON answer has begun', async () => {
    const answer = await ask({ model: 'cut' });
    expect(headerOf(answer)).toBeNull();
    expect(await errorOf(answer)).toMatchObject({ status: 502, code: 'upstream_error' });
  });

  it('fails after a frame of a stream was sent', async () => {
    const answer = await ask({ model: 'cut', stream: true });
    expect([answer.status, headerOf(answer)]).toEqual([200, null]);
    const frames = framesOf(await answer.text());
    expect(frames.at(-2)).toMatchObject({ error: { code: 'upstream_error' } });
    expect(frames[0].model).toBe('cut');
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'cut', fallback_for: null, outcome: 'failed' });
  });

  it('ends when the client has left', async () => {
    const leaving = new AbortController();
    const asked = ask({ model: 'queued' }, { signal: leaving.signal }).catch(() => null);
    const statusOf = async () => ((await (await bench.gateway.request('/v1/models/queued')).json()) as Body).status;
    await eventually(async () => (await statusOf()) === 'starting');
    leaving.abort();
    await asked;
    const record = await eventually(async () => {
      const page: Body = await (await bench.gateway.request('/v1/usage/requests?model=queued')).json();
      return page.data[0] ?? null;
    });
    expect(record).toMatchObject({ outcome: 'aborted', fallback_for: null, cost: '0' });
  });

  it('fails when the key may not use or list the fallback', async () => {
    const owner = await openOrganization(bench.gateway, '1');
    const key = (await keyOf(owner.key, { models: ['gone'] })).secret;
    const answer = await ask({ model: 'gone' }, { key });
    expect(headerOf(answer)).toBeNull();
    expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
    const modelOf = async (secret: string) =>
      ((await (await bench.gateway.request('/v1/models/gone', { key: secret })).json()) as Body).fallbacks;
    expect(await modelOf(key)).toEqual([]);
    expect(await modelOf(owner.key)).toEqual(['spare']);
    const body = { models: ['gone'] };
    const path = `/v1/organizations/${owner.id}`;
    expect((await bench.gateway.request(path, { method: 'PATCH', body })).status).toBe(200);
    expect(await errorOf(await ask({ model: 'gone' }, { key: owner.key }))).toMatchObject({ code: 'upstream_error' });
  });

  it('does not use the fallback of a fallback', async () => {
    const answer = await ask({ model: 'circle' });
    expect(headerOf(answer)).toBeNull();
    expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'circle', fallback_for: null, cost: '0' });
  });

  it("fails when the prompt exceeds the fallback's context", async () => {
    const answer = await ask({ model: 'gone', max_tokens: 8192 });
    expect(headerOf(answer)).toBeNull();
    expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
  });
});

describe.each([
  ['a stream', true],
  ['JSON', false],
])('a request with a fallback, answered with %s,', (_, stream) => {
  it.each([
    ['cannot be started', 'broken'],
    ['fails at each request', 'sick'],
    ['takes nothing', 'busy'],
    ['ends the connection', 'shy'],
    ['fails before the first token', 'early'],
    ['does not say anything', 'mute'],
    ['fails, and says much of it', 'wordy'],
    ['fails, and breaks off while it says so', 'torn'],
    ['says that all is well and ends', 'empty'],
    ['answers in another form', 'other'],
    ['cannot be reached', 'gone'],
  ])('uses the fallback at its own price when the engine %s', async (__, model) => {
    const { key } = await openOrganization(bench.gateway, '1');
    const before = await made('spare');
    const answer = await ask({ model, stream, stream_options: stream ? { include_usage: true } : undefined }, { key });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'spare']);
    const text = await answer.text();
    const frames = stream ? framesOf(text) : [JSON.parse(text)];
    expect(frames[0].model).toBe('spare');
    expect(frames.at(-1) === '[DONE]').toBe(stream);
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ model: 'spare', fallback_for: model, outcome: 'completed', status: 200 });
    expect(record).toMatchObject({ price: { input_per_million: '1', output_per_million: '4' } });
    const { usage } = frames.at(stream ? -2 : 0);
    expect(record).toMatchObject({ input_tokens: usage.prompt_tokens, output_tokens: 8 });
    const cost = usage.prompt_tokens * 1 + 8 * 4;
    expect(Number(record.cost)).toBeCloseTo(cost / 1e6, 12);
    const wallet = await bench.wallet(key);
    expect(wallet.held).toBe('0');
    expect(Number(wallet.balance)).toBeCloseTo(1 - cost / 1e6, 12);
    expect((await made('spare')) - before).toBe(8);
  });

  it('uses the fallback when too many requests wait for the model to start', async () => {
    const leaving = new AbortController();
    const first = bench.chat({ model: 'queued' }, { signal: leaving.signal }).catch(() => null);
    const statusOf = async () => ((await (await bench.gateway.request('/v1/models/queued')).json()) as Body).status;
    await eventually(async () => (await statusOf()) === 'starting');
    const refused = await eventually(async () => {
      const answer = await bench.chat({ model: 'queued' }, { signal: AbortSignal.timeout(300) }).catch(() => null);
      return answer?.status === 503 ? answer : null;
    });
    expect((await errorOf(refused)).message).toContain('Too many requests are waiting');
    const answer = await ask({ model: 'queued', stream });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'spare']);
    await answer.text();
    leaving.abort();
    await first;
  });

  it('uses the first fallback that answers, after others that fail, have fallbacks or refuse', async () => {
    const answer = await ask({ model: 'chain', stream, n: 2 });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'spare']);
    await answer.text();
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'spare', fallback_for: 'chain' });
  });
});

describe('a stream that has already sent comments', () => {
  it('names the fallback in a comment, since its headers are sent', async () => {
    const answer = await ask({ model: 'late', stream: true });
    expect([answer.status, headerOf(answer)]).toEqual([200, null]);
    const text = await answer.text();
    const lines = text.split('\n');
    const named = lines.indexOf(': x-headgate-fallback: spare');
    expect(named).toBeGreaterThan(0);
    expect(lines.slice(0, named).every((line) => line.startsWith(': '))).toBe(true);
    expect(lines[named + 1]).toMatch(/^data: .*"model":"spare"/);
    expect(framesOf(text).at(-1)).toBe('[DONE]');
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'spare', fallback_for: 'late' });
  });
});
