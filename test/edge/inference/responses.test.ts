import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  eventually,
  externalFile,
  openOrganization,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { eventsOf } from './messages-client.ts';
import { enginePath, type ResponsesEngine, type Script, startResponsesEngine, usageOf } from './responses-engine.ts';

/** POST /v1/responses through a gateway to an engine that answers as the request says. */

const path = '/v1/responses';
let engine: ResponsesEngine;
const bench = useInference(async () => {
  engine = await startResponsesEngine();
  const allow = 'allow: [store, previous_response_id, background, builtin_tools]';
  return {
    engines: {
      chat: externalFile('team/chat', engine.url, { lines: ['kind: vllm'] }),
      open: externalFile('open', engine.url, { lines: ['kind: vllm', allow] }),
      other: externalFile('other', engine.url),
      routeless: externalFile('routeless', `${engine.url}/nowhere`),
      embed: externalFile('embed', engine.url, { taskType: 'embedding', lines: ['kind: vllm'] }),
    },
  };
});
afterAll(() => engine.close());

const ask = (script: Script, fields: object = {}, options: object = {}): Promise<Response> =>
  bench.post(path, { model: 'team/chat', input: 'Hi', ...fields, script }, options);
const streamed = { stream: true };
const sent = (): Body => JSON.parse(engine.bodies.at(-1) ?? '{}');

const complete = { endpoint: path, outcome: 'completed', usage_source: 'engine' };
const prompt = { input_tokens: 21, input_cached_tokens: 16 };
const billed = (tokens: number): object => ({ ...complete, ...prompt, output_tokens: tokens });
/** Uncached at 0.10 a million, cached at 0.05, output at 0.40. */
const costOf = (tokens: number): string => ((50 + 80 + tokens * 40) / 1e8).toFixed(8).replace(/0+$/, '');

const namespace = (tool: object): object => ({ type: 'namespace', name: 'n', tools: [tool] });

