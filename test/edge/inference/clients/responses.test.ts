import { createOpenAI } from '@ai-sdk/openai';
import { ChatOpenAI } from '@langchain/openai';
import { OpenAIResponses } from '@llamaindex/openai';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { externalFile, useInference } from '#test/inference/inference-gateway.ts';
import { type ResponsesEngine, startResponsesEngine } from '../responses-engine.ts';

/** Clients that ask `/v1/responses`, changed in nothing but base URL and key. */
let engine: ResponsesEngine;
const bench = useInference(async () => {
  engine = await startResponsesEngine();
  return { engines: { chat: externalFile('chat', engine.url, { lines: ['kind: vllm'] }) } };
});
afterAll(() => engine.close());

describe('the openai SDK with /v1/responses', () => {
  let client: OpenAI;
  beforeAll(() => {
    client = new OpenAI({ baseURL: `${bench.gateway.url}/v1`, apiKey: bench.gateway.key, maxRetries: 0 });
  });

  it('throws its own error classes', async () => {
    const background = client.responses.create({ model: 'chat', input: 'Hi', background: true });
    await expect(background).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(background).rejects.toMatchObject({ code: 'unsupported_parameter', param: 'background' });
    await expect(client.responses.retrieve('resp_1')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(client.responses.cancel('resp_1')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  it('throws in the middle of a stream that fails', async () => {
    const script = { tokens: 4, cutAfter: 7 };
    const asked = { model: 'chat', input: 'Hi', stream: true, script } as const;
    const read = async (): Promise<void> => {
      for await (const event of await client.responses.create(asked)) expect(event.type).toMatch(/^response\./);
    };
    await expect(read()).rejects.toMatchObject({ code: 'upstream_error' });
  });

  it('creates a response', async () => {
    const answer = await client.responses.create({ model: 'chat', input: 'Hi' });
    expect(answer).toMatchObject({ model: 'chat', output_text: 'word word word ', usage: { output_tokens: 3 } });
  });

  it('streams, and assembles the events', async () => {
    const stream = client.responses.stream({ model: 'chat', input: 'Hi' });
    let text = '';
    stream.on('response.output_text.delta', ({ delta }) => {
      text += delta;
    });
    const final = await stream.finalResponse();
    expect(text).toBe('word word word ');
    expect(final).toMatchObject({ model: 'chat', status: 'completed', usage: { output_tokens: 3 } });
  });

  it('parses structured output', async () => {
    const script = { says: '{"city":"Paris"}' };
    const text = { format: zodTextFormat(z.object({ city: z.string() }), 'place') };
    const asked = { model: 'chat', input: 'Where?', text, script };
    const answer = await client.responses.parse(asked);
    expect(answer.output_parsed).toEqual({ city: 'Paris' });
  });
});

it('works through LangChain with useResponsesApi, invoked and streamed', async () => {
  const chat = new ChatOpenAI({
    model: 'chat',
    apiKey: bench.gateway.key,
    maxRetries: 0,
    useResponsesApi: true,
    configuration: { baseURL: `${bench.gateway.url}/v1` },
  });
  const answer = await chat.invoke('Hello');
  expect(answer.text).toBe('word word word ');
  let text = '';
  for await (const chunk of await chat.stream('Hello')) text += chunk.text;
  expect(text).toBe('word word word ');
});

it('works through LlamaIndex with OpenAIResponses, which sends null for unset fields', async () => {
  const llm = new OpenAIResponses({
    model: 'chat',
    apiKey: bench.gateway.key,
    baseURL: `${bench.gateway.url}/v1`,
    maxRetries: 0,
  });
  const messages = [{ role: 'user' as const, content: 'Hello' }];
  const { message } = await llm.chat({ messages });
  expect(message.content).toBe('word word word ');
  let text = '';
  // It gives its last delta once more for each event that has none.
  for await (const { delta } of await llm.chat({ messages, stream: true })) text += delta;
  expect(text).toMatch(/^(word ){3,}$/);
});

describe("the AI SDK's own OpenAI provider, by default", () => {
  const model = () => createOpenAI({ baseURL: `${bench.gateway.url}/v1`, apiKey: bench.gateway.key })('chat');

  it('generates text, and continues the conversation', async () => {
    const first = await generateText({ model: model(), prompt: 'Hi', maxRetries: 0 });
    expect(first).toMatchObject({ text: 'word word word ', usage: { inputTokens: 21, outputTokens: 3 } });
    const messages = [
      { role: 'user' as const, content: 'Hi' },
      ...first.response.messages,
      { role: 'user' as const, content: 'And?' },
    ];
    // It refers to the stored answer.
    const next = await generateText({ model: model(), messages, maxRetries: 0 });
    expect(next.text).toBe('word word word ');
    expect(JSON.parse(engine.bodies.at(-1) ?? '').input[1]).toMatchObject({ type: 'message', role: 'assistant' });
  });

  it('streams', async () => {
    const result = streamText({ model: model(), prompt: 'Hi', maxRetries: 0 });
    let text = '';
    for await (const part of result.textStream) text += part;
    expect([text, (await result.usage).outputTokens]).toEqual(['word word word ', 3]);
  });
});
