import { describe, expect, it } from 'vitest';
import {
  type Body,
  chatPath,
  errorOf,
  eventually,
  framesOf,
  openOrganization,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat', { flags: ['--reasoning-parser', 'deepseek_r1'] }) },
}));

/** Cost of a record's tokens in USD, at the prices of the engine file. */
function usd({ input_tokens: input, input_cached_tokens: cached, output_tokens: output }: Body): number {
  return ((input - cached) * 0.1 + cached * 0.05 + output * 0.4) / 1e6;
}

async function records(key: string): Promise<Body[]> {
  const all: Body[] = [];
  for (let cursor = ''; ;) {
    const page: Body = await (await bench.gateway.request(`/v1/usage/requests?limit=500${cursor}`, { key })).json();
    all.push(...page.data);
    if (!page.has_more) return all;
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}

async function expectNothingHeld(key: string): Promise<Body> {
  return eventually(async () => {
    const wallet: Body = await bench.wallet(key);
    return wallet.held === '0' ? wallet : null;
  });
}

describe('a long prompt that the engine adds to its cache', () => {
  const text = 'a river under an old bridge, '.repeat(40);
  it.each([
    ['/v1/chat/completions', { messages: [{ role: 'user', content: `chat ${text}` }], max_tokens: 4 }],
    ['/v1/responses', { input: `responses ${text}`, max_output_tokens: 4 }],
    ['/v1/messages', { messages: [{ role: 'user', content: `messages ${text}` }], max_tokens: 4 }],
  ])('is counted in the record and priced as input: %s', async (path, body) => {
    for (const stream of [false, true]) {
      const again = { model: 'chat', ...body, stream, cache_salt: `salt ${stream}` };
      const first = await bench.recordOf(await consumed(path, again));
      const second = await bench.recordOf(await consumed(path, again));
      expect(first.input_cache_write_tokens).toBeGreaterThan(100);
      expect(first.input_cache_write_tokens + first.input_cached_tokens).toBeLessThanOrEqual(first.input_tokens);
      expect(second).toMatchObject({ input_tokens: first.input_tokens, input_cache_write_tokens: 0 });
      for (const record of [first, second]) expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
    }
  });

  async function consumed(path: string, body: object): Promise<Response> {
    const answer = await bench.post(path, body);
    expect(answer.status, await answer.clone().text()).toBe(200);
    await answer.text();
    return answer;
  }
});

describe('a small wallet', () => {
  it('stays at or above zero under 500 requests at once, with an exact sum', async () => {
    const { key } = await openOrganization(bench.gateway, '0.01');
    // Each holds about a thousandth of a dollar at first, and costs less in the end.
    const body = { max_tokens: 2000, standin: { output_tokens: 1500 } };
    const answers = await Promise.all(
      Array.from({ length: 500 }, async (_, index) => {
        const answer = await bench.chat({ ...body, stream: index % 2 === 0 }, { key });
        await answer.text();
        return answer.status;
      }),
    );
    const wallet = await expectNothingHeld(key);
    const kept = await records(key);
    expect(answers.filter((status) => status === 402).length).toBeGreaterThan(400);
    expect(answers.every((status) => status === 200 || status === 402)).toBe(true);
    expect(kept).toHaveLength(answers.filter((status) => status === 200).length);
    const spent = kept.reduce((sum, record) => sum + BigInt(Math.round(Number(record.cost) * 1e12)), 0n);
    expect(BigInt(Math.round(Number(wallet.balance) * 1e12))).toBe(10_000_000_000n - spent);
    expect(Number(wallet.balance)).toBeGreaterThanOrEqual(0);
    const ledger: Body = await (await bench.gateway.request('/v1/wallet/ledger?limit=500', { key })).json();
    expect(ledger.data.every((entry: Body) => Number(entry.balance_after) >= 0)).toBe(true);
  });

  it('ends a stream that it cannot pay with an error frame, billed to the token and no further', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0005');
    const answer = await bench.chat(
      { stream: true, max_tokens: 8000, standin: { output_tokens: 8000, tpot_ms: 1 } },
      { key },
    );
    expect(answer.status).toBe(200);
    const frames = framesOf(await answer.text());
    expect(frames.slice(-2)).toEqual([
      { error: expect.objectContaining({ code: 'insufficient_funds', type: 'billing_error' }) },
      '[DONE]',
    ]);
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'ended', reason: 'insufficient_funds', status: 200 });
    expect(Number(record.cost) + Number(record.written_off)).toBeCloseTo(usd(record), 12);
    expect(Number(record.cost)).toBeGreaterThan(0.00049);
    const wallet = await expectNothingHeld(key);
    expect(Number(wallet.balance)).toBeCloseTo(0.0005 - Number(record.cost), 12);
    expect(Number(wallet.balance)).toBeGreaterThanOrEqual(0);
  });

  it('writes off what the engine generated past the hold', async () => {
    const { key } = await openOrganization(bench.gateway, '0.00009');
    // Frames of 60 tokens each: the hold ends in the middle of one.
    const body = { stream: true, stream_interval: 60, max_tokens: 4000, standin: { output_tokens: 4000, tpot_ms: 2 } };
    const answer = await bench.chat(body, { key });
    expect(await answer.text()).toContain('"code":"insufficient_funds"');
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'ended', reason: 'insufficient_funds', cost: '0.00009' });
    expect(Number(record.written_off)).toBeGreaterThan(0);
    expect(Number(record.cost) + Number(record.written_off)).toBeCloseTo(usd(record), 12);
    expect(await expectNothingHeld(key)).toMatchObject({ balance: '0', available: '0' });
    expect(await errorOf(await bench.chat({}, { key }))).toMatchObject({ status: 402 });
  });

  it('cuts a JSON answer to what it pays for, and returns that limit', async () => {
    const { key } = await openOrganization(bench.gateway, '0.001');
    const body = { max_tokens: 8000, standin: { output_tokens: 8000, finish: 'length' } };
    const answer = await bench.chat(body, { key });
    const tokens = Number(answer.headers.get('x-headgate-max-tokens'));
    expect(tokens).toBeGreaterThan(1000);
    expect(tokens).toBeLessThan(2500);
    const got: Body = await answer.json();
    expect(got.usage.completion_tokens).toBe(tokens);
    expect(got.choices[0].finish_reason).toBe('length');
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'completed', output_tokens: tokens, written_off: '0' });
    expect(Number((await expectNothingHeld(key)).balance)).toBeGreaterThanOrEqual(0);
  });

  it.each([
    ['gathers its tokens into few frames', { stream_interval: 100_000 }],
    ['hides its reasoning', { include_reasoning: false, standin: { reasoning_tokens: 7900, output_tokens: 8000 } }],
  ])('is not overdrawn by a stream that %s', async (_, fields) => {
    const { key } = await openOrganization(bench.gateway, '0.001');
    const body = { stream: true, max_tokens: 8000, standin: { output_tokens: 8000 }, ...fields };
    const answer = await bench.chat(body, { key });
    await answer.text();
    const record = await bench.recordOf(answer, key);
    expect(record.output_tokens).toBe(Number(answer.headers.get('x-headgate-max-tokens')));
    expect(record).toMatchObject({ outcome: 'completed', written_off: '0' });
  });

  it.each([
    ['auto', true],
    ['none', false],
  ])(
    'limits the output of a stream beforehand that may call a tool, with tool_choice %s',
    async (choice, isLimited) => {
      const { key } = await openOrganization(bench.gateway, '0.001');
      const tools = [{ type: 'function', function: { name: 'show', parameters: { type: 'object' } } }];
      const answer = await bench.chat({ stream: true, max_tokens: 8000, tools, tool_choice: choice }, { key });
      await answer.text();
      expect(answer.headers.has('x-headgate-max-tokens')).toBe(isLimited);
    },
  );

  it('pays a prompt by its length also when it contains "data:", and the whole context for a data URL', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0003');
    const ask = (content: unknown): Promise<Response> => bench.chat({ messages: [{ role: 'user', content }] }, { key });
    expect((await ask('Each line begins with data: and ends with \\n.')).status).toBe(200);
    const part = { type: 'image', image: 'data:image/png;base64,aGk=' };
    expect(await errorOf(await ask([part]))).toMatchObject({ status: 402, code: 'insufficient_funds' });
  });

  it('pays a prompt by its length when tools resemble media, and not when escapes hide media', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0003');
    const ask = (content: string, more = ''): Promise<Response> =>
      bench.post(chatPath, `{"model":"chat","max_tokens":8,"messages":[{"role":"user","content":${content}}]${more}}`, {
        key,
      });
    const properties = { image_url: { type: 'string', default: 'data:' }, input_file: { type: 'string' } };
    const tools = [{ type: 'function', function: { name: 'show', parameters: { type: 'object', properties } } }];
    expect((await ask('"hello"', `,"tool_choice":"none","tools":${JSON.stringify(tools)}`)).status).toBe(200);
    expect((await ask('[{"type":"text","text":"\\u003cb\\u003e \\u0022image_url\\u0022"}]')).status).toBe(200);
    const hidden = '[{"type":"image\\u005furl","image\\u005furl":{"url":"\\u0064ata:image/png;base64,aGk="}}]';
    expect(await errorOf(await ask(hidden))).toMatchObject({ status: 402, code: 'insufficient_funds' });
    const heard = '[{"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}}]';
    expect(await errorOf(await ask(heard))).toMatchObject({ status: 402, code: 'insufficient_funds' });
  });

  it.each([
    ['ends what its engine makes for a client that reads nothing', '0.002', 'ended', 'insufficient_funds'],
    ['serves a client that reads nothing for a while where it pays for all', '0.02', 'completed', null],
  ])('%s', async (_, balance, outcome, reason) => {
    const { key } = await openOrganization(bench.gateway, balance);
    // Frames of some kilobytes, which no buffer between takes all of.
    const body = { stream: true, max_tokens: 8000, logprobs: true, top_logprobs: 20 };
    const answer = await bench.chat({ ...body, standin: { output_tokens: 8000, tpot_ms: 1 } }, { key });
    const socket = bench.socketOf('chat');
    await eventually(async () => (await readMetric(socket, 'vllm:num_requests_running')) === 0);
    const frames = framesOf(await answer.text());
    expect(frames.at(-1)).toBe('[DONE]');
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome, reason, written_off: '0' });
    expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
    await expectNothingHeld(key);
  });

  it('pays a long stream as it runs: the hold grows with it', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const body = { stream: true, max_tokens: 6000, standin: { output_tokens: 6000 } };
    const answer = await bench.chat(body, { key });
    expect(framesOf(await answer.text()).at(-1)).toBe('[DONE]');
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'completed', output_tokens: 6000, written_off: '0' });
    expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
    await expectNothingHeld(key);
  });
});

