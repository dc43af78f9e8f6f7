import Anthropic from '@anthropic-ai/sdk';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import {
  type Body,
  externalFile,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { claudeCode, errorOf, eventsOf } from './messages-client.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Anthropic's protocol through a gateway to stand-ins, which answer it as vLLM does. */

const path = '/v1/messages';
const countPath = '/v1/messages/count_tokens';
let bare: ByteServer;
const bench = useInference(async () => {
  bare = await startByteServer({
    transport: 'tcp',
    answer: ({ socket }) =>
      void socket.write(
        'HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{"detail":"Not Found"}',
      ),
  });
  const flags = ['--enable-prompt-tokens-details', '--enable-force-include-usage', '--enable-auto-tool-choice'];
  return {
    engines: {
      chat: standinFile('chat', { flags: [...flags, '--tool-call-parser', 'hermes', '--dev-mode'] }),
      thinker: standinFile('thinker', { flags: [...flags.slice(0, 2), '--reasoning-parser', 'deepseek_r1'] }),
      bare: externalFile('bare', `http://127.0.0.1:${bare.endpoint.port}`),
    },
  };
});
afterAll(() => bare.close());

const hello = [{ role: 'user', content: 'Hello' }];
const ask = (knobs: object, fields: object = {}, options: object = {}): Promise<Response> =>
  bench.post(path, { model: 'chat', max_tokens: 64, messages: hello, ...fields, standin: knobs }, options);
const streamed = { stream: true };

const image = (source: object): object => ({ type: 'image', source });
const inside = { type: 'url', url: 'http://169.254.169.254/' };

describe('an error of POST /v1/messages', () => {
  it.each<[object, string]>([
    [{ max_tokens: 'many' }, 'max_tokens'],
    [{ mcp_servers: [{ type: 'url', url: 'https://example.com', name: 'x' }] }, 'mcp_servers'],
    [{ container: 'c' }, 'container'],
    [{ kv_transfer_params: { a: 1 } }, 'kv_transfer_params'],
    [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'tools'],
    [{ stop_sequences: ['x'.repeat(257)] }, 'stop_sequences'],
    [{ stop_sequences: ['half of one: \ud83d'] }, 'stop_sequences'],
    [
      { output_config: { format: { type: 'json_schema', schema: { pattern: '(a{0,99}){0,99}' } } } },
      'output_config.format.schema',
    ],
    [
      {
        tools: [{ name: 'f', input_schema: { pattern: '(a{0,99}){0,99}' } }],
        tool_choice: { type: 'any' },
      },
      'tools[0].input_schema',
    ],
    [{ messages: [{ role: 'user', content: [image(inside)] }] }, 'messages'],
    [
      {
        messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: [image(inside)] }] }],
      },
      'messages',
    ],
    ...['http://169.254.169.254/', [inside], null].map((source): [object, string] => [
      { messages: [{ role: 'user', content: [{ type: 'tool_result', content: [{ type: 'image', source }] }] }] },
      'messages',
    ]),
  ])('is 400 with the field in param: %j', async (fields, param) => {
    const error = await errorOf(await ask({}, fields));
    expect(error).toMatchObject({ status: 400, type: 'invalid_request_error', param });
    expect(error.message).toMatch(/\.$/);
  });

  it('is 401 without a key, and names the SDKs that send a Bearer for a key in x-api-key', async () => {
    expect(await errorOf(await ask({}, {}, { key: null }))).toMatchObject({
      status: 401,
      type: 'authentication_error',
      code: 'unauthorized',
    });
    const headers = { 'x-api-key': bench.gateway.key };
    const error = await errorOf(await ask({}, {}, { key: null, headers }));
    expect(error).toMatchObject({ status: 401, type: 'authentication_error' });
    expect(error.message).toMatch(/TypeScript 1\.0, Python 2\.14.*authToken/);
  });

  it("is returned for an unknown model, a malformed body, another content type, and an engine's refusal", async () => {
    expect(await errorOf(await ask({}, { model: 'none' }))).toMatchObject({ status: 400, code: 'model_not_found' });
    expect(await errorOf(await bench.post(path, '{'))).toMatchObject({ status: 400, type: 'invalid_request_error' });
    const headers = { 'content-type': 'text/plain' };
    expect(await errorOf(await ask({}, {}, { headers }))).toMatchObject({ status: 415 });
    const error = await errorOf(await bench.post(path, { model: 'chat', messages: hello }));
    expect(error).toMatchObject({ status: 400, param: 'max_tokens' });
    expect(await errorOf(await ask({ status: 500 }))).toMatchObject({ status: 502, type: 'api_error' });
  });

  it('is returned for an empty wallet and for too many requests per minute', async () => {
    const { key } = await openOrganization(bench.gateway, '0.000001');
    expect(await errorOf(await ask({}, {}, { key }))).toMatchObject({ status: 402, type: 'billing_error' });
    const fields = { name: 'one', requests_per_minute: 1 };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body: fields })).json();
    const options = { key: made.secret };
    expect((await bench.post(countPath, { model: 'chat', messages: hello }, options)).status).toBe(200);
    const refused = await ask({}, {}, options);
    expect(refused.headers.get('retry-after')).not.toBeNull();
    expect(await errorOf(refused)).toMatchObject({
      status: 429,
      type: 'rate_limit_error',
      code: 'rate_limit_exceeded',
    });
  });

  /** Text that Claude Code looks for, to ask again for less output. */
  const exceeds = /input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)/;

  it.each([8100, 32_000])(
    "has Anthropic's words for a prompt plus %i output tokens beyond the context",
    async (asked) => {
      const messages = [{ role: 'user', content: 'other words '.repeat(1000) }];
      const fields = { model: 'thinker', messages };
      const error = await errorOf(await ask({}, { ...fields, max_tokens: asked }));
      expect(error).toMatchObject({ status: 400, type: 'invalid_request_error', code: 'context_length_exceeded' });
      const [, input = '', output, limit] = exceeds.exec(error.message) ?? [];
      expect([output, limit]).toEqual([String(asked), '8192']);
      const left = 8192 - Number(input);
      expect(left).toBeGreaterThan(1000);
      expect((await ask({}, { ...fields, max_tokens: left })).status).toBe(200);
    },
  );

  it("has Anthropic's words for a prompt longer than the context", async () => {
    const messages = [{ role: 'user', content: 'other words '.repeat(5000) }];
    const error = await errorOf(await ask({}, { messages }));
    expect(error).toMatchObject({ status: 400, code: 'context_length_exceeded', param: 'messages' });
    expect(error.message).toMatch(/^prompt is too long: \d+ tokens > 8192 maximum/);
  });

  it('is 501 when the engine does not have the route', async () => {
    for (const route of [path, countPath]) {
      const answer = await bench.post(route, { model: 'bare', max_tokens: 4, messages: hello });
      expect(await errorOf(answer)).toMatchObject({ status: 501, code: 'not_implemented' });
    }
  });
});

