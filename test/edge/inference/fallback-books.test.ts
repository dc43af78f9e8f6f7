import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifyBooks } from '#core/metering/metering.ts';
import { type FailingEngines, type Fault, startFailingEngines } from './failing-engines.ts';
import {
  type Body,
  errorOf,
  eventually,
  externalFile,
  openOrganization,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { type ResponsesEngine, startResponsesEngine } from './responses-engine.ts';

const allow = { 'x-headgate-allow-fallback': 'true' };
/** Output tokens cost 4 micro-dollars, ten times those of other models here. */
const dear = 'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4 }';
const nowhere = 'http://127.0.0.1:1';

const naming = (fallbacks: string, more: readonly string[] = []): { readonly lines: readonly string[] } => ({
  lines: [`fallbacks: [${fallbacks}]`, ...more],
});

let failing: FailingEngines | null = null;
let responses: ResponsesEngine;
afterAll(() => {
  failing?.close();
  responses.close();
});

const failingFile = (fault: Fault): string => externalFile(fault, failing?.urlOf(fault) ?? '', naming('spare'));

const bench = useInference(async () => {
  failing = await startFailingEngines();
  responses = await startResponsesEngine();
  return {
    engines: {
      spare: standinFile('spare', { priced: false, lines: [dear, 'aliases: [reserve]'] }),
      sick: failingFile('sick'),
      gone: externalFile('gone', nowhere, naming('reserve')),
      chain: externalFile('chain', nowhere, naming('sick, spare')),
      replies: externalFile('replies', responses.url, { priced: false, lines: [dear] }),
      routeless: externalFile('routeless', `${responses.url}/nowhere`),
      'gone-too': externalFile('gone-too', nowhere, naming('routeless, replies')),
      embed: standinFile('embed', { taskType: 'embedding', priced: false, lines: [dear] }),
      'embed-gone': externalFile('embed-gone', nowhere, { taskType: 'embedding', ...naming('embed') }),
      'embed-broken': standinFile('embed-broken', {
        taskType: 'embedding',
        flags: ['--fail-start', 'bad-model'],
        ...naming('embed'),
      }),
      rank: standinFile('rank', { taskType: 'rerank', flags: ['--runner', 'pooling', '--convert', 'classify'] }),
      'rank-gone': externalFile('rank-gone', nowhere, { taskType: 'rerank', ...naming('rank') }),
    },
    env: { HEADGATE_METRICS_PORT: '0' },
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

/** Tokens that the engine of `spare` made to be tried out. */
let probed = 0;
beforeAll(async () => {
  await (await bench.chat({ model: 'spare' })).text();
  probed = (await made('spare')) - 8;
});

describe('the hold of a request with fallbacks', () => {
  const body = { model: 'gone', max_tokens: 100 };

  it("keeps the original error and the wallet when the wallet cannot pay the other model's price", async () => {
    // The prompt's bound and 100 tokens cost below 100 micro-dollars, and more than 600 at the other price.
    for (const stream of [true, false]) {
      const { key } = await openOrganization(bench.gateway, '0.0001');
      const answer = await ask({ ...body, stream }, { key });
      expect(headerOf(answer)).toBeNull();
      expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
      expect(await bench.recordOf(answer, key)).toMatchObject({ model: 'gone', fallback_for: null, cost: '0' });
      expect(await bench.wallet(key)).toMatchObject({ balance: '0.0001', held: '0' });
    }
  });

  it("limits the output to what the wallet pays at the other model's price", async () => {
    const { key } = await openOrganization(bench.gateway, '0.0007');
    const answer = await ask(body, { key });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'spare']);
    const most = Number(answer.headers.get('x-headgate-max-tokens'));
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(100);
    expect(((await answer.json()) as Body).usage.completion_tokens).toBeLessThanOrEqual(most);
    expect(Number((await bench.wallet(key)).balance)).toBeGreaterThanOrEqual(0);
  });

  it("respects the caller's cost cap at the other model's price", async () => {
    const capped = { headers: { ...allow, 'x-headgate-max-cost': '0.00006' } };
    const passed = await bench.chat({ model: 'gone', max_tokens: 8 }, capped);
    expect(headerOf(passed)).toBe('spare');
    expect(Number(passed.headers.get('x-headgate-max-tokens'))).toBeLessThan(8);
    await passed.text();
    const tight = { headers: { ...allow, 'x-headgate-max-cost': '0.00001' } };
    const refused = await bench.chat({ model: 'gone', max_tokens: 8 }, tight);
    expect(headerOf(refused)).toBeNull();
    expect(await errorOf(refused)).toMatchObject({ code: 'upstream_error' });
  });

  it('exists once, and counts once against limits', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const { secret } = await keyOf(key, { requests_per_minute: 10, tokens_per_minute: 10_000, max_concurrency: 1 });
    const answer = await ask({ model: 'chain' }, { key: secret });
    await answer.text();
    expect(answer.headers.get('x-ratelimit-remaining-requests')).toBe('9');
    const used = await bench.recordOf(answer, key);
    const next = await ask({ model: 'chain' }, { key: secret });
    await next.text();
    expect(next.headers.get('x-ratelimit-remaining-requests')).toBe('8');
    const estimate = 10_000 - Number(answer.headers.get('x-ratelimit-remaining-tokens'));
    const after = 10_000 - Number(next.headers.get('x-ratelimit-remaining-tokens'));
    expect(after - estimate).toBe(used.input_tokens + used.output_tokens);
  });
});

describe('a stored answer of a fallback', () => {
  it('is not cached, neither for the requested model nor for the fallback', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const { secret } = await keyOf(key, { cache_responses: true });
    const options = { key: secret, headers: allow };
    for (let round = 0; round < 2; round += 1) {
      const answer = await bench.chat({ model: 'sick', temperature: 0 }, options);
      expect([headerOf(answer), answer.headers.get('x-headgate-cache')]).toEqual(['spare', 'miss']);
      await answer.text();
    }
    expect(await errorOf(await bench.chat({ model: 'sick', temperature: 0 }, { key: secret }))).toMatchObject({
      code: 'upstream_error',
    });
    const direct = await bench.chat({ model: 'spare', temperature: 0 }, options);
    expect(direct.headers.get('x-headgate-cache')).toBe('miss');
    await direct.text();
  });

  it.each([[true], [false]])('names the fallback again for an Idempotency-Key, stream %s', async (stream) => {
    const { id, key } = await openOrganization(bench.gateway, '1');
    const headers = { ...allow, 'idempotency-key': `once-${stream}` };
    const first = await bench.chat({ model: 'sick', stream }, { key, headers });
    const text = await first.text();
    expect(headerOf(first)).toBe('spare');
    const { balance } = await bench.wallet(key);
    const again = await bench.chat({ model: 'sick', stream }, { key, headers });
    expect([headerOf(again), again.headers.get('idempotent-replayed')]).toEqual(['spare', 'true']);
    expect(await again.text()).toBe(text);
    expect((await bench.wallet(key)).balance).toBe(balance);
    // A request that allows no other model is a different request.
    const strict = await bench.chat(
      { model: 'sick', stream },
      { key, headers: { 'idempotency-key': headers['idempotency-key'] } },
    );
    expect(await errorOf(strict)).toMatchObject({ status: 422 });
    const path = `/v1/organizations/${id}`;
    await bench.gateway.request(path, { method: 'PATCH', body: { models: ['sick'] } });
    const barred = await bench.chat({ model: 'sick', stream }, { key, headers });
    expect(headerOf(barred)).toBeNull();
    expect(await errorOf(barred)).toMatchObject({ status: 409, param: 'Idempotency-Key' });
  });

  it('shows the fallback as the model of the stored response', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const { secret } = await keyOf(key, { store_requests: true });
    const answer = await ask({ model: 'gone' }, { key: secret });
    await answer.text();
    const path = `/v1/usage/requests/${answer.headers.get('x-request-id')}/content`;
    const content = await eventually(async () => {
      const found = await bench.gateway.request(path, { key });
      return found.status === 200 ? ((await found.json()) as Body) : null;
    });
    expect([content.request.model, content.response.model]).toEqual(['gone', 'spare']);
  });
});

