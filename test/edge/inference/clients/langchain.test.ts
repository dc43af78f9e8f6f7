import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startGateway, type TestGateway } from '#test/gateway.ts';

/** LangChain's types leave the usage of a message open. */
function usageOf(message: object): number | undefined {
  const usage: unknown = Reflect.get(message, 'usage_metadata');
  const tokens: unknown = typeof usage === 'object' && usage !== null ? Reflect.get(usage, 'output_tokens') : undefined;
  return typeof tokens === 'number' ? tokens : undefined;
}

describe('LangChain', () => {
  let gateway: TestGateway;
  let chat: ChatOpenAI;

  beforeAll(async () => {
    gateway = await startGateway();
    chat = new ChatOpenAI({
      model: 'standin-chat',
      apiKey: gateway.key,
      maxTokens: 10,
      maxRetries: 0,
      configuration: { baseURL: `${gateway.url}/v1` },
    });
  });
  afterAll(() => gateway.stop());

  it('throws with status 401 for a wrong key', async () => {
    const stranger = new ChatOpenAI({
      model: 'standin-chat',
      apiKey: 'sk-wrong',
      maxRetries: 0,
      configuration: { baseURL: `${gateway.url}/v1` },
    });
    await expect(stranger.invoke('Hello')).rejects.toMatchObject({ status: 401 });
  });

  it('chats and reads the usage', async () => {
    const answer = await chat.invoke('Hello');
    expect(answer.text.length).toBeGreaterThan(0);
    expect(usageOf(answer)).toBe(10);
  });

  it('streams, usage included', async () => {
    let text = '';
    let outputTokens = 0;
    for await (const chunk of await chat.stream('Hello')) {
      text += chunk.text;
      outputTokens += usageOf(chunk) ?? 0;
    }
    expect(text.length).toBeGreaterThan(0);
    expect(outputTokens).toBe(10);
  });

  it('calls tools', async () => {
    const weather = tool(({ city }: { city: string }) => `sunny in ${city}`, {
      name: 'get_weather',
      description: 'The weather of a city',
      schema: z.object({ city: z.string() }),
    });
    const bound = new ChatOpenAI({
      model: 'standin-chat',
      apiKey: gateway.key,
      configuration: { baseURL: `${gateway.url}/v1` },
    }).bindTools([weather], { tool_choice: 'required' });
    const answer = await bound.invoke('What is the weather in Paris?');
    expect(answer.tool_calls?.[0]).toMatchObject({ name: 'get_weather' });
    expect(answer.tool_calls?.[0]?.args).toHaveProperty('city');
  });

  it('embeds documents and queries', async () => {
    const embeddings = new OpenAIEmbeddings({
      model: 'standin-embed',
      apiKey: gateway.key,
      configuration: { baseURL: `${gateway.url}/v1` },
    });
    const [first, second] = await embeddings.embedDocuments(['one', 'two']);
    expect(first?.length).toBeGreaterThan(8);
    expect(second?.length).toBe(first?.length);
    expect(await embeddings.embedQuery('one')).toEqual(first);
  });
});
