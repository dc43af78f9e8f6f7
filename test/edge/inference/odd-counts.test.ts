import { afterAll, describe, expect, it } from 'vitest';
import { type Body, externalFile, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import {
  chatAnswer,
  chunk,
  counts,
  done,
  finish,
  frame,
  last,
  routes,
  startToldEngine,
  type ToldEngine,
} from './told-engine.ts';

let engine: ToldEngine | null = null;

const bench = useInference(async () => {
  engine = await startToldEngine();
  const { url } = engine;
  return {
    engines: {
      odd: externalFile('odd', url),
      open: externalFile('open', url, { lines: ['kind: openai'] }),
      embed: externalFile('embed', url, { taskType: 'embedding' }),
      sorter: externalFile('sorter', url, { taskType: 'rerank' }),
      'vllm-odd': externalFile('vllm-odd', url, { lines: ['kind: vllm'] }),
      'vllm-embed': externalFile('vllm-embed', url, { taskType: 'embedding', lines: ['kind: vllm'] }),
      'vllm-sorter': externalFile('vllm-sorter', url, { taskType: 'rerank', lines: ['kind: vllm'] }),
    },
  };
});
afterAll(() => engine?.close());

const messages = [{ role: 'user', content: 'Hello' }];
const { answer: chat } = routes['/v1/chat/completions'];
const { answer: list } = routes['/v1/embeddings'];

/** Members of `usage`, on the routes that have other names than OpenAI's first API. */
const figuresOf: Readonly<Record<string, readonly [string, string]>> = {
  '/v1/responses': ['input_tokens', 'output_tokens'],
  '/v1/messages': ['input_tokens', 'output_tokens'],
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

const kinds = Object.entries(routes).flatMap(([path, route]) => {
  return ['openai', 'vllm'].map((kind) => ({ path, kind, ...route }));
});

describe.each(kinds)(
  'a complete JSON answer of $path without a usable count from an engine of kind: $kind',
  ({ path, kind, body, answer, outputTokens }) => {
    const model = kind === 'vllm' ? `vllm-${body.model}` : body.model;

    it.each(odd)(
      'is counted by its text with an estimated prompt, shown to the client, when usage is %s',
      async (_, usage) => {
        const sent = { ...body, model, usage: { include: true }, answer: answer(usage) };
        const got = await bench.post(path, sent);
        expect(got.status).toBe(200);
        const { usage: shown }: Body = await got.json();
        const record = await bench.recordOf(got);
        const [input, output] = figuresOf[path] ?? ['prompt_tokens', 'completion_tokens'];
        expect(shown).toMatchObject({ [input]: record.input_tokens, [output]: outputTokens });
        expect(shown.cost).toBe(Number(record.cost));
        expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted', output_tokens: outputTokens });
        expect(record.input_tokens).toBe(Math.ceil(JSON.stringify(sent).length / 4));
        expect(record).toMatchObject({ written_off: '0' });
        expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
      },
    );
  },
);

it.each(['/v1/embeddings', '/v1/rerank'] as const)(
  'charges the total of %s when the prompt is counted as 0',
  async (path) => {
    const { body, answer } = routes[path];
    const got = await bench.post(path, { ...body, answer: answer({ prompt_tokens: 0, total_tokens: 321 }) });
    await got.text();
    expect(await bench.recordOf(got)).toMatchObject({ usage_source: 'engine', input_tokens: 321, output_tokens: 0 });
  },
);

describe('a prompt without a count', () => {
  const textAnswer = routes['/v1/completions'].answer(undefined);

  it.each([
    ['one list', (ids: number[]) => ids, 1000],
    ['two lists', (ids: number[]) => [ids, ids], 2000],
  ])('has one token per id for token ids in %s', async (_, promptOf, tokens) => {
    const prompt = promptOf(Array.from({ length: 1000 }, (__, index) => 100_000 + index));
    const body = { model: 'open', prompt, max_tokens: 10, answer: textAnswer };
    const got = await bench.post('/v1/completions', body);
    expect(got.status, await got.text()).toBe(200);
    const rest = JSON.stringify(body).length - JSON.stringify(prompt).length;
    expect(await bench.recordOf(got)).toMatchObject({ input_tokens: tokens + Math.ceil(rest / 4) });
  });

  it.each<[string, (text: string) => unknown[]]>([
    ['after an id', (text) => [1, text]],
    ['before ids', (text) => [text, 7, 8]],
    ['between lists of ids', (text) => [[1, 2], text, [3]]],
    ['in a list of ids', (text) => [[1, text, 2]]],
  ])('has the bytes of a text %s', async (_, promptOf) => {
    const text = 'word, '.repeat(1000);
    const body = { model: 'open', prompt: promptOf(text), max_tokens: 10, answer: textAnswer };
    const got = await bench.post('/v1/completions', body);
    expect(got.status, await got.text()).toBe(200);
    const { input_tokens: tokens } = await bench.recordOf(got);
    expect(tokens).toBeGreaterThanOrEqual(Math.ceil(text.length / 4));
  });

  it('has one token per id for 1.4 MB of ids', async () => {
    const input = Array.from({ length: 2000 }, () => Array.from({ length: 100 }, (_, index) => 100_000 + index));
    const got = await bench.post('/v1/embeddings', { model: 'embed', input, answer: list(undefined) });
    expect(got.status, await got.text()).toBe(200);
    expect(await bench.recordOf(got)).toMatchObject({ usage_source: 'counted', input_tokens: 200_000 });
  });

  it('does not include the schema of its answer', async () => {
    const names = Array.from({ length: 200 }, (_, index) => `property_number_${index}`);
    const schema = { type: 'object', properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) };
    const format = { type: 'json_schema', json_schema: { name: 'a', schema } };
    const body = { model: 'open', messages, max_tokens: 10, response_format: format, answer: chat(undefined) };
    const got = await bench.chat(body);
    expect(got.status, await got.text()).toBe(200);
    const rest = JSON.stringify(body).length - JSON.stringify(format).length;
    expect(await bench.recordOf(got)).toMatchObject({ input_tokens: Math.ceil(rest / 4) });
  });
});

it.each([
  ['by itself', {}],
  ['beside a member of 60 KB that is not read', { text: 'x'.repeat(60_000) }],
])('counts embeddings in parts whose engine has no count, %s', async (_, beside) => {
  const input = Array.from({ length: 300 }, (__, index) => `text ${index}`);
  const got = await bench.post('/v1/embeddings', { model: 'embed', input, ...beside, answer: list(undefined) });
  expect(((await got.json()) as Body).data).toHaveLength(300);
  const record = await bench.recordOf(got);
  expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted', written_off: '0' });
  expect(record.input_tokens).toBeGreaterThan(JSON.stringify(input).length / 4 - 10);
  expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
});

it.each([undefined, null])('shows the usage and cost of all parts when one part counts %s', async (none) => {
  const input = Array.from({ length: 300 }, (_, index) => (index === 0 ? 'first' : `text ${index}`));
  const answer = [list(none), list({ prompt_tokens: 150, total_tokens: 150 })];
  const got = await bench.post('/v1/embeddings', { model: 'embed', input, usage: { include: true }, answer });
  const body: Body = await got.json();
  expect(body.data).toHaveLength(300);
  const record = await bench.recordOf(got);
  expect(record.input_tokens).toBeGreaterThan(300);
  const tokens = record.input_tokens;
  expect(body.usage).toEqual({
    prompt_tokens: tokens,
    total_tokens: tokens,
    completion_tokens: 0,
    cost: Number(record.cost),
  });
});

it('charges the total as the prompt when an engine without output counts nothing else', async () => {
  const { body, answer } = routes['/v1/rerank'];
  const got = await bench.post('/v1/rerank', { ...body, answer: answer({ total_tokens: 21 }) });
  await got.text();
  expect(await bench.recordOf(got)).toMatchObject({ input_tokens: 21, usage_source: 'engine' });
});

const running = chunk('a', counts(9, 1)) + chunk('b', counts(9, 2));

it.each([
  ['zeros, after running counts', { begin: running, input: 0, output: 0 }, ['last_seen', 9, 2]],
  ['less, after running counts', { begin: running, input: 9, output: 1 }, ['last_seen', 9, 2]],
  ['less of the prompt', { begin: chunk('a', counts(9, 1)), input: 4, output: 1 }, ['last_seen', 9, 1]],
  [
    'zeros, after text',
    { begin: chunk('Hello') + chunk(' you'), input: 0, output: 0 },
    ['counted', expect.any(Number), 2],
  ],
])(
  'keeps the earlier count when the last count is %s',
  async (_, { begin, input, output }, [source, inputTokens, outputTokens]) => {
    const text = begin + finish() + last(input, output) + done;
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
])('charges the prompt of a stream of %s whose client leaves before any count', async (path, fields, answer) => {
  const { key } = await openOrganization(bench.gateway, '1');
  const body = { model: 'odd', stream: true, hold: path, ...fields, answer };
  const got = await bench.post(path, body, { key });
  const reader = got.body?.getReader();
  await reader?.read();
  await reader?.cancel();
  const record = await bench.recordOf(got, key);
  expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'counted', output_tokens: 1 });
  expect(record.input_tokens).toBe(Math.ceil(JSON.stringify(body).length / 4));
});