describe('a message', () => {
  it('is billed by its count, with the cached part of the prompt at its price', async () => {
    const messages = [{ role: 'user', content: 'many words '.repeat(400) }];
    for (const isCached of [false, true]) {
      const answer = await ask({ text: 'one two three' }, { messages, usage: { include: true } });
      const body: Body = await answer.json();
      const {
        input_tokens: input,
        cache_read_input_tokens: read = 0,
        cache_creation_input_tokens: written = 0,
      } = body.usage;
      expect(read > 0).toBe(isCached);
      const record = await bench.recordOf(answer);
      expect(record).toMatchObject({
        endpoint: path,
        usage_source: 'engine',
        input_tokens: input + read + written,
        input_cached_tokens: read,
        output_tokens: body.usage.output_tokens,
      });
      const cost = ((input + written) * 10 + read * 5 + body.usage.output_tokens * 40) / 1e8;
      expect(Number(record.cost)).toBeCloseTo(cost, 12);
      expect(body.usage.cost).toBe(Number(record.cost));
    }
  });

  it('is billed by the final count when streamed', async () => {
    const answer = await ask({ text: 'one two three' }, streamed);
    const events = eventsOf(await answer.text());
    expect(events.at(-1)).toEqual({ type: 'message_stop' });
    const { usage, delta } = events.at(-2);
    expect(delta).toEqual({ stop_reason: 'end_turn' });
    expect(await bench.recordOf(answer)).toMatchObject({
      outcome: 'completed',
      usage_source: 'engine',
      output_tokens: usage.output_tokens,
      stream: true,
    });
  });
});

