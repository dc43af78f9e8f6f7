import { trace } from '@opentelemetry/api';
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeKey } from '#test/cache/caching-key.ts';
import { type Endpoint, endpoints } from '#edge/inference/request/endpoints.ts';
import {
  type Body,
  eventually,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Parts of every route in the one table: a record, limits, a bill, the cache, kept content, traces. */

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }));
afterAll(() => trace.disable());

const flags = ['--enable-prompt-tokens-details', '--enable-force-include-usage'];
const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat', { flags }),
    embed: standinFile('embed', { taskType: 'embedding' }),
    sorter: standinFile('sorter', { taskType: 'rerank', flags: ['--runner', 'pooling', '--convert', 'classify'] }),
  },
}));

/** The body for each route, with a word that makes it another request. */
const asked: Readonly<Record<(typeof endpoints)[number]['path'], (word: string) => object>> = {
  '/v1/chat/completions': (word) => ({ model: 'chat', max_tokens: 4, messages: [{ role: 'user', content: word }] }),
  '/v1/completions': (word) => ({ model: 'chat', max_tokens: 4, prompt: word }),
  '/v1/responses': (word) => ({ model: 'chat', max_output_tokens: 4, input: word }),
  '/v1/messages': (word) => ({ model: 'chat', max_tokens: 4, messages: [{ role: 'user', content: word }] }),
  '/v1/messages/count_tokens': (word) => ({ model: 'chat', messages: [{ role: 'user', content: word }] }),
  '/v1/responses/input_tokens': (word) => ({ model: 'chat', input: word }),
  '/v1/tokenize': (word) => ({ model: 'chat', prompt: word }),
  '/v1/detokenize': (word) => ({ model: 'chat', tokens: [...Buffer.from(word)] }),
  '/v1/embeddings': (word) => ({ model: 'embed', input: word }),
  '/v1/rerank': (word) => ({ model: 'sorter', query: word, documents: ['deep sea', 'bread'] }),
  '/v1/score': (word) => ({ model: 'sorter', text_1: word, text_2: 'deep sea' }),
};

let owner = '';
beforeAll(async () => {
  owner = (await openOrganization(bench.gateway, '5')).key;
});

/** A key for one test. An organization has five at most. */
async function withKey(fields: object, use: (key: string) => Promise<void>): Promise<void> {
  const made = await makeKey(bench, owner, fields);
  try {
    await use(made.secret);
  } finally {
    await bench.gateway.request(`/v1/keys/${made.id}`, { method: 'DELETE', key: owner });
  }
}

const rows = endpoints.flatMap((endpoint: Endpoint) => {
  const forms = endpoint.generates ? [false, true] : [false];
  return forms.map((stream) => [endpoint.path, stream, endpoint] as const);
});

describe.each(rows)('%s, streamed: %s', (path, stream, { isFree = false, operation }) => {
  const body = (word: string): object => ({
    ...asked[path as keyof typeof asked](word),
    ...(stream && { stream }),
  });
  const ask = async (key: string, word: string, headers: Record<string, string> = {}) => {
    const answer = await bench.post(path, body(word), { key, headers });
    return { answer, status: answer.status, text: await answer.text() };
  };

  /** The same request gets the same JSON; frames may be cut elsewhere. */
  const shown = (text: string): unknown => (stream ? text.includes('data: {') : JSON.parse(text));

  it('returns 429 beyond the requests-per-minute limit of its key', async () => {
    await withKey({ requests_per_minute: 1 }, async (key) => {
      expect((await ask(key, 'within')).status).toBe(200);
      const { status, text, answer } = await ask(key, 'beyond');
      expect([status, JSON.parse(text).error.code]).toEqual([429, 'rate_limit_exceeded']);
      expect(answer.headers.get('retry-after')).not.toBeNull();
    });
  });

  it('has its record, charge and spans', async () => {
    await withKey({}, async (key) => {
      const before = Number((await bench.wallet(owner)).balance);
      const { answer, status } = await ask(key, 'a deep sea');
      expect(status).toBe(200);
      const record = await bench.recordOf(answer, owner);
      expect(record).toMatchObject({ endpoint: path, outcome: 'completed', stream });
      expect(record.usage_source).toBe(isFree ? 'none' : 'engine');
      expect(Number(record.cost) > 0).toBe(!isFree);
      expect(Number((await bench.wallet(owner)).balance)).toBeCloseTo(before - Number(record.cost), 10);
      const spans = await eventually(() => Promise.resolve(spansOf(answer)));
      expect(spans.map(({ name }) => name)).toEqual([`POST ${path}`, `${operation} ${record.model}`]);
      expect(spans[0]?.attributes).toMatchObject({
        'http.route': path,
        'gen_ai.operation.name': operation,
        'gen_ai.request.model': record.model,
        'gen_ai.usage.input_tokens': record.input_tokens,
      });
    });
  });

  it('is answered from the cache for free when its key caches responses', async () => {
    await withKey({ cache_responses: true }, async (key) => {
      const word = `the same again, streamed: ${stream}`;
      const [first, second] = [await ask(key, word), await ask(key, word)];
      expect([first, second].map(({ answer }) => answer.headers.get('x-headgate-cache'))).toEqual(['miss', 'hit']);
      expect(await bench.recordOf(second.answer, owner)).toMatchObject({ cost: '0', cache_hit: true });
    });
  });

  it('is stored when its key stores requests, and runs once per Idempotency-Key', async () => {
    await withKey({ store_requests: true }, async (key) => {
      const headers = { 'idempotency-key': `${path} ${stream}` };
      const first = await ask(key, 'kept word', headers);
      const again = await ask(key, 'kept word', headers);
      expect([again.status, again.answer.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
      expect(shown(again.text)).toEqual(shown(first.text));
      const id = first.answer.headers.get('x-request-id') ?? '';
      const content: Body = await eventually(async () => {
        const read = await bench.gateway.request(`/v1/usage/requests/${id}/content`, { key: owner });
        return read.status === 200 ? read.json() : null;
      });
      expect(content.request).toEqual(body('kept word'));
      expect(JSON.stringify(content.response).length).toBeGreaterThan(10);
    });
  });
});

/** The span of the server, then that of the engine; null until both are there. */
function spansOf(answer: Response): readonly ReadableSpan[] | null {
  const finished = exporter.getFinishedSpans();
  const server = finished.find((span) => span.attributes['headgate.request.id'] === answer.headers.get('x-request-id'));
  if (server === undefined) return null;
  const { traceId } = server.spanContext();
  return [server, ...finished.filter((span) => span !== server && span.spanContext().traceId === traceId)];
}