describe('input validation', () => {
  it.each<[object, string]>([
    [{ store: 'true' }, 'store'],
    [{ previous_response_id: 'resp_1' }, 'previous_response_id'],
    [{ conversation: 'conv_1' }, 'conversation'],
    [{ conversation: { id: 'conv_1' } }, 'conversation'],
    [{ background: true }, 'background'],
    [{ request_id: 'resp_1' }, 'request_id'],
    [{ tools: [{ type: 'web_search_preview' }] }, 'tools'],
    [{ tools: [{ type: 'function', name: 'f', parameters: {} }, { type: 'code_interpreter' }] }, 'tools'],
    [{ tools: [namespace({ type: 'mcp' })] }, 'tools'],
    [{ tools: [namespace(namespace({ type: 'mcp' }))] }, 'tools'],
    [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'http://169.254.169.254/' }] }] }, 'input'],
    [
      {
        input: [
          {
            type: 'function_call_output',
            call_id: 'c',
            output: [{ type: 'input_image', image_url: 'http://169.254.169.254/' }],
          },
        ],
      },
      'input',
    ],
  ])('returns 400 with the field in param: %j', async (fields, param) => {
    const before = engine.bodies.length;
    const error = await errorOf(await ask({}, fields));
    expect(error).toMatchObject({ status: 400, type: 'invalid_request_error', param });
    expect(error.message).toMatch(/\.$/);
    expect(engine.bodies).toHaveLength(before);
  });

  it.each([
    [{ type: 'computer_call', id: 'c' }, 'input[1] is of the type "computer_call"'],
    [{ type: null, role: 'user', content: 'x' }, 'input[1] is of the type null'],
    [{ id: 'ws_1', status: 'completed' }, 'input[1] has neither a type nor a role'],
    [{ type: 'reasoning', id: 'r', summary: [], encrypted_content: 'abc' }, 'input[1] has encrypted_content'],
    [{ type: 'message', id: 'm', role: 'assistant', status: 'completed', content: [] }, 'input[1] has no content'],
    [
      {
        type: 'message',
        id: 'm',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'refusal', refusal: 'No.' }],
      },
      'input[1] has a part of the type "refusal"',
    ],
    // vLLM reads the first part of every one that has its type, with and without an id.
    [{ type: 'message', role: 'assistant', content: [] }, 'input[1] has no content'],
    [
      { type: 'message', role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
      'input[1] has a part of the type "refusal"',
    ],
    [{ type: `r\u00fcck${'x'.repeat(100)}` }, 'input[1] is of the type "r??ckxxx'],
  ])('returns 400 for an input item that vLLM fails on: %j', async (item, words) => {
    const input = [{ role: 'user', content: 'Hi' }, item, { role: 'user', content: 'Go' }];
    for (const fields of [{}, streamed]) {
      const error = await errorOf(await ask({}, { input, ...fields }));
      expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input' });
      expect(error.message).toContain(words);
      expect(error.message).toContain('Omit this item.');
    }
    // Another make may know it.
    expect((await ask({}, { model: 'other', input })).status).toBe(200);
  });

  it('accepts the input items that vLLM reads, and an input without items', async () => {
    const items = [
      { role: 'user', content: 'Hi' },
      { type: 'message', role: 'user', content: 'Hi' },
      {
        type: 'message',
        id: 'm',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text: 'x' }],
      },
      { role: 'assistant', id: 'm', status: 'completed', content: [] },
      { role: 'assistant', id: 'm', status: 'completed', content: [{ type: 'refusal', refusal: 'No.' }] },
      { type: 'function_call', call_id: 'c', name: 'n', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c', output: '{"type":"item_reference"}' },
      {
        type: 'reasoning',
        id: 'r',
        summary: [],
        content: [{ type: 'reasoning_text', text: 'x' }],
        encrypted_content: null,
      },
    ];
    for (const input of [items, [], 'a text']) expect((await ask({}, { input })).status).toBe(200);
  });

  it('returns 400 for an invalid limit, and for a model of another task', async () => {
    expect(await errorOf(await ask({}, { max_output_tokens: 'many' }))).toMatchObject({ param: 'max_output_tokens' });
    expect(await errorOf(await ask({}, { model: 'embed' }))).toMatchObject({ status: 400, code: 'model_not_found' });
  });

  it.each([
    ['GET', '/resp_1'],
    ['DELETE', '/resp_1'],
    ['POST', '/resp_1/cancel'],
    ['GET', '/resp_1/input_items'],
  ])('returns 404 for %s of a response that does not exist', async (method, rest) => {
    const answer = await bench.gateway.request(path + rest, { method });
    expect(await errorOf(answer)).toMatchObject({ status: 404, code: 'not_found' });
  });

  it('returns 405 for GET /v1/responses', async () => {
    const answer = await bench.gateway.request(path);
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
  });

  it('forwards what the engine file allows', async () => {
    const fields = { model: 'open', tools: [{ type: 'web_search_preview' }] };
    expect((await ask({}, fields)).status).toBe(200);
    expect(sent()).toMatchObject({ ...fields });
  });

  it('lets no engine store responses, even if the engine file allows it', async () => {
    expect((await ask({}, { model: 'open', store: true })).status).toBe(200);
    expect(sent()).toMatchObject({ store: false });
    expect((await errorOf(await ask({}, { model: 'open', background: true }))).param).toBe('background');
  });
});

it.each([path, `${path}/input_tokens`])('returns 501 when the engine does not know the route: %s', async (route) => {
  const answer = await bench.post(route, { model: 'routeless', input: 'Hi' });
  const error = await errorOf(answer);
  expect(error).toMatchObject({ status: 501, code: 'not_implemented' });
  expect(answer.headers.get('x-should-retry')).toBe('false');
  expect(error.message).toContain('does not support this endpoint');
  expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
});

describe('the request that the engine receives', () => {
  it('has explicit defaults for nulls that vLLM would fail on after the answer', async () => {
    const answer = await ask({}, { truncation: null, background: null, include: null });
    expect(answer.status).toBe(200);
    expect(sent()).toMatchObject({ truncation: 'disabled', background: false, include: null });
  });

  it.each([{}, { store: null }, { store: false }])('has store: false for %j', async (fields) => {
    const answer = await ask({}, fields);
    const id = answer.headers.get('x-request-id');
    expect(sent()).toMatchObject({ store: false, request_id: `resp_${id}` });
    expect(await answer.json()).toMatchObject({ id: `resp_${id}` });
  });

  it('has no vLLM-only field for an engine of another kind', async () => {
    expect((await ask({}, { model: 'other' })).status).toBe(200);
    expect(sent()).toMatchObject({ store: false });
    expect(sent()).not.toHaveProperty('request_id');
  });

  it('has its output cut to what the wallet pays for', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0005');
    const answer = await ask({}, { max_output_tokens: 8000 }, { key });
    expect(answer.status).toBe(200);
    const max = Number(answer.headers.get('x-headgate-max-tokens'));
    expect(max).toBeGreaterThan(0);
    expect(max).toBeLessThan(8000);
    expect(sent().max_output_tokens).toBe(max);
  });
});