describe('a message stream that breaks off', () => {
  it.each<[string, object, string]>([
    ['by an error', { error_after: 4 }, 'counted'],
    ['by a cut', { cut_after: 4 }, 'counted'],
    ['by garbage', { garbage_after: 4 }, 'counted'],
    ['by an abort that nobody asked for', { abort_after: 4 }, 'engine'],
  ])('ends with an error event %s, and pays for what was seen', async (_how, fault, source) => {
    const answer = await ask({ output_tokens: 20, ...fault }, streamed);
    const text = await answer.text();
    expect(eventsOf(text).at(-1)).toMatchObject({
      type: 'error',
      error: { type: 'api_error', code: 'upstream_error' },
    });
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'failed', usage_source: source, output_tokens: 4 });
    expect(record.input_tokens).toBeGreaterThan(0);
  });

  it("is aborted by id when the client leaves, and charged by the engine's count", async () => {
    const leaving = new AbortController();
    const answer = await ask(
      { output_tokens: 500, tpot_ms: 20 },
      { ...streamed, max_tokens: 600 },
      {
        signal: leaving.signal,
      },
    );
    await answer.body?.getReader().read();
    leaving.abort();
    const record = await bench.record(answer.headers.get('x-request-id') ?? '');
    expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
    expect(record.output_tokens).toBeGreaterThan(0);
    expect(record.output_tokens).toBeLessThan(500);
  });
});

it('ends a message stream with an error event when the wallet is empty, never below zero', async () => {
  const { key } = await openOrganization(bench.gateway, '0.0006');
  const answer = await ask({ output_tokens: 4000, tpot_ms: 2 }, { ...streamed, max_tokens: 5000 }, { key });
  const last = eventsOf(await answer.text()).at(-1);
  expect(last).toMatchObject({ type: 'error', error: { type: 'billing_error', code: 'insufficient_funds' } });
  expect(await bench.recordOf(answer, key)).toMatchObject({ outcome: 'ended', usage_source: 'engine' });
  expect(Number((await bench.wallet(key)).balance)).toBeGreaterThanOrEqual(0);
});

it('does not end a message stream that the wallet just pays for', async () => {
  const { key } = await openOrganization(bench.gateway, '0.0006');
  // The wallet pays for 1500 tokens.
  const answer = await ask({ output_tokens: 1400 }, { ...streamed, max_tokens: 5000 }, { key });
  expect(eventsOf(await answer.text()).at(-1)).toMatchObject({ type: 'message_stop' });
  expect(await bench.recordOf(answer, key)).toMatchObject({ outcome: 'completed', output_tokens: 1400 });
});

describe('a stored message', () => {
  let key: string;
  beforeAll(async () => {
    const fields = { name: 'cache', cache_responses: true, store_requests: true };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body: fields })).json();
    key = made.secret;
  });
  const weather = {
    name: 'weather',
    input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  };

  it.each<[string, boolean, object, object]>([
    ['text', true, {}, {}],
    ['text', false, {}, {}],
    ['thoughts', true, { model: 'thinker' }, { reasoning_text: 'So it is.' }],
    ['thoughts', false, { model: 'thinker' }, { reasoning_text: 'So it is.' }],
    ['a call', true, { tools: [weather], tool_choice: { type: 'any' } }, {}],
    ['a call', false, { tools: [weather], tool_choice: { type: 'any' } }, {}],
  ])('with %s serves the same request in either form, first streamed: %s', async (name, first, fields, knobs) => {
    const asked = { ...fields, messages: [{ role: 'user', content: `kept ${name} ${first}` }] };
    const client = new Anthropic({ baseURL: bench.gateway.url, apiKey: key, maxRetries: 0 });
    const fresh = await ask(knobs, { ...asked, stream: first }, { key });
    expect(fresh.headers.get('x-headgate-cache')).toBe('miss');
    const text = await fresh.text();
    const plain = await ask(knobs, { ...asked, stream: false }, { key });
    expect(plain.headers.get('x-headgate-cache')).toBe('hit');
    const message: Body = await plain.json();
    expect(message).toEqual(first ? message : JSON.parse(text));
    const again = await ask(knobs, { ...asked, stream: true, metadata: { user_id: 'x' } }, { key });
    expect(again.headers.get('x-headgate-cache')).toBe('hit');
    expect(eventsOf(await again.text()).at(-1)).toEqual({ type: 'message_stop' });
    const request: Body = { model: 'chat', max_tokens: 64, ...asked, standin: knobs };
    const read: Body = await client.messages.stream(request).finalMessage();
    expect(read.content).toEqual(message.content);
    expect(read.usage).toMatchObject(message.usage);
  });
});

