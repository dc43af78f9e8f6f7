import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, describe, expect, it } from 'vitest';
import { type Body, externalFile, openOrganization, useInference } from './inference-gateway.ts';

/** An engine that answers with what the request says in `answer`; `hold` leaves a stream open. */
let engine: Server | null = null;

const bench = useInference(async () => {
  engine = createServer((incoming, response) => {
    void readText(incoming).then((body) => {
      const { answer, input, stream, hold }: Body = body === '' ? {} : JSON.parse(body);
      if (answer === undefined) return response.writeHead(404).end('{}');
      const made =
        Array.isArray(input) && answer.data !== undefined ? { ...answer, data: vectors(input.length) } : answer;
      response.writeHead(200, { 'content-type': stream === true ? 'text/event-stream' : 'application/json' });
      response.write(typeof made === 'string' ? made : JSON.stringify(made));
      return hold === true ? undefined : response.end();
    });
  });
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
  const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
  const sorter = externalFile('sorter', url, { taskType: 'rerank' });
  return {
    engines: { odd: externalFile('odd', url), embed: externalFile('embed', url, { taskType: 'embedding' }), sorter },
  };
});
afterAll(() => {
  engine?.close();
  engine?.closeAllConnections();
});

const vectors = (count: number): object[] =>
  Array.from({ length: count }, (_, index) => ({ object: 'embedding', index, embedding: [0.5] }));

/** 44 bytes, which are 11 tokens by their length. */
const words = 'The quick brown fox jumps over the lazy dog.';
const madeTokens = 11;

interface Route {
  readonly body: object;
  /** A complete JSON answer with `usage`, or without where that is undefined. */
  readonly answer: (usage: unknown) => object;
  readonly outputTokens: number;
}

const messages = [{ role: 'user', content: 'Hello' }];
const chat = (usage: unknown): object => ({
  id: 'x',
  model: 'odd',
  choices: [{ index: 0, message: { role: 'assistant', content: words }, finish_reason: 'stop' }],
  usage,
});
const list = (usage: unknown): object => ({ object: 'list', model: 'embed', data: vectors(1), usage });

const routes: Readonly<Record<string, Route>> = {
  '/v1/chat/completions': { body: { model: 'odd', messages }, answer: chat, outputTokens: madeTokens },
  '/v1/completions': {
    body: { model: 'odd', prompt: 'Hello', max_tokens: 64 },
    answer: (usage) => ({ id: 'x', model: 'odd', choices: [{ index: 0, text: words, finish_reason: 'stop' }], usage }),
    outputTokens: madeTokens,
  },
  '/v1/responses': {
    body: { model: 'odd', input: 'Hello' },
    answer: (usage) => ({
      object: 'response',
      status: 'completed',
      model: 'odd',
      output: [{ type: 'message', id: 'm', role: 'assistant', content: [{ type: 'output_text', text: words }] }],
      usage,
    }),
    outputTokens: madeTokens,
  },
  '/v1/messages': {
    body: { model: 'odd', messages, max_tokens: 64 },
    answer: (usage) => ({
      type: 'message',
      role: 'assistant',
      model: 'odd',
      content: [{ type: 'text', text: words }],
      stop_reason: 'end_turn',
      usage,
    }),
    outputTokens: madeTokens,
  },
  '/v1/embeddings': { body: { model: 'embed', input: 'Hello' }, answer: list, outputTokens: 0 },
  '/v1/rerank': {
    body: { model: 'sorter', query: 'Hello', documents: ['a', 'b'] },
    answer: (usage) => ({ id: 'x', model: 'sorter', results: [{ index: 0, relevance_score: 1 }], usage }),
    outputTokens: 0,
  },
};

const usd = ({ input_tokens: input, output_tokens: output }: Body): number => (input * 0.1 + output * 0.4) / 1e6;

const odd: readonly (readonly [string, unknown])[] = [
  ['absent', undefined],
  ['null', null],
  ['a text', '12'],
  ['a part of a token', { prompt_tokens: 1.5, input_tokens: 1.5 }],
  ['zeros', { prompt_tokens: 0, completion_tokens: 0, input_tokens: 0, output_tokens: 0 }],
  ['other members', { in: 5, out: 9 }],
];

