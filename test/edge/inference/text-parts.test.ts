import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { makeKey, openReuse } from '../../core/cache/caching-key.ts';
import { answerText, type EmbeddingServers, startEmbeddingServers, tokensPerText } from './embedding-servers.ts';
import { type Body, errorOf, eventually, openOrganization, useInference } from './inference-gateway.ts';

const path = '/v1/embeddings';
const partTexts = 128;

let servers: EmbeddingServers;
let single: EmbeddingServers;
const bench = useInference(async () => {
  servers = await startEmbeddingServers(3);
  single = await startEmbeddingServers(1);
  return {
    engines: {
      three: fileOf('three', servers.urls),
      one: fileOf('one', single.urls, 'kind: vllm'),
      flex: fileOf('flex', servers.urls, 'max_concurrent: 50').replace(
        'output_per',
        'flex_multiplier: 0.5, output_per',
      ),
    },
    env: { HEADGATE_MAX_TEXTS: '5000' },
  };
});
afterAll(() => {
  servers.close();
  single.close();
});
beforeEach(() => {
  servers.reset();
  single.reset();
});

function fileOf(id: string, urls: readonly string[], ...lines: string[]): string {
  return [
    'version: 1',
    `id: ${id}`,
    `name: ${id}`,
    `hugging_face_id: test/${id}`,
    'task_type: embedding',
    'context_length: 8192',
    'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0 }',
    'driver: external',
    `urls: ${JSON.stringify(urls)}`,
    ...lines,
    '',
  ].join('\n');
}

const textsOf = (count: number): string[] => Array.from({ length: count }, (_, index) => `text ${index}`);
const embed = (fields: object, options = {}) => bench.post(path, { model: 'three', ...fields }, options);

/** All numbers from 0 on, in their order, are in an answer. */
function expectWhole(body: Body, count: number): void {
  const all = Array.from({ length: count }, (_, index) => index);
  expect(body.data.map(({ index }: Body) => index)).toEqual(all);
  expect(body.data.map(({ embedding }: Body) => embedding[0])).toEqual(all);
  expect(body.usage).toMatchObject({ prompt_tokens: tokensPerText * count, total_tokens: tokensPerText * count });
}

const partsOf = (list: EmbeddingServers['asked']) => list.toSorted((a, b) => (a.numbers[0] ?? 0) - (b.numbers[0] ?? 0));

/** The cost of so many tokens, in dollars. */
const costOf = (tokens: number): number => (tokens * 0.1) / 1e6;

