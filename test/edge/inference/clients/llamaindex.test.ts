import { OpenAI, OpenAIEmbedding } from '@llamaindex/openai';
import { tool } from 'llamaindex';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startGateway, type TestGateway } from '#test/gateway.ts';

describe('LlamaIndex', () => {
  let gateway: TestGateway;
  let llm: OpenAI;

  beforeAll(async () => {
    gateway = await startGateway();
    llm = new OpenAI({
      model: 'standin-chat',
      apiKey: gateway.key,
      baseURL: `${gateway.url}/v1`,
      maxTokens: 40,
      maxRetries: 0,
    });
  });
  afterAll(() => gateway.stop());

  it('throws with status 401 for a wrong key', async () => {
    const stranger = new OpenAI({
      model: 'standin-chat',
      apiKey: 'sk-wrong',
      baseURL: `${gateway.url}/v1`,
      maxRetries: 0,
    });
    await expect(stranger.complete({ prompt: 'Hello' })).rejects.toMatchObject({ status: 401 });
  });

  it('chats', async () => {
    const answer = await llm.chat({ messages: [{ role: 'user', content: 'Hello' }] });
    expect(answer.message.content.length).toBeGreaterThan(0);
  });

  it('streams', async () => {
    let text = '';
    for await (const chunk of await llm.chat({ messages: [{ role: 'user', content: 'Hello' }], stream: true })) {
      text += chunk.delta;
    }
    expect(text.length).toBeGreaterThan(0);
  });

  it('calls tools', async () => {
    const weather = tool({
      name: 'get_weather',
      description: 'The weather of a city',
      parameters: z.object({ city: z.string() }),
      execute: ({ city }: { city: string }) => `sunny in ${city}`,
    });
    const answer = await llm.chat({
      messages: [{ role: 'user', content: 'What is the weather in Paris?' }],
      tools: [weather],
      additionalChatOptions: { tool_choice: 'required' },
    });
    expect(JSON.stringify(answer.message.options)).toContain('get_weather');
  });

  it('embeds', async () => {
    const embedding = new OpenAIEmbedding({
      model: 'standin-embed',
      apiKey: gateway.key,
      baseURL: `${gateway.url}/v1`,
    });
    const [first, second] = await embedding.getTextEmbeddings(['one', 'two']);
    expect(first?.length).toBeGreaterThan(8);
    expect(second?.length).toBe(first?.length);
  });
});