describe('routes with fallbacks', () => {
  const prompt = [{ role: 'user', content: 'Hello' }];

  it.each([
    ['/v1/completions', { prompt: 'Hello', max_tokens: 4 }],
    ['/v1/messages', { messages: prompt, max_tokens: 4 }],
    ['/v1/messages/count_tokens', { messages: prompt }],
  ])('answer %s with another model', async (path, body) => {
    const answer = await bench.post(path, { model: 'gone', ...body }, { headers: allow });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'spare']);
    await answer.text();
    expect(await bench.recordOf(answer)).toMatchObject({ model: 'spare', fallback_for: 'gone', endpoint: path });
  });

  it('answer /v1/responses with the first fallback that knows the route', async () => {
    for (const stream of [true, false]) {
      const body = { model: 'gone-too', input: 'Hello', max_output_tokens: 4, stream };
      const answer = await bench.post('/v1/responses', body, { headers: allow });
      expect([answer.status, headerOf(answer)]).toEqual([200, 'replies']);
      expect(await answer.text()).toContain('"model":"replies"');
      expect(await bench.recordOf(answer)).toMatchObject({ model: 'replies', fallback_for: 'gone-too' });
    }
  });

  it('answer /v1/rerank with another model', async () => {
    const body = { model: 'rank-gone', query: 'a', documents: ['b', 'c'] };
    const answer = await bench.post('/v1/rerank', body, { headers: allow });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'rank']);
    await answer.text();
  });

  it('answer /v1/embeddings when the file allows it, also for many texts of which none was sent', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const input = Array.from({ length: 300 }, (_, index) => `text ${index}`);
    const answer = await bench.post('/v1/embeddings', { model: 'embed-gone', input: 'one' }, { key, headers: allow });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'embed']);
    const body: Body = await answer.json();
    expect(body.model).toBe('embed');
    const record = await bench.recordOf(answer, key);
    expect(Number(record.cost)).toBeCloseTo(body.usage.prompt_tokens / 1e6, 12);
    const whole = await bench.post('/v1/embeddings', { model: 'embed-broken', input }, { key, headers: allow });
    expect([whole.status, headerOf(whole)]).toEqual([200, 'embed']);
    const vectors: Body = await whole.json();
    expect([vectors.model, vectors.data.length]).toEqual(['embed', 300]);
    expect(await bench.recordOf(whole, key)).toMatchObject({ model: 'embed', fallback_for: 'embed-broken' });
    // Some parts may have been sent: another model's vectors would stand beside them.
    const many = await bench.post('/v1/embeddings', { model: 'embed-gone', input }, { key, headers: allow });
    expect(headerOf(many)).toBeNull();
    expect(await errorOf(many)).toMatchObject({ code: 'upstream_error' });
  });
});