describe('a list of texts that is wrong', () => {
  it.each<[string, unknown, string]>([
    ['a number', 7, 'must be a string or a list of token ids'],
    ['null', null, 'must be a string or a list of token ids'],
    ['an object', { role: 'user' }, 'must be a string or a list of token ids'],
    ['a list of texts', ['a'], 'must be a string or a list of token ids'],
  ])('by having %s among texts is refused with its place in the whole list', async (_, odd, says) => {
    const input = textsOf(400).with(333, odd as string);
    const error = await errorOf(await embed({ input }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input[333]' });
    expect(error.message).toContain(says);
    expect(servers.asked).toEqual([]);
  });

  it('by having texts and token ids is refused where vLLM would refuse it, and else sent', async () => {
    const input = textsOf(400).with(300, [1, 2] as never);
    const error = await errorOf(await embed({ model: 'one', input }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input[300]' });
    expect(single.asked).toEqual([]);
    expect((await embed({ input })).status).toBe(200);
  });

  it('by being too long is refused, and the bound is named', async () => {
    const error = await errorOf(await embed({ input: textsOf(5001) }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input' });
    expect(error.message).toContain('5000');
    expectWhole(await (await embed({ input: textsOf(5000) })).json(), 5000);
  });

  it('is not sent for who cannot pay for all of it', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0001');
    const refused = await embed({ input: textsOf(1000) }, { key });
    expect(await errorOf(refused)).toMatchObject({ status: 402, code: 'insufficient_funds' });
    expect(servers.asked).toEqual([]);
  });
});

describe('many texts', () => {
  it.each([1, 2, partTexts])('up to one part, such as %d, are sent as they came', async (count) => {
    const input = textsOf(count);
    const answer = await embed({ input, user: 'somebody' });
    expect(servers.asked.map(({ body }) => body)).toEqual([{ model: 'three', input, user: 'somebody' }]);
    expect(servers.asked[0]?.id).toBe(answer.headers.get('x-request-id'));
    const id = `${servers.asked[0]?.id}`;
    expect(await answer.text()).toBe(answerText(id, [...input.keys()]).replace('own/name', 'three'));
  });

  it('are sent in parts with all else that the request says, and answered as one', async () => {
    const input = textsOf(500);
    const more = { encoding_format: 'float', dimensions: 2, made_up: { a: [1, '"input":[]'] }, user: 'somebody' };
    const answer = await bench.post(path, JSON.stringify({ ...more, input, model: 'three' }, null, 1));
    const id = String(answer.headers.get('x-request-id'));
    const parts = partsOf(servers.asked);
    expect(parts.map(({ numbers }) => numbers.length)).toEqual([125, 125, 125, 125]);
    expect(parts.flatMap(({ body }) => body.input)).toEqual(input);
    for (const { body } of parts) expect(body).toEqual({ ...more, input: body.input, model: 'three' });
    expect(parts.map((part) => part.id)).toEqual([id, `${id}-125`, `${id}-250`, `${id}-375`]);
    const usage = { prompt_tokens: 1000, total_tokens: 1000, completion_tokens: 0, prompt_tokens_details: null };
    const numbers = [...input.keys()];
    expect(await answer.text()).toBe(answerText(id, numbers, { model: 'three', usage }));
  });

  it('are cut by their bytes, a text that is longer than a part being one', async () => {
    const filler = 'é'.repeat(50_000);
    const input = textsOf(6).map((text, index) => `${filler.repeat(index === 3 ? 4 : 1)}${text}`);
    const answer = await embed({ input });
    expect(partsOf(servers.asked).map(({ numbers }) => numbers)).toEqual([[0, 1], [2], [3], [4, 5]]);
    expect(servers.asked.flatMap(({ body }) => body.input).toSorted()).toEqual(input.toSorted());
    expectWhole(await answer.json(), 6);
  });

  it('may be lists of token ids, and one list of them is one text', async () => {
    const input = textsOf(300).map((_, index) => [1, index]);
    await (await embed({ input })).text();
    expect(servers.asked.map(({ body }) => body.input.length)).toEqual([100, 100, 100]);
    expect(servers.asked.flatMap(({ body }) => body.input).toSorted((a, b) => a[1] - b[1])).toEqual(input);
    servers.reset();
    await (await embed({ input: input.map(([, id]) => id) })).text();
    expect(servers.asked).toHaveLength(1);
  });

  it.each([
    ['bytes', { encoding_format: 'bytes' }, 400],
    ['a format that is not known', { encoding_format: 'hex' }, 200],
    ['chats', { input: textsOf(300).map((text) => [{ role: 'user', content: text }]) }, 200],
    ['one chat', { input: textsOf(300).map((text) => ({ role: 'user', content: text })) }, 200],
    ['chats beside them', { messages: [{ role: 'user', content: 'Hello' }] }, 200],
  ])('are not cut where the answer could not be joined: %s', async (_, fields, status) => {
    servers.onAsked = (one) => one.send(200, answerText(one.id, [0]));
    const answer = await embed({ input: textsOf(300), ...fields });
    expect([answer.status, servers.asked.length]).toEqual([status, status === 200 ? 1 : 0]);
    await answer.text();
  });

  it('go to all replicas side by side, two parts to each, and no more at once', async () => {
    servers.onAsked = () => undefined;
    const answer = embed({ input: textsOf(1500), user: 'whose requests belong together' });
    await expect.poll(() => servers.open.length).toBe(6);
    expect([0, 1, 2].map((place) => servers.open.filter(({ server }) => server === place).length)).toEqual([2, 2, 2]);
    let mostOpen = 0;
    while (servers.asked.length < 12 || servers.open.length > 0) {
      mostOpen = Math.max(mostOpen, servers.open.length);
      // The last one first: they end in another order than they stand in.
      const last = servers.open.at(-1);
      last?.answer();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(mostOpen).toBeLessThanOrEqual(6);
    expectWhole(await (await answer).json(), 1500);
  });

  it('leave room for others at a model with one replica', async () => {
    single.onAsked = (one) => {
      if (one.numbers.length < partTexts) one.answer();
    };
    const many = embed({ model: 'one', input: textsOf(10 * partTexts) });
    await expect.poll(() => single.open.length).toBe(2);
    const few = await embed({ model: 'one', input: ['text 0'] });
    expectWhole(await few.json(), 1);
    expect(single.asked).toHaveLength(3);
    single.onAsked = (one) => one.answer();
    for (const one of single.open) one.answer();
    expectWhole(await (await many).json(), 10 * partTexts);
  });

  it('of the tier flex are sent one part after the other', async () => {
    let atOnce = 0;
    servers.onAsked = (one) => {
      atOnce = Math.max(atOnce, servers.open.length);
      setImmediate(() => one.answer());
    };
    const answer = await embed({ model: 'flex', service_tier: 'flex', input: textsOf(700) });
    expectWhole(await answer.json(), 700);
    expect([atOnce, servers.asked.length]).toEqual([1, 6]);
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ service_tier: 'flex', input_tokens: 1400 });
    expect(Number(record.cost)).toBeCloseTo(costOf(1400) / 2, 12);
  });
});

describe('the books of many texts', () => {
  it('have one record and one entry, of what the engines counted, and nothing is held any more', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const counted = (one: (typeof servers.asked)[number]) =>
      answerText(one.id, one.numbers, {
        usage: {
          prompt_tokens: 1000 + (one.numbers[0] ?? 0),
          total_tokens: 1000 + (one.numbers[0] ?? 0),
          prompt_tokens_details: { cached_tokens: 100 },
          made_up: { of: 0.25, name: 'kept' },
        },
      });
    servers.onAsked = (one) => one.send(200, counted(one));
    const answer = await embed({ input: textsOf(300), usage: { include: true } }, { key });
    const tokens = 3 * 1000 + 0 + 100 + 200;
    const { usage }: Body = await answer.json();
    const record = await bench.recordOf(answer, key);
    expect(usage).toEqual({
      prompt_tokens: tokens,
      total_tokens: tokens,
      prompt_tokens_details: { cached_tokens: 300 },
      made_up: { of: 0.75, name: 'kept' },
      cost: Number(record.cost),
    });
    const cost = ((tokens - 300) * 0.1 + 300 * 0.05) / 1e6;
    expect(Number(record.cost)).toBeCloseTo(cost, 12);
    expect(record).toMatchObject({ input_tokens: tokens, input_cached_tokens: 300, usage_source: 'engine' });
    expect(await bench.wallet(key)).toMatchObject({ held: '0' });
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(1 - cost, 12);
    const records: Body = await (await bench.gateway.request('/v1/usage/requests', { key })).json();
    const ledger: Body = await (await bench.gateway.request('/v1/wallet/ledger', { key })).json();
    expect(records.data).toHaveLength(1);
    expect(ledger.data.filter(({ amount }: Body) => Number(amount) < 0)).toHaveLength(1);
  });

  it('have nothing of a request of which a part fails, and the others are ended at once', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    servers.onAsked = (one) => {
      if (one.numbers[0] === 0) one.answer();
    };
    const answer = embed({ input: textsOf(2000) }, { key });
    await expect.poll(() => servers.open.length).toBe(6);
    const [bad, ...others] = servers.open;
    bad?.send(400, '{"error":{"message":"Token id 9 is out of vocabulary","param":null,"code":400}}');
    const error = await errorOf(await answer);
    const { numbers = [] } = bad ?? {};
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input' });
    expect(error.message).toContain(`one of "input[${numbers[0]}]" to "input[${numbers.at(-1)}]"`);
    await expect.poll(() => others.every(({ left }) => left)).toBe(true);
    expect(servers.asked).toHaveLength(7);
    expect(await bench.wallet(key)).toMatchObject({ balance: '1', held: '0' });
    const record = await bench.recordOf(await answer, key);
    expect(record).toMatchObject({ outcome: 'failed', status: 400, cost: '0', input_tokens: 0 });
    const noted = () =>
      bench.gateway.db.sql`select prompt_tokens::int as tokens, requests::int, uncounted::int from engine_requests
        where model = 'three' and kind = 'undelivered' order by replica`;
    await expect.poll(async () => sumOf(await noted(), ({ requests }) => requests)).toBe(6);
    // One part was answered, and how much of the other five was computed nobody knows.
    expect(sumOf(await noted(), ({ tokens }) => tokens)).toBe(tokensPerText * 125);
    expect(sumOf(await noted(), ({ uncounted }) => uncounted)).toBe(5);
  });

  it('have what was answered of a request whose client leaves, and the rest is ended at once', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    servers.onAsked = (one) => {
      if (servers.asked.length <= 4) one.answer();
    };
    const leaving = new AbortController();
    const answer = embed({ input: textsOf(2000) }, { key, signal: leaving.signal });
    await expect.poll(() => servers.open.length).toBe(6);
    leaving.abort();
    await expect(answer).rejects.toThrow();
    await expect.poll(() => servers.open.length).toBe(0);
    const id = servers.asked.find(({ numbers }) => numbers[0] === 0)?.id ?? '';
    const record = await bench.record(id, key);
    const tokens = 4 * 125 * tokensPerText;
    expect(record).toMatchObject({ outcome: 'aborted', status: 499, input_tokens: tokens, usage_source: 'last_seen' });
    expect(Number(record.cost)).toBeCloseTo(costOf(tokens), 12);
    expect(servers.asked).toHaveLength(10);
    await expect.poll(() => bench.wallet(key)).toMatchObject({ held: '0' });
  });

  it('have what is answered already when its client leaves, though it is still on its way', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    servers.onAsked = (one) => {
      if (servers.asked.length <= 2) one.begin();
    };
    const leaving = new AbortController();
    const answer = embed({ input: textsOf(2000) }, { key, signal: leaving.signal });
    await expect.poll(() => servers.open.length).toBe(6);
    const [first, second, ...others] = servers.asked;
    await beginningsAreRead();
    leaving.abort();
    await expect(answer).rejects.toThrow();
    await expect.poll(() => others.every(({ left }) => left)).toBe(true);
    expect(servers.open).toEqual([first, second]);
    first?.answer();
    second?.answer();
    const record = await bench.record(servers.asked.find(({ numbers }) => numbers[0] === 0)?.id ?? '', key);
    expect(record).toMatchObject({ outcome: 'aborted', input_tokens: 2 * 125 * tokensPerText });
    await expect.poll(() => bench.wallet(key)).toMatchObject({ held: '0' });
  });

  it('have what was answered when its key is revoked', async () => {
    const organization = await openOrganization(bench.gateway, '1');
    const made = await makeKey(bench, organization.key, {});
    servers.onAsked = (one) => {
      if (servers.asked.length <= 2) one.answer();
    };
    const answer = embed({ input: textsOf(2000) }, { key: made.secret });
    await expect.poll(() => servers.open.length).toBe(6);
    await bench.gateway.request(`/v1/keys/${made.id}`, { method: 'DELETE', key: organization.key });
    expect(await errorOf(await answer)).toMatchObject({ status: 401, code: 'unauthorized' });
    expect(servers.open).toEqual([]);
    const record = await bench.recordOf(await answer, organization.key);
    expect(record).toMatchObject({ outcome: 'ended', input_tokens: 2 * 125 * tokensPerText });
    expect(await bench.wallet(organization.key)).toMatchObject({ held: '0' });
  });
});