it.each([
  [{ max_tokens: 8 }, 8],
  [{ max_tokens: undefined, max_completion_tokens: 8 }, 8192],
])(
  'records the maximum output that an engine without a count may have counted, for the limit %j: %d',
  async (limit, most) => {
    const got = await bench.chat({ model: 'open', ...limit, stream: true, answer: chunk('Hello') + finish() + done });
    await got.text();
    const { id } = await bench.recordOf(got);
    const [row] = await bench.gateway.db.sql<{ most: string }[]>`
    select completion_tokens_max::text as most from usage_requests where id = ${id}::uuid`;
    expect(row?.most).toBe(String(most));
  },
);

/** The numbers of chunks with text, in their order. */
const numbers = Array.from({ length: 500 }, (_, index) => index + 1);

it.each<[string, (number: number) => number, number]>([
  ['stand still', () => 1, 499],
  ['are 0 after the first', (number) => (number === 1 ? 5 : 0), 499],
  ['grow with every tenth chunk', (number) => 1 + Math.floor(number / 10), 449],
  ['grow with every chunk', (number) => number, 500],
  ['grow with every second chunk, as where a token takes two', (number) => Math.ceil(number / 2), 250],
])('charges a stream of 500 text chunks whose counts %s for the counted or sent tokens', async (_, countOf, tokens) => {
  const answer = numbers.map((number) => chunk('word ', counts(9, countOf(number)))).join('') + finish();
  const end = last(9, countOf(500)) + done;
  for (const text of [answer + end, answer + done]) {
    const got = await bench.chat({ model: 'open', stream: true, max_tokens: 2000, answer: text });
    await got.text();
    expect(await bench.recordOf(got)).toMatchObject({ outcome: 'completed', input_tokens: 9, output_tokens: tokens });
  }
});