describe('the reports of fallbacks', () => {
  it('show the fallback in lists, CSV, the log and metrics', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const answer = await ask({ model: 'gone' }, { key });
    await answer.text();
    const id = answer.headers.get('x-request-id') ?? '';
    await bench.recordOf(answer, key);
    const list: Body = await (await bench.gateway.request('/v1/usage/requests?model=spare', { key })).json();
    expect(list.data).toEqual([expect.objectContaining({ id, model: 'spare', fallback_for: 'gone' })]);
    const csv = await (
      await bench.gateway.request('/v1/usage/requests', { key, headers: { accept: 'text/csv' } })
    ).text();
    const [heading = '', line = ''] = csv.split(/\r?\n/);
    const column = heading.split(',').indexOf('fallback_for');
    expect(column).toBeGreaterThan(0);
    expect(line.split(',')[column]).toBe('gone');
    const [row] = await bench.gateway.db.sql`select model, fallback_for from usage_records where id = ${id}`;
    expect(row).toEqual({ model: 'spare', fallback_for: 'gone' });
    const logged = bench.gateway.logLines
      .map((text): Body => JSON.parse(text))
      .find(({ requestId }) => requestId === id);
    expect(logged).toMatchObject({ model: 'spare', fallbackFor: 'gone' });
    const metrics = await (await fetch(`${bench.gateway.metricsUrl}/metrics`)).text();
    expect(metrics).toMatch(/headgate_fallbacks_total\{model="gone",fallback="spare"\} \d+/);
  });

  it('match the engine counters with the records', async () => {
    await eventually(async () => (await bench.wallet()).held === '0');
    const [row] = await bench.gateway.db
      .sql`select sum(output_tokens)::int as tokens from usage_records where model = 'spare'`;
    expect((await made('spare')) - probed).toBe(row?.['tokens']);
    expect((await verifyBooks(bench.gateway.db)).findings).toEqual([]);
  });
});