/** A request that is sent now and answered has come later than what is written already. */
async function beginningsAreRead(): Promise<void> {
  const few = embed({ input: ['text 0'] });
  await expect.poll(() => servers.asked.filter(({ numbers }) => numbers.length === 1).length).toBe(1);
  servers.asked.find(({ numbers }) => numbers.length === 1)?.answer();
  await (await few).text();
}

function sumOf(rows: readonly Body[], read: (row: Body) => number): number {
  return rows.reduce((sum, row) => sum + read(row), 0);
}

describe('a part', () => {
  it('that a replica fails at goes to another one, as a request does', async () => {
    const failed = new Set<number>();
    servers.onAsked = (one) => {
      const [first = 0] = one.numbers;
      if (failed.has(first)) one.answer();
      else one.send(first % 2 === 0 ? 500 : 503, '{}');
      failed.add(first);
    };
    const answer = await embed({ input: textsOf(1000) });
    expectWhole(await answer.json(), 1000);
    expect(servers.asked).toHaveLength(16);
    for (const first of failed) {
      const tries = servers.asked.filter(({ numbers }) => numbers[0] === first);
      expect(new Set(tries.map(({ server }) => server)).size).toBe(2);
    }
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', input_tokens: 2000 });
  });

  it('whose answer is cut goes to another one as well, since nothing of it has left', async () => {
    servers.onAsked = (one) => {
      const isFirst = servers.asked.filter(({ numbers }) => numbers[0] === one.numbers[0]).length === 1;
      if (!isFirst) {
        one.answer();
        return;
      }
      one.begin();
      setTimeout(() => one.cut(), 20);
    };
    const answer = await embed({ input: textsOf(300) });
    expectWhole(await answer.json(), 300);
    expect(servers.asked).toHaveLength(6);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', input_tokens: 600 });
  });

  it('that two replicas fail at is the failure of the request', async () => {
    servers.onAsked = (one) => {
      if (one.numbers.includes(700)) one.send(500, '{}');
      else one.answer();
    };
    const answer = await embed({ input: textsOf(1000) });
    expect(await errorOf(answer)).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(servers.asked.filter(({ numbers }) => numbers.includes(700))).toHaveLength(2);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
  });

  it('that meets a busy engine says how long to wait', async () => {
    servers.onAsked = (one) => one.send(429, '{}');
    const answer = await embed({ input: textsOf(1000) });
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
    await answer.text();
  });

  const numbersOf = (text: string): Body[] => JSON.parse(text).data;
  it.each<[string, (text: string) => string]>([
    ['fewer vectors than texts', (text) => JSON.stringify({ ...JSON.parse(text), data: numbersOf(text).slice(1) })],
    ['numbers beyond its texts', (text) => text.replace('"index":3,', '"index":999,')],
    ['no list', (text) => text.replace('"data"', '"date"')],
    ['what is no JSON', (text) => text.replace('"usage"', 'usage')],
    ['half an answer', (text) => text.slice(0, text.length / 2)],
    ['an error', () => '{"error":{"message":"secret"}}'],
    ['counts that nobody believes', (text) => text.replace(/"prompt_tokens":\d+/, '"prompt_tokens":1e99}}}')],
  ])('that is answered with %s is a 502 and costs nothing', async (_, change) => {
    servers.onAsked = (one) => {
      const text = answerText(one.id, one.numbers);
      one.send(200, one.numbers.includes(200) ? change(text) : text);
    };
    const answer = await embed({ input: textsOf(300) });
    const error = await errorOf(answer);
    expect(error).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(error.message).not.toContain('secret');
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
  });

  it('may be answered without numbers and without usage, as a request may', async () => {
    servers.onAsked = (one) =>
      one.send(200, JSON.stringify({ data: one.numbers.map((number) => ({ embedding: [number] })) }));
    const answer = await embed({ input: textsOf(300) });
    const body: Body = await answer.json();
    expect(body).toEqual({ data: textsOf(300).map((_, number) => ({ embedding: [number] })) });
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', usage_source: 'none', cost: '0' });
  });
});