/** A key of the admin's organization, to be revoked or to expire. */
async function makeKey(more: object = {}): Promise<{ id: string; secret: string }> {
  const made: Body = await (
    await bench.gateway.request('/v1/keys', { body: { name: 'short', scope: 'inference', ...more } })
  ).json();
  return made;
}

/** Reads a stream until it has shown some tokens. */
async function readSome(reader: ReadableStreamDefaultReader<Uint8Array>, frames: number): Promise<string> {
  let text = '';
  while (text.split('\n\n').length <= frames) {
    const { value, done } = await reader.read();
    if (done) break;
    text += Buffer.from(value).toString();
  }
  return text;
}

describe('a revoked or expired key', () => {
  it('ends its streams within a second with the code unauthorized, billed for what was generated', async () => {
    const key = await makeKey();
    const answer = await bench.chat(
      { stream: true, max_tokens: 8000, standin: { output_tokens: 8000, tpot_ms: 5 } },
      { key: key.secret },
    );
    const reader = answer.body?.getReader();
    if (reader === undefined) throw new Error('the stream has no body');
    await readSome(reader, 5);
    expect((await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'DELETE' })).status).toBe(200);
    const rest = await readSome(reader, Number.POSITIVE_INFINITY);
    const frames = rest.trimEnd().split('\n\n');
    // The engine makes 200 in a second.
    expect(frames.length).toBeLessThan(200);
    expect(frames.at(-1)).toBe('data: [DONE]');
    expect(JSON.parse(frames.at(-2)?.slice(6) ?? '')).toEqual({
      error: expect.objectContaining({ code: 'unauthorized', type: 'auth_error' }),
    });
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'ended', reason: 'unauthorized', usage_source: 'engine' });
    expect(record.output_tokens).toBeGreaterThan(3);
    expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
    expect(await errorOf(await bench.chat({}, { key: key.secret }))).toMatchObject({ status: 401 });
  });

  it('ends its running JSON request with 401, billed for what was generated', async () => {
    const key = await makeKey();
    const running = bench.chat({ max_tokens: 8000, standin: { output_tokens: 8000, tpot_ms: 5 } }, { key: key.secret });
    const socket = await eventually(async () => bench.socketOf('chat'));
    await eventually(async () => (await readMetric(socket, 'vllm:num_requests_running')) > 0);
    await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'DELETE' });
    const answer = await running;
    expect(await errorOf(answer.clone())).toMatchObject({ status: 401, code: 'unauthorized', type: 'auth_error' });
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'ended', reason: 'unauthorized', status: 401, usage_source: 'engine' });
    // The prompt is charged also before the first token, since the gateway ends the request.
    expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
  });

  it('returns 401 before any other check once it has expired', async () => {
    const key = await makeKey({ expires_at: Math.ceil(Date.now() / 1000) + 1 });
    expect((await bench.chat({}, { key: key.secret })).status).toBe(200);
    const refused = await eventually(async () => {
      const answer = await bench.chat({ model: 'nope' }, { key: key.secret });
      return answer.status === 401 ? answer : null;
    });
    expect(await errorOf(refused)).toMatchObject({ code: 'unauthorized' });
  });
});