describe('an answer', () => {
  it("is billed by its count as JSON, and has the catalog's model name", async () => {
    const answer = await ask({ tokens: 5 }, { usage: { include: true } });
    const body: Body = await answer.json();
    expect(body).toMatchObject({ object: 'response', model: 'team/chat', usage: usageOf(5) });
    expect(body.usage.cost).toBe(Number(costOf(5)));
    expect(await bench.recordOf(answer)).toMatchObject({ ...billed(5), cost: costOf(5), stream: false });
  });

  it.each(['completed', 'incomplete'] as const)(
    'is billed by its count when streamed up to response.%s',
    async (end) => {
      const answer = await ask(
        { tokens: 4, end },
        { ...streamed, metadata: { type: 'response.completed', model: 'x' } },
      );
      const text = await answer.text();
      const events = eventsOf(text);
      expect(events.map(({ sequence_number: at }) => at)).toEqual(events.map((_, at) => at));
      const responses = events.filter(({ response }) => response !== undefined).map(({ response }) => response);
      expect(responses).toHaveLength(3);
      expect(new Set(responses.map(({ model }) => model))).toEqual(new Set(['team/chat']));
      expect(responses[0].metadata).toEqual({ type: 'response.completed', model: 'x' });
      expect(events.at(-1)).toMatchObject({ type: `response.${end}`, response: { usage: usageOf(4) } });
      expect(text).not.toContain('[DONE]');
      expect(text).not.toContain(enginePath);
      expect(await bench.recordOf(answer)).toMatchObject({ ...billed(4), cost: costOf(4), stream: true });
    },
  );

  it('has its cost at the end of the stream when requested', async () => {
    const text = await (await ask({ tokens: 4 }, { ...streamed, usage: { include: true } })).text();
    expect(eventsOf(text).at(-1).response.usage.cost).toBe(Number(costOf(4)));
  });
});

describe('a stream that the engine breaks off', () => {
  it.each([1, 2])('returns 502 without a stream after event %d', async (cutAfter) => {
    const answer = await ask({ cutAfter }, streamed);
    expect(await errorOf(answer.clone())).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', usage_source: 'none', cost: '0' });
  });

  it.each([
    [3, 0],
    [5, 1],
    [8, 4],
    [9, 4],
  ])('is billed by the text seen after event %d: %d tokens', async (cutAfter, tokens) => {
    const answer = await ask({ tokens: 4, cutAfter }, streamed);
    const last = eventsOf(await answer.text()).at(-1);
    expect(last).toMatchObject({ type: 'error', code: 'upstream_error', error: { code: 'upstream_error' } });
    const record = await bench.recordOf(answer);
    const usage_source = tokens === 0 ? 'none' : 'counted';
    expect(record).toMatchObject({ outcome: 'failed', usage_source, output_tokens: tokens });
    // No event counts the prompt: the estimate does.
    expect(record.input_tokens > 0).toBe(tokens > 0);
    expect(Number(record.cost)).toBeCloseTo((record.input_tokens * 10 + tokens * 40) / 1e8, 12);
  });

  it.each(['failed', 'error', 'cancelled'] as const)('reveals nothing of the engine: %s', async (end) => {
    const answer = await ask({ tokens: 4, end }, streamed);
    const text = await answer.text();
    expect(text).not.toContain('/srv');
    expect(eventsOf(text).at(-1)).toMatchObject({ type: 'error', code: 'upstream_error' });
    expect(await bench.recordOf(answer)).toMatchObject({
      outcome: 'failed',
      usage_source: end === 'error' ? 'counted' : 'engine',
      output_tokens: 4,
    });
  });

  it('is an upstream_error and costs nothing when it is JSON', async () => {
    for (const script of [{ end: 'cancelled' }, { end: 'failed' }, { status: 500 }] as const) {
      const answer = await ask(script);
      expect(await errorOf(answer.clone())).toMatchObject({ status: 502, code: 'upstream_error' });
      expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
    }
  });
});