describe('what is wrong with one of many texts', () => {
  const context = (limit: number, has: string): string =>
    JSON.stringify({
      error: {
        message: `This model's maximum context length is ${limit} tokens. However, you requested 0 output tokens and your prompt contains ${has} input tokens, for a total of ${has} tokens. (parameter=input_tokens, value=${limit + 1})`,
        type: 'BadRequestError',
        param: 'input_tokens',
        code: 400,
      },
    });
  const empty = JSON.stringify({ error: { message: 'The decoder prompt cannot be empty', param: null, code: 400 } });

  /** Refuses the part that the text with this number is in. */
  function refuse(number: number, text: string): void {
    servers.onAsked = (one) => {
      const [first = 0] = one.numbers;
      if (first <= number && number < first + one.body.input.length) one.send(400, text);
      else one.answer();
    };
  }

  it.each<[string, unknown[], string]>([
    ['an empty text', textsOf(500).with(444, ''), empty],
    ['an empty list of token ids', textsOf(500).map((_, index) => (index === 444 ? [] : [index])), empty],
    ['a text that is too long', textsOf(500).with(444, `${'long '.repeat(30)}444`), context(100, 'at least 101')],
    [
      'too many token ids',
      textsOf(500).map((_, index) => (index === 444 ? Array.from({ length: 101 }, () => 1) : [index])),
      context(100, '101'),
    ],
  ])('is told with its place in the whole list: %s', async (_, input, text) => {
    refuse(444, text);
    const error = await errorOf(await embed({ input }));
    expect(error).toMatchObject({ status: 400, param: 'input[444]' });
  });

  it('is told with the texts that it may be where the engine does not say which', async () => {
    const long = `${'long '.repeat(30)}`;
    refuse(444, context(100, 'at least 101'));
    const input = textsOf(500).with(444, `${long}444`).with(445, `${long}445`);
    const error = await errorOf(await embed({ input }));
    expect(error).toMatchObject({ status: 400, code: 'context_length_exceeded', param: 'input' });
    expect(error.message).toContain('"input[375]" to "input[499]"');
  });

  it('is told by the engine’s own number, counted from the whole', async () => {
    const at = "{'type': 'int_parsing', 'loc': ('body', 'input', 'list[list[int]]', 7, 1), 'msg': 'Input should be'}";
    refuse(444, JSON.stringify({ error: { message: `1 validation error:\n  ${at}`, param: 'body.input', code: 400 } }));
    const error = await errorOf(await embed({ input: textsOf(500) }));
    expect(error).toMatchObject({ status: 400, param: 'input[382][1]' });
    expect(error.message).toContain('"input[382][1]"');
  });

  it('is told as ever where it is about another field', async () => {
    const message = "Model 'x' does not support Matryoshka embeddings; dimensions must be unset";
    servers.onAsked = (one) => one.send(400, JSON.stringify({ error: { message, param: null, code: 400 } }));
    const error = await errorOf(await embed({ input: textsOf(500), dimensions: 2 }));
    expect(error).toMatchObject({ status: 400, code: 'unsupported_parameter', param: 'dimensions' });
    expect(error.message).not.toContain('input');
  });
});

