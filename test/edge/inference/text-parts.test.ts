import { describe, expect, it } from 'vitest';
import { makeKey } from '#test/cache/caching-key.ts';
import { answerText } from './embedding-servers.ts';
import { type Body, errorOf, openOrganization } from '#test/inference/inference-gateway.ts';
import { costOf, embeddingsPath, expectWhole, partsOf, textsMax, textsOf, useTexts } from './texts-bench.ts';

const bench = useTexts();
/** Texts that are sent at once. */
const partTexts = 128;

describe('an invalid list of texts', () => {
  it.each<[string, unknown, string]>([
    ['a number', 7, 'must be a string or a list of token ids'],
    ['null', null, 'must be a string or a list of token ids'],
    ['an object', { role: 'user' }, 'must be a string or a list of token ids'],
    ['a list of texts', ['a'], 'must be a string or a list of token ids'],
  ])('returns 400 with the index in the whole list for %s among texts', async (_, odd, says) => {
    const input = textsOf(400).with(333, odd as string);
    const error = await errorOf(await bench.embed({ input }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input[333]' });
    expect(error.message).toContain(says);
    expect(bench.servers.asked).toEqual([]);
  });

  it('returns 400 for texts mixed with token ids when vLLM would refuse them, and else is sent', async () => {
    const input = textsOf(400).with(300, [1, 2] as never);
    const error = await errorOf(await bench.embed({ model: 'one', input }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input[300]' });
    expect(bench.single.asked).toEqual([]);
    expect((await bench.embed({ input })).status).toBe(200);
  });

  it('returns 400 with the limit when it is too long', async () => {
    const error = await errorOf(await bench.embed({ input: textsOf(textsMax + 1) }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input' });
    expect(error.message).toContain(String(textsMax));
    expectWhole(await (await bench.embed({ input: textsOf(textsMax) })).json(), textsMax);
  });

  it('returns 400 when the other fields, sent with each part, are too large', async () => {
    for (const beside of [{ user: 'x'.repeat(65_536) }, { extra: Array.from({ length: 40_000 }, () => 1) }]) {
      const error = await errorOf(await bench.embed({ input: textsOf(300), ...beside }));
      expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input' });
      expect(error.message).toContain('65536 bytes');
    }
    expect(bench.servers.asked).toHaveLength(0);
    const whole = await bench.embed({ input: textsOf(100), user: 'x'.repeat(65_536) });
    expect((await bench.embed({ input: textsOf(300), user: 'x'.repeat(65_000) })).status).toBe(200);
    expectWhole(await whole.json(), 100);
  });

  it('is not sent when the key has used up its tokens', async () => {
    const { key: managementKey } = await openOrganization(bench.gateway, '1');
    const { secret: key } = await makeKey(bench, managementKey, { tokens_per_minute: 600 });
    expectWhole(await (await bench.embed({ input: textsOf(300) }, { key })).json(), 300);
    bench.servers.reset();
    const refused = await bench.embed({ input: textsOf(300) }, { key });
    expect(await errorOf(refused)).toMatchObject({ status: 429, code: 'tokens_limit_exceeded' });
    expect(bench.servers.asked).toEqual([]);
  });

  it('is not sent when the wallet cannot pay for all texts', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0001');
    const refused = await bench.embed({ input: textsOf(1000) }, { key });
    expect(await errorOf(refused)).toMatchObject({ status: 402, code: 'insufficient_funds' });
    expect(bench.servers.asked).toEqual([]);
  });
});

describe('many texts', () => {
  it.each([1, 2, partTexts])('are sent unchanged up to one part, such as %d', async (count) => {
    const input = textsOf(count);
    const answer = await bench.embed({ input, user: 'somebody' });
    expect(bench.servers.asked.map(({ body }) => body)).toEqual([{ model: 'three', input, user: 'somebody' }]);
    expect(bench.servers.asked[0]?.id).toBe(answer.headers.get('x-request-id'));
    const id = `${bench.servers.asked[0]?.id}`;
    expect(await answer.text()).toBe(answerText(id, [...input.keys()]).replace('own/name', 'three'));
  });

  it('are sent in parts with all other fields, and answered as one', async () => {
    const input = textsOf(500);
    const more = { encoding_format: 'float', dimensions: 2, made_up: { a: [1, '"input":[]'] }, user: 'somebody' };
    const answer = await bench.post(embeddingsPath, JSON.stringify({ ...more, input, model: 'three' }, null, 1));
    const id = String(answer.headers.get('x-request-id'));
    const parts = partsOf(bench.servers.asked);
    expect(parts.map(({ numbers }) => numbers.length)).toEqual([125, 125, 125, 125]);
    expect(parts.flatMap(({ body }) => body.input)).toEqual(input);
    for (const { body } of parts) expect(body).toEqual({ ...more, input: body.input, model: 'three' });
    expect(parts.map((part) => part.id)).toEqual([id, `${id}-125`, `${id}-250`, `${id}-375`]);
    const usage = { prompt_tokens: 1000, total_tokens: 1000, completion_tokens: 0, prompt_tokens_details: null };
    const numbers = [...input.keys()];
    expect(await answer.text()).toBe(answerText(id, numbers, { model: 'three', usage }));
  });

  it('are split by bytes, with a longer text as its own part', async () => {
    const filler = 'é'.repeat(50_000);
    const input = textsOf(6).map((text, index) => `${filler.repeat(index === 3 ? 4 : 1)}${text}`);
    const answer = await bench.embed({ input });
    expect(partsOf(bench.servers.asked).map(({ numbers }) => numbers)).toEqual([[0, 1], [2], [3], [4, 5]]);
    expect(partsOf(bench.servers.asked).flatMap(({ body }) => body.input)).toEqual(input);
    expectWhole(await answer.json(), 6);
  });

  it('may be lists of token ids, and one such list is one text', async () => {
    const input = textsOf(300).map((_, index) => [1, index]);
    expectWhole(await (await bench.embed({ input })).json(), 300);
    expect(bench.servers.asked.map(({ body }) => body.input.length)).toEqual([100, 100, 100]);
    expect(bench.servers.asked.flatMap(({ body }) => body.input).toSorted((a, b) => a[1] - b[1])).toEqual(input);
    bench.servers.reset();
    await (await bench.embed({ input: input.map(([, id]) => id) })).text();
    expect(bench.servers.asked).toHaveLength(1);
  });

  it.each([
    ['bytes', { encoding_format: 'bytes' }, 400],
    ['a format that is not known', { encoding_format: 'hex' }, 200],
    ['chats', { input: textsOf(300).map((text) => [{ role: 'user', content: text }]) }, 200],
    ['one chat', { input: textsOf(300).map((text) => ({ role: 'user', content: text })) }, 200],
    ['chats beside them', { messages: [{ role: 'user', content: 'Hello' }] }, 200],
  ])('are not split when the answers could not be joined: %s', async (_, fields, status) => {
    bench.servers.onAsked = (one) => one.send(200, answerText(one.id, [0]));
    const answer = await bench.embed({ input: textsOf(300), ...fields });
    expect([answer.status, bench.servers.asked.length]).toEqual([status, status === 200 ? 1 : 0]);
    await answer.text();
  });

  it('go to all replicas in parallel, two parts to each and no more', async () => {
    bench.servers.onAsked = () => undefined;
    const answer = bench.embed({ input: textsOf(1500), user: 'whose requests belong together' });
    await expect.poll(() => bench.servers.open.length).toBe(6);
    expect([0, 1, 2].map((place) => bench.servers.open.filter(({ server }) => server === place).length)).toEqual([
      2, 2, 2,
    ]);
    let mostOpen = 0;
    while (bench.servers.asked.length < 12 || bench.servers.open.length > 0) {
      mostOpen = Math.max(mostOpen, bench.servers.open.length);
      // The last one first: they end in another order than they stand in.
      const last = bench.servers.open.at(-1);
      last?.answer();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(mostOpen).toBeLessThanOrEqual(6);
    expectWhole(await (await answer).json(), 1500);
  });

  it('leave room for others at a model with one replica', async () => {
    bench.single.onAsked = (one) => {
      if (one.numbers.length < partTexts) one.answer();
    };
    const many = bench.embed({ model: 'one', input: textsOf(10 * partTexts) });
    await expect.poll(() => bench.single.open.length).toBe(2);
    const few = await bench.embed({ model: 'one', input: ['text 0'] });
    expectWhole(await few.json(), 1);
    expect(bench.single.asked).toHaveLength(3);
    bench.single.onAsked = (one) => one.answer();
    for (const one of bench.single.open) one.answer();
    expectWhole(await (await many).json(), 10 * partTexts);
  });

  it('are sent one part after the other in the tier flex', async () => {
    let atOnce = 0;
    bench.servers.onAsked = (one) => {
      atOnce = Math.max(atOnce, bench.servers.open.length);
      setImmediate(() => one.answer());
    };
    const answer = await bench.embed({ model: 'flex', service_tier: 'flex', input: textsOf(700) });
    expectWhole(await answer.json(), 700);
    expect([atOnce, bench.servers.asked.length]).toEqual([1, 6]);
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ service_tier: 'flex', input_tokens: 1400 });
    expect(Number(record.cost)).toBeCloseTo(costOf(1400) / 2, 12);
  });
});

describe('a part', () => {
  it('is retried on another replica when one fails', async () => {
    const failed = new Set<number>();
    bench.servers.onAsked = (one) => {
      const [first = 0] = one.numbers;
      if (failed.has(first)) one.answer();
      else one.send(first % 2 === 0 ? 500 : 503, '{}');
      failed.add(first);
    };
    const answer = await bench.embed({ input: textsOf(1000) });
    expectWhole(await answer.json(), 1000);
    expect(bench.servers.asked).toHaveLength(16);
    for (const first of failed) {
      const tries = bench.servers.asked.filter(({ numbers }) => numbers[0] === first);
      expect(new Set(tries.map(({ server }) => server)).size).toBe(2);
    }
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', input_tokens: 2000 });
  });

  it('is retried on another replica when its answer is cut, since none of it was sent', async () => {
    bench.servers.onAsked = (one) => {
      const isFirst = bench.servers.asked.filter(({ numbers }) => numbers[0] === one.numbers[0]).length === 1;
      if (!isFirst) {
        one.answer();
        return;
      }
      one.begin();
      setTimeout(() => one.cut(), 20);
    };
    const answer = await bench.embed({ input: textsOf(300) });
    expectWhole(await answer.json(), 300);
    expect(bench.servers.asked).toHaveLength(6);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', input_tokens: 600 });
  });

  it('fails the request when two replicas fail at it', async () => {
    bench.servers.onAsked = (one) => {
      if (one.numbers.includes(700)) one.send(500, '{}');
      else one.answer();
    };
    const answer = await bench.embed({ input: textsOf(1000) });
    expect(await errorOf(answer)).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(bench.servers.asked.filter(({ numbers }) => numbers.includes(700))).toHaveLength(2);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
  });

  it('returns 503 with Retry-After when it meets a busy engine', async () => {
    bench.servers.onAsked = (one) => one.send(429, '{}');
    const answer = await bench.embed({ input: textsOf(1000) });
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
  ])('returns 502 and costs nothing when it is answered with %s', async (_, change) => {
    bench.servers.onAsked = (one) => {
      const text = answerText(one.id, one.numbers);
      one.send(200, one.numbers.includes(200) ? change(text) : text);
    };
    const answer = await bench.embed({ input: textsOf(300) });
    const error = await errorOf(answer);
    expect(error).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(error.message).not.toContain('secret');
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
  });

  it('may be answered without indexes and usage, and shows what is billed', async () => {
    bench.servers.onAsked = (one) =>
      one.send(200, JSON.stringify({ data: one.numbers.map((number) => ({ embedding: [number] })) }));
    const answer = await bench.embed({ input: textsOf(300) });
    const body: Body = await answer.json();
    const record = await bench.recordOf(answer);
    const tokens = record.input_tokens;
    expect(body).toMatchObject({ usage: { prompt_tokens: tokens, total_tokens: tokens, completion_tokens: 0 } });
    expect(body.data).toEqual(textsOf(300).map((_, number) => ({ embedding: [number] })));
    expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted' });
    expect(Number(record.cost)).toBeGreaterThan(0);
  });
});

describe('an error in one of many texts', () => {
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
    bench.servers.onAsked = (one) => {
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
  ])('names the index in the whole list: %s', async (_, input, text) => {
    refuse(444, text);
    const error = await errorOf(await bench.embed({ input }));
    expect(error).toMatchObject({ status: 400, param: 'input[444]' });
    expect(error.message).toContain('"input[444]"');
  });

  it('charges nothing when it is an unknown token id', async () => {
    const outOfVocabulary = JSON.stringify({ error: { message: 'Token id 99999 is out of vocabulary', code: 400 } });
    bench.servers.onAsked = (one) => {
      if (one.body.input.flat().some((id: number) => id > 1000)) one.send(400, outOfVocabulary);
      else one.answer();
    };
    const { key } = await openOrganization(bench.gateway, '1');
    const input = textsOf(5000).map((_, index) => (index === 4999 ? [5, 99_999] : [index % 1000, 7]));
    const error = await errorOf(await bench.embed({ input }, { key }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value' });
    expect(error.message).toContain("a token id that is not in this model's vocabulary");
    expect(bench.servers.asked.map(({ body }) => body.input.at(-1))).toEqual([[5, 99_999]]);
    bench.servers.reset();
    expect((await bench.embed({ input: input.with(4999, [1, 1]) }, { key })).status).toBe(200);
    expect(bench.servers.asked).toHaveLength(40);
  });

  it.each<[string, unknown[], unknown]>([
    ['a text', textsOf(4000), `${'long '.repeat(2000)}3999`],
    ['a list of token ids', textsOf(4000).map((_, index) => [index % 1000, 7]), Array.from({ length: 8193 }, () => 5)],
  ])('charges nothing when it may be longer than the context: %s', async (_, input, long) => {
    bench.servers.onAsked = (one) => {
      const isLong = one.body.input.some((item: string | unknown[]) => item.length > 8192);
      if (isLong) one.send(400, context(8192, 'at least 8193'));
      else one.answer();
    };
    const error = await errorOf(await bench.embed({ input: input.with(3999, long) }));
    expect(error).toMatchObject({ status: 400, code: 'context_length_exceeded', param: 'input[3999]' });
    const isToken = Array.isArray(long);
    // The part with the largest token id goes before it.
    expect(bench.servers.asked).toHaveLength(isToken ? 2 : 1);
    expect(bench.servers.asked.at(-1)?.body.input.at(-1)).toEqual(long);
    bench.servers.reset();
    const answer = await bench.embed({ input: textsOf(4000).with(3999, `${'long '.repeat(2000)}3999`) });
    expectWhole(await answer.json(), 4000);
  });

  it('names the range of texts when the engine does not name one', async () => {
    const long = `${'long '.repeat(30)}`;
    refuse(444, context(100, 'at least 101'));
    const input = textsOf(500).with(444, `${long}444`).with(445, `${long}445`);
    const error = await errorOf(await bench.embed({ input }));
    expect(error).toMatchObject({ status: 400, code: 'context_length_exceeded', param: 'input' });
    expect(error.message).toContain('"input[375]" to "input[499]"');
  });

  it('names the field when the engine reports invalid JSON, not a position in the part', async () => {
    const at = "{'type': 'json_invalid', 'loc': ('body', 77), 'msg': 'JSON decode error'}";
    refuse(444, JSON.stringify({ error: { message: `1 validation error:\n  ${at}`, param: null, code: 400 } }));
    const error = await errorOf(await bench.embed({ input: textsOf(500) }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', param: 'input' });
    expect(error.message).toContain('"input[375]" to "input[499]"');
    expect(error.message).not.toContain('77');
  });

  it("names the engine's index, counted in the whole list", async () => {
    const at = "{'type': 'int_parsing', 'loc': ('body', 'input', 'list[list[int]]', 7, 1), 'msg': 'Input should be'}";
    refuse(444, JSON.stringify({ error: { message: `1 validation error:\n  ${at}`, param: 'body.input', code: 400 } }));
    const error = await errorOf(await bench.embed({ input: textsOf(500) }));
    expect(error).toMatchObject({ status: 400, param: 'input[382][1]' });
    expect(error.message).toContain('"input[382][1]"');
  });

  it('is reported as usual when it concerns another field', async () => {
    const message = "Model 'x' does not support Matryoshka embeddings; dimensions must be unset";
    bench.servers.onAsked = (one) => one.send(400, JSON.stringify({ error: { message, param: null, code: 400 } }));
    const error = await errorOf(await bench.embed({ input: textsOf(500), dimensions: 2 }));
    expect(error).toMatchObject({ status: 400, code: 'unsupported_parameter', param: 'dimensions' });
    expect(error.message).not.toContain('input');
  });
});