const cachedDetails = { prompt_tokens_details: { cached_tokens: 3990 } };

describe('a count that an engine has sent once', () => {
  it.each<[string, string, object]>([
    [
      'by a second last count of zeros',
      chunk('Hello') + finish() + last(900, 100) + last(0, 0),
      { input_tokens: 900, output_tokens: 100, usage_source: 'engine' },
    ],
    [
      'by a running count without the prompt',
      chunk('a', counts(1300, 1)) + chunk('b', counts(0, 2)) + finish(),
      { input_tokens: 1300, output_tokens: 2, usage_source: 'last_seen' },
    ],
    [
      'by a last count that does not say what was cached',
      chunk('a', counts(4000, 1, cachedDetails)) + finish() + last(4000, 5),
      { input_tokens: 4000, input_cached_tokens: 3990, output_tokens: 5, usage_source: 'engine' },
    ],
  ])('is not lowered %s', async (_, answer, record) => {
    const got = await bench.chat({ model: 'odd', stream: true, max_tokens: 200, answer: answer + done });
    await got.text();
    expect(await bench.recordOf(got)).toMatchObject({ outcome: 'completed', ...record });
  });

  it('is not lowered by a second message_delta that counts less', async () => {
    const delta = (tokens: number): string =>
      frame({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: tokens } });
    const message = { model: 'odd', role: 'assistant', usage: { input_tokens: 900, output_tokens: 1 } };
    const text = { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } };
    const answer =
      frame({ type: 'message_start', message }) + frame(text) + delta(100) + delta(1) + frame({ type: 'message_stop' });
    const got = await bench.post('/v1/messages', { model: 'odd', stream: true, messages, max_tokens: 200, answer });
    await got.text();
    expect(await bench.recordOf(got)).toMatchObject({ input_tokens: 900, output_tokens: 100 });
  });
});

