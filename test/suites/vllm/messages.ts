import Anthropic from '@anthropic-ai/sdk';
import { expect, it } from 'vitest';
import { type Body } from '#test/inference/inference-gateway.ts';
import { itBillsWhatIsLeft } from './left-answers.ts';
import { bench, counters, expectExact } from './real-engine.ts';

const path = '/v1/messages';
const ask = (fields: object, options: object = {}): Promise<Response> =>
  bench.post(path, { model: 'chat', temperature: 0, ...fields }, options);
const messages = [{ role: 'user' as const, content: 'What is the capital of France?' }];
const question = { messages, max_tokens: 24 };
const story = { messages: [{ role: 'user', content: 'Write a very long story about a river.' }], max_tokens: 1500 };

/** `/v1/messages` of a real vLLM: what is billed is what its counters say. And the tokenizer's routes. */
export function describeMessages(): void {
  it("answers as JSON and counts tokens, and is billed by the engine's count", async () => {
    // Starts the engine.
    expect((await ask(question)).status).toBe(200);
    const before = await counters();
    const answer = await ask(question);
    const body: Body = await answer.json();
    expect(body).toMatchObject({ type: 'message', model: 'chat', content: [{ type: 'text' }] });
    expect(['end_turn', 'max_tokens']).toContain(body.stop_reason);
    // The words that a small model finds differ between processors.
    expect(body.content[0].text).not.toBe('');
    const record = await bench.recordOf(answer);
    await expectExact(record, before, 'completed');
    const counted: Body = await (await bench.post(`${path}/count_tokens`, { model: 'chat', messages })).json();
    expect(counted.input_tokens).toBe(record.input_tokens);
    const tokens: Body = await (await bench.post('/v1/tokenize', { model: 'chat', messages })).json();
    expect(tokens.count).toBe(record.input_tokens);
  });

  it("streams to Anthropic's SDK up to message_stop, and is billed by the engine's count", async () => {
    const before = await counters();
    const { url, key } = bench.gateway;
    const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
    const stream = client.messages.stream({ model: 'chat', temperature: 0, ...question });
    const final = await stream.finalMessage();
    const [content] = final.content;
    expect(content?.type === 'text' && content.text).toMatch(/./);
    const id = stream.response?.headers.get('x-request-id') ?? '';
    await expectExact(await bench.record(id), before, 'completed');
  });

  it('ends with max_tokens at the output limit', async () => {
    const before = await counters();
    const answer = await ask({ ...story, max_tokens: 16 });
    expect(await answer.json()).toMatchObject({ stop_reason: 'max_tokens', usage: { output_tokens: 16 } });
    await expectExact(await bench.recordOf(answer), before, 'completed');
  });

  itBillsWhatIsLeft({ tell: (fields, options) => ask({ ...story, ...fields }, options), delta: 'text_delta' });

  it('answers in the form of a JSON schema', async () => {
    const schema = {
      type: 'object',
      properties: { city: { type: 'string', enum: ['Paris'] } },
      required: ['city'],
      additionalProperties: false,
    };
    const outputConfig = { format: { type: 'json_schema', schema } };
    const answer: Body = await (await ask({ ...question, output_config: outputConfig, max_tokens: 64 })).json();
    expect(JSON.parse(answer.content[0].text)).toEqual({ city: 'Paris' });
  });

  it("rejects an invalid message in Anthropic's error format, without repeating the input", async () => {
    const answer = await ask({
      messages: [{ role: 'user', content: [{ type: 'document', secret: 'river' }] }],
      max_tokens: 4,
    });
    const text = await answer.text();
    expect(answer.status).toBe(400);
    expect(JSON.parse(text)).toMatchObject({ type: 'error', error: { type: 'invalid_request_error' } });
    expect(text).not.toContain('river');
  });

  it('tokenizes and detokenizes to the same text', async () => {
    const prompt = 'Water over the weir';
    const { tokens }: Body = await (await bench.post('/v1/tokenize', { model: 'chat', prompt })).json();
    const answer = await bench.post('/v1/detokenize', { model: 'chat', tokens });
    expect(await answer.json()).toEqual({ prompt });
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', cost: '0' });
  });
}
