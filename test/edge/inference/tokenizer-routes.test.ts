import { beforeEach, describe, expect, it } from 'vitest';
import { uncountedEndpoints } from '#core/metering/metering.ts';
import { type Endpoint, endpoints } from '#edge/inference/request/endpoints.ts';
import { enoughOfTheDay } from '#test/one-day.ts';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';

beforeEach(enoughOfTheDay);

/** Routes that ask only an engine's tokenizer. */

const countPath = '/v1/messages/count_tokens';
const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
const hello = [{ role: 'user', content: 'Hello' }];

describe('free routes', () => {
  it('are exactly those that no engine counts', () => {
    const free = endpoints.filter(({ isFree }: Endpoint) => isFree === true);
    expect(free.map(({ path: route }) => route)).toEqual(uncountedEndpoints);
  });

  it.each<[string, object, object]>([
    [countPath, { messages: hello }, { input_tokens: expect.any(Number) }],
    ['/v1/tokenize', { prompt: 'Hello there' }, { count: 2, tokens: [expect.any(Number), expect.any(Number)] }],
    ['/v1/tokenize', { messages: hello }, { count: expect.any(Number), max_model_len: 8192 }],
    ['/v1/detokenize', { tokens: [1, 2] }, { prompt: expect.any(String) }],
  ])('cost nothing, with a record: %s of %j', async (route, fields, expected) => {
    const answer = await bench.post(route, { model: 'chat', ...fields });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject(expected);
    expect(await bench.recordOf(answer)).toMatchObject({
      endpoint: route,
      outcome: 'completed',
      cost: '0',
      input_tokens: 0,
    });
  });

  it.each([countPath, '/v1/tokenize', '/v1/detokenize'])('use none of the tokens of the key: %s', async (route) => {
    const fields = { name: 'few tokens', tokens_per_minute: 300, monthly_token_limit: 100 };
    const { id, secret: key }: Body = await (await bench.gateway.request('/v1/keys', { body: fields })).json();
    const answer = await bench.post(route, { model: 'chat', messages: hello, tokens: [1] }, { key });
    expect([answer.status, answer.headers.get('x-ratelimit-remaining-tokens')]).toEqual([200, '300']);
    expect((await bench.chat({ max_tokens: 64, standin: { output_tokens: 60 } }, { key })).status).toBe(200);
    expect((await bench.post(route, { model: 'chat', messages: hello, tokens: [1] }, { key })).status).toBe(200);
    // An organization has five at most.
    await bench.gateway.request(`/v1/keys/${id}`, { method: 'DELETE' });
  });

  it('return tokens that convert back to the same text', async () => {
    const prompt = 'Water over the weir';
    const { tokens }: Body = await (await bench.post('/v1/tokenize', { model: 'chat', prompt })).json();
    expect(await (await bench.post('/v1/detokenize', { model: 'chat', tokens })).json()).toEqual({ prompt });
  });

  it.each([countPath, '/v1/tokenize', '/v1/detokenize'])(
    'return 400 for more text than a prompt can have: %s',
    async (route) => {
      const answer = await bench.post(route, { model: 'chat', prompt: 'x'.repeat(300_000) });
      const { error }: Body = await answer.json();
      expect([answer.status, error.code]).toEqual([400, 'context_length_exceeded']);
    },
  );

  it("return the gateway's own error shape when they are not Anthropic's", async () => {
    const answer = await bench.post('/v1/tokenize', { model: 'chat', prompt: 'x', chat_template: '{{ x }}' });
    const body: Body = await answer.json();
    expect(Object.keys(body)).toEqual(['error']);
    expect(body.error).toMatchObject({ code: 'unsupported_parameter', param: 'chat_template' });
  });
});