it.each(['odd', 'open'])(
  'charges two choices once when each chunk counts the whole request, engine %s',
  async (model) => {
    const pairs = Array.from(
      { length: 50 },
      (_, pair) => chunk('word ', counts(9, 2 * pair + 1), 0) + chunk('word ', counts(9, 2 * pair + 2), 1),
    );
    const answer = pairs.join('') + finish(0, counts(9, 100)) + finish(1, counts(9, 100)) + last(9, 100) + done;
    const got = await bench.chat({ model, stream: true, n: 2, max_tokens: 100, answer });
    await got.text();
    expect(await bench.recordOf(got)).toMatchObject({ input_tokens: 9, output_tokens: 100, usage_source: 'engine' });
  },
);

describe('an engine count beyond what the request can have', () => {
  it.each([
    ['output beyond max_tokens', counts(9, 1900), { input_tokens: 9, output_tokens: 8 }],
    ['a prompt beyond the context', counts(900_000_000, 3), { input_tokens: 8192, output_tokens: 3 }],
  ])('is neither billed nor recorded: %s', async (_, counted, tokens) => {
    const got = await bench.chat({ model: 'odd', max_tokens: 8, answer: chatAnswer(counted) });
    await got.text();
    const record = await bench.recordOf(got);
    expect(record).toMatchObject({ ...tokens, written_off: '0' });
    expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
  });

  it('uses up no monthly token limit', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const limits = { name: 'limited', monthly_token_limit: 100_000 };
    const { secret }: Body = await (await bench.gateway.request('/v1/keys', { key, body: limits })).json();
    for (const _ of ['first', 'second']) {
      const got = await bench.chat({ model: 'odd', answer: chatAnswer(counts(900_000_000, 1)) }, { key: secret });
      expect(got.status, await got.text()).toBe(200);
    }
  });
});

it('bills a message without its cached tokens when its prompt counts exceed the context', async () => {
  const { body, answer } = routes['/v1/messages'];
  const usage = { input_tokens: 5, cache_read_input_tokens: 1_000_000_000, output_tokens: 11 };
  const got = await bench.post('/v1/messages', { ...body, answer: answer(usage) });
  await got.text();
  const record = await bench.recordOf(got);
  expect(record).toMatchObject({ input_cached_tokens: 0, output_tokens: 11, written_off: '0' });
  expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
});

it.each<[string, object]>([
  ['zeros', counts(0, 0)],
  ['no output', { usage: { prompt_tokens: 9 } }],
])('keeps the counts of four choices when the last count is %s', async (_, usage) => {
  const choices = [0, 1, 2, 3].map((index) => chunk('a', counts(9, 1), index) + chunk('b', counts(9, 100), index));
  const ends = [0, 1, 2, 3].map((index) => finish(index));
  const end = frame({ id: 'x', model: 'odd', choices: [], ...usage });
  const answer = choices.join('') + ends.join('') + end + done;
  const got = await bench.chat({ model: 'odd', stream: true, n: 4, max_tokens: 100, answer });
  await got.text();
  expect(await bench.recordOf(got)).toMatchObject({ input_tokens: 9, output_tokens: 400, usage_source: 'last_seen' });
});

it('logs each kind of count fault of an engine once', () => {
  const lines = bench.gateway.logLines.filter((line) => line.includes('token count'));
  const faults = lines.map((line) => JSON.parse(line)).filter(({ engine: id }) => id === 'odd');
  const kinds = ['no usable', 'below the tokens', 'above what the request'];
  expect(kinds.map((kind) => faults.filter(({ msg }) => msg.includes(kind)).length)).toEqual([1, 1, 1]);
  expect(faults).toHaveLength(3);
});