describe.each(Object.entries(routes))(
  'a complete JSON answer of %s whose usage is',
  (path, { body, answer, outputTokens }) => {
    it.each(odd)('%s is counted by its text, and the prompt by the estimate', async (_, usage) => {
      const sent = { ...body, answer: answer(usage) };
      const got = await bench.post(path, sent);
      expect(got.status).toBe(200);
      await got.text();
      const record = await bench.recordOf(got);
      expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted', output_tokens: outputTokens });
      expect(record.input_tokens).toBe(Math.ceil(JSON.stringify(sent).length / 4));
      expect(record).toMatchObject({ written_off: '0' });
      expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
    });
  },
);

it('counts embeddings in parts whose engine has no count', async () => {
  const input = Array.from({ length: 300 }, (_, index) => `text ${index}`);
  const got = await bench.post('/v1/embeddings', { model: 'embed', input, answer: list(undefined) });
  expect(((await got.json()) as Body).data).toHaveLength(300);
  const record = await bench.recordOf(got);
  expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted', written_off: '0' });
  expect(record.input_tokens).toBeGreaterThan(JSON.stringify(input).length / 4 - 10);
  expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
});

it('takes the total for the prompt where an engine that makes no tokens counts no other', async () => {
  const { body, answer } = routes['/v1/rerank'] ?? { body: {}, answer: () => ({}) };
  const got = await bench.post('/v1/rerank', { ...body, answer: answer({ total_tokens: 21 }) });
  await got.text();
  expect(await bench.recordOf(got)).toMatchObject({ input_tokens: 21, usage_source: 'engine' });
});

const frame = (body: object): string => `data: ${JSON.stringify(body)}\n\n`;
const chunk = (content: string, more: object = {}): string =>
  frame({ id: 'x', model: 'odd', choices: [{ index: 0, delta: { content }, finish_reason: null }], ...more });
const finish = frame({ id: 'x', model: 'odd', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
const last = (usage: object): string => frame({ id: 'x', model: 'odd', choices: [], usage });
const running = (completion: number): object => ({ usage: { prompt_tokens: 9, completion_tokens: completion } });
const done = 'data: [DONE]\n\n';

const counts = chunk('a', running(1)) + chunk('b', running(2));

it.each([
  ['zeros, after running counts', { begin: counts, input: 0, output: 0 }, ['last_seen', 9, 2]],
  ['less, after running counts', { begin: counts, input: 9, output: 1 }, ['last_seen', 9, 2]],
  ['less of the prompt', { begin: chunk('a', running(1)), input: 4, output: 1 }, ['last_seen', 9, 1]],
  [
    'zeros, after text',
    { begin: chunk('Hello') + chunk(' you'), input: 0, output: 0 },
    ['counted', expect.any(Number), 2],
  ],
])(
  'a last count of %s takes back nothing',
  async (_, { begin, input, output }, [source, inputTokens, outputTokens]) => {
    const text = begin + finish + last({ prompt_tokens: input, completion_tokens: output }) + done;
    const got = await bench.chat({ model: 'odd', stream: true, answer: text });
    expect(await got.text()).toContain('[DONE]');
    const record = await bench.recordOf(got);
    expect(record).toMatchObject({ outcome: 'completed', usage_source: source, output_tokens: outputTokens });
    expect(record.input_tokens).toEqual(inputTokens);
    expect(record.input_tokens).toBeGreaterThan(0);
  },
);

it.each<[string, object, string]>([
  ['/v1/chat/completions', { messages }, chunk('Hello')],
  ['/v1/responses', { input: 'Hello' }, frame({ delta: 'Hello', type: 'response.output_text.delta' })],
])('a stream of %s that its client leaves before any count pays for its prompt', async (path, fields, answer) => {
  const { key } = await openOrganization(bench.gateway, '1');
  const body = { model: 'odd', stream: true, hold: true, ...fields, answer };
  const got = await bench.post(path, body, { key });
  const reader = got.body?.getReader();
  await reader?.read();
  await reader?.cancel();
  const record = await bench.recordOf(got, key);
  expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'counted', output_tokens: 1 });
  expect(record.input_tokens).toBe(Math.ceil(JSON.stringify(body).length / 4));
});

it('notifies the operator once of each fault of an engine', () => {
  const lines = bench.gateway.logLines.filter((line) => line.includes('token count'));
  const faults = lines.map((line) => JSON.parse(line)).filter(({ engine: id }) => id === 'odd');
  expect(faults.map(({ msg }) => msg.includes('no usable')).toSorted((a, b) => Number(a) - Number(b))).toEqual([
    false,
    true,
  ]);
});