describe("Anthropic's SDK", () => {
  let client: Anthropic;
  beforeAll(() => {
    const { url, key } = bench.gateway;
    client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
  });
  const asked = { model: 'chat', max_tokens: 64, messages: [{ role: 'user' as const, content: 'Hello' }] };

  it('creates with its older form of the key, authToken', async () => {
    const { url, key } = bench.gateway;
    const older = new Anthropic({ baseURL: url, authToken: key, apiKey: null, maxRetries: 0 });
    expect(await older.messages.create(asked)).toMatchObject({ type: 'message' });
  });

  it('creates, streams and counts', async () => {
    const message = await client.messages.create(asked);
    expect(message).toMatchObject({ type: 'message', model: 'chat', content: [{ type: 'text' }] });
    const stream = client.messages.stream({ ...asked, system: 'Be brief.' });
    let text = '';
    stream.on('text', (delta) => {
      text += delta;
    });
    const final = await stream.finalMessage();
    expect(final.content).toMatchObject([{ type: 'text', text }]);
    const counted = await client.messages.countTokens({ model: 'chat', messages: asked.messages });
    expect(counted.input_tokens).toBe(
      message.usage.input_tokens +
        (message.usage.cache_read_input_tokens ?? 0) +
        (message.usage.cache_creation_input_tokens ?? 0),
    );
  });

  it('calls a tool, and continues with its result', async () => {
    const input = { type: 'object' as const, properties: { city: { type: 'string' } }, required: ['city'] };
    const tools = [{ name: 'weather', description: 'The weather', input_schema: input }];
    const question = { role: 'user' as const, content: 'What is the weather in Paris?' };
    const called = await client.messages
      .stream({ ...asked, messages: [question], tools, tool_choice: { type: 'tool', name: 'weather' } })
      .finalMessage();
    const use = called.content.find(({ type }) => type === 'tool_use');
    expect(use).toMatchObject({ name: 'weather', input: { city: expect.any(String) } });
    const result = { type: 'tool_result' as const, tool_use_id: (use as Body).id, content: 'Sunny' };
    const messages = [question, { role: 'assistant' as const, content: called.content }];
    const answer = await client.messages.create({
      ...asked,
      max_tokens: 1000,
      tools,
      messages: [...messages, { role: 'user' as const, content: [result] }],
    });
    expect(answer.stop_reason).toBe('end_turn');
  });

  it('throws its own error classes', async () => {
    await expect(client.messages.create({ ...asked, model: 'none' })).rejects.toBeInstanceOf(Anthropic.BadRequestError);
    const wrong = new Anthropic({ baseURL: bench.gateway.url, apiKey: 'sk-hg-none', maxRetries: 0 });
    await expect(wrong.messages.create(asked)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
    const broken: Body = { ...asked, standin: { output_tokens: 20, error_after: 4 } };
    await expect(client.messages.stream(broken).finalMessage()).rejects.toThrow('upstream_error');
  });
});

describe('Claude Code', () => {
  const exchange = (fields: object = {}): Promise<Response> =>
    bench.post(`${path}?beta=true`, { model: 'chat', ...claudeCode.turn, ...fields }, { headers: claudeCode.headers });

  it('gets an answer to its unchanged request with tools', async () => {
    const answer = await exchange();
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
    const events = eventsOf(await answer.text());
    expect(events[0]).toMatchObject({ type: 'message_start', message: { role: 'assistant', model: 'chat' } });
    expect(events.slice(-2)).toMatchObject([
      { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
      { type: 'message_stop' },
    ]);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', usage_source: 'engine' });
  });

  it('gets a title, which it requests with an empty list of tools', async () => {
    const format = { type: 'json_schema', schema: { type: 'object', properties: { title: { type: 'string' } } } };
    const answer = await exchange({ tools: [], output_config: { format } });
    expect(answer.status).toBe(200);
    expect(eventsOf(await answer.text()).at(-1)).toEqual({ type: 'message_stop' });
  });

  it('gets 400 when an output format would turn its tools into a grammar', async () => {
    const format = { type: 'json_schema', schema: { type: 'object' } };
    const error = await errorOf(await exchange({ output_config: { effort: 'high', format } }));
    expect(error).toMatchObject({ status: 400, param: 'tools[0].input_schema' });
  });
});