describe('the answer to many texts', () => {
  it('comes from the cache the next time', async () => {
    const { key } = await openReuse(bench, { cache_responses: true });
    const body = { input: textsOf(300), user: `${Math.random()}` };
    const first = await embed(body, { key });
    const text = await first.text();
    const again = await embed(body, { key });
    expect([first, again].map(({ headers }) => headers.get('x-headgate-cache'))).toEqual(['miss', 'hit']);
    expect(await again.text()).toBe(text);
    expect(servers.asked).toHaveLength(3);
  });

  it('is kept for an Idempotency-Key, whose request goes on when its client leaves, and billed once', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    servers.onAsked = () => undefined;
    const leaving = new AbortController();
    const options = { key, headers: { 'idempotency-key': 'many texts' } };
    const left = embed({ input: textsOf(1000) }, { ...options, signal: leaving.signal });
    await expect.poll(() => servers.open.length).toBe(6);
    leaving.abort();
    await expect(left).rejects.toThrow();
    servers.onAsked = (one) => one.answer();
    for (const one of servers.open) one.answer();
    const again = await embed({ input: textsOf(1000) }, options);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expectWhole(await again.json(), 1000);
    expect(servers.asked).toHaveLength(8);
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(1 - costOf(2000), 12);
  });

  it('is stored with what was asked', async () => {
    const { key, managementKey } = await openReuse(bench, { store_requests: true });
    const input = textsOf(300);
    const answer = await embed({ input }, { key });
    const text = await answer.text();
    const content = `/v1/usage/requests/${answer.headers.get('x-request-id')}/content`;
    const stored: Body = await eventually(async () => {
      const found = await bench.gateway.request(content, { key: managementKey });
      return found.status === 200 ? found.json() : null;
    });
    expect(stored.request.input).toEqual(input);
    expect(stored.response).toEqual(JSON.parse(text));
  });

  it('has the headers of any other', async () => {
    const answer = await embed({ input: textsOf(300) });
    await answer.text();
    const few = await embed({ input: textsOf(1) });
    await few.text();
    const names = ({ headers }: Response) => [...headers.keys()].toSorted();
    expect(names(answer)).toEqual(names(few));
    expect(answer.headers.get('x-headgate-start')).toBe('warm');
  });
});