describe('a client that leaves', () => {
  it("aborts its stream at the engine by id, and pays the engine's count", async () => {
    const leaving = new AbortController();
    const answer = await ask({ tokens: 4, end: 'hang' }, streamed, { signal: leaving.signal });
    const id = answer.headers.get('x-request-id');
    await answer.body?.getReader().read();
    leaving.abort();
    const record = await bench.record(id ?? '');
    expect(record).toMatchObject({ ...billed(5), outcome: 'aborted', cost: costOf(5) });
    expect(engine.aborts.at(-1)).toEqual([`resp_${id}_0`]);
  });

  it("aborts its JSON answer at the engine, and pays the engine's count", async () => {
    const leaving = new AbortController();
    const before = engine.bodies.length;
    const gone = ask({ tokens: 4, end: 'hang' }, {}, { signal: leaving.signal }).catch(() => null);
    await eventually(async () => engine.bodies.length > before);
    const id = sent().request_id.replace('resp_', '');
    leaving.abort();
    await gone;
    expect(await bench.record(id)).toMatchObject({ ...billed(5), outcome: 'aborted', cost: costOf(5) });
  });
});

describe('a wallet of 1500 tokens', () => {
  it('ends a stream when it is used up, by the tokens seen, never below zero', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0006');
    const answer = await ask({ tokens: 3000, end: 'hang' }, { ...streamed }, { key });
    const events = eventsOf(await answer.text());
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'insufficient_funds' });
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'ended', usage_source: 'engine', output_tokens: 3001 });
    expect(Number((await bench.wallet(key)).balance)).toBeGreaterThanOrEqual(0);
  });

  it('does not end a stream that it just pays for, however long the words are', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0006');
    // Until the engine has counted the prompt, as much as it can have is held for it: the price of about 160 of these.
    const answer = await ask({ tokens: 1300, says: ' organizations' }, streamed, { key });
    expect(eventsOf(await answer.text()).at(-1)).toMatchObject({ type: 'response.completed' });
    expect(await bench.recordOf(answer, key)).toMatchObject({ outcome: 'completed', output_tokens: 1300 });
  });

  it('ends a stream with many tokens per event when it is used up', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0006');
    const answer = await ask({ gathered: 50 }, streamed, { key });
    const events = eventsOf(await answer.text());
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'insufficient_funds' });
    expect(events.filter(({ type }) => type.endsWith('.delta')).length).toBeLessThan(200);
    expect(await bench.recordOf(answer, key)).toMatchObject({ outcome: 'ended', usage_source: 'engine' });
    expect(Number((await bench.wallet(key)).balance)).toBeGreaterThanOrEqual(0);
  });
});

describe('a stored answer', () => {
  let key: string;
  beforeAll(async () => {
    const fields = { name: 'cache', cache_responses: true, store_requests: true };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body: fields })).json();
    key = made.secret;
  });

  it.each([true, false])('serves the same request in either form, first streamed: %s', async (first) => {
    const fields = { input: `kept ${first}` };
    const script = { tokens: 4 };
    const fresh = await ask(script, { ...fields, stream: first }, { key });
    expect(fresh.headers.get('x-headgate-cache')).toBe('miss');
    const text = await fresh.text();
    const response: Body = first ? eventsOf(text).at(-1).response : JSON.parse(text);
    const plain = await ask(script, { ...fields, stream: false }, { key });
    expect(plain.headers.get('x-headgate-cache')).toBe('hit');
    const again: Body = await plain.json();
    // Each request has a stored response of its own.
    expect(again).toEqual({ ...response, id: again.id });
    const stream = await ask(script, { ...fields, stream: true }, { key });
    expect(stream.headers.get('x-headgate-cache')).toBe('hit');
    const events = eventsOf(await stream.text());
    const { id } = events.at(-1).response;
    expect(new Set([response.id, again.id, id]).size).toBe(3);
    expect(events.at(-1)).toMatchObject({ type: 'response.completed', response: { ...response, id } });
    expect(events.filter(({ delta }) => delta !== undefined).map(({ delta }) => delta)).toEqual(['word '.repeat(4)]);
    const other = await ask(script, { ...fields, metadata: { a: 'b' } }, { key });
    expect(other.headers.get('x-headgate-cache')).toBe('miss');
  });

  it("shows request and answer by the request's id", async () => {
    const answer = await ask({ tokens: 4 }, { ...streamed, input: 'stored' }, { key });
    expect(await answer.text()).toContain('response.completed');
    const id = answer.headers.get('x-request-id') ?? '';
    const content: Body = await eventually(async () => {
      const read = await bench.gateway.request(`/v1/usage/requests/${id}/content`);
      return read.status === 200 ? read.json() : null;
    });
    expect(JSON.stringify(content.request)).toContain('stored');
    expect(JSON.stringify(content.response)).toContain('response.completed');
  });
});
