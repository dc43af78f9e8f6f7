import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embedMany, generateObject, generateText, streamText, tool } from 'ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startGateway, type TestGateway } from '../../../support/gateway.ts';

describe('the Vercel AI SDK', () => {
  let gateway: TestGateway;
  let provider: ReturnType<typeof createOpenAICompatible>;

  const providerOf = (apiKey: string) =>
    createOpenAICompatible({
      name: 'headgate',
      baseURL: `${gateway.url}/v1`,
      apiKey,
      includeUsage: true,
      supportsStructuredOutputs: true,
    });

  beforeAll(async () => {
    gateway = await startGateway();
    provider = providerOf(gateway.key);
  });
  afterAll(() => gateway.stop());

  it('is told what is wrong', async () => {
    const refused = generateText({ model: providerOf('sk-wrong')('standin-chat'), prompt: 'Hello', maxRetries: 0 });
    await expect(refused).rejects.toMatchObject({ statusCode: 401 });
  });

  it('generates text', async () => {
    const { text, usage } = await generateText({
      model: provider('standin-chat'),
      prompt: 'Hello',
      maxOutputTokens: 10,
    });
    expect(text.length).toBeGreaterThan(0);
    expect(usage.outputTokens).toBe(10);
  });

  it('streams text and reasoning', async () => {
    const result = streamText({ model: provider('standin-reasoning'), prompt: 'Hello', maxOutputTokens: 60 });
    let text = '';
    for await (const part of result.textStream) text += part;
    const reasoning = await result.reasoningText;
    expect(text.length + (reasoning?.length ?? 0)).toBeGreaterThan(0);
    expect((await result.usage).outputTokens).toBeGreaterThan(0);
  });

  it('calls tools', async () => {
    const weather = tool({
      description: 'The weather of a city',
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }: { city: string }) => Promise.resolve(`sunny in ${city}`),
    });
    const { toolCalls, toolResults } = await generateText({
      model: provider('standin-chat'),
      prompt: 'What is the weather in Paris?',
      tools: { get_weather: weather },
      toolChoice: 'required',
    });
    expect(toolCalls[0]?.toolName).toBe('get_weather');
    expect(String(toolResults[0]?.output)).toContain('sunny in');
  });

  it('generates objects', async () => {
    const { object } = await generateObject({
      model: provider('standin-chat'),
      prompt: 'Name a city',
      schema: z.object({ city: z.string() }),
    });
    expect(typeof object.city).toBe('string');
  });

  it('embeds', async () => {
    const { embeddings, usage } = await embedMany({
      model: provider.embeddingModel('standin-embed'),
      values: ['one', 'two'],
    });
    expect(embeddings).toHaveLength(2);
    expect(usage.tokens).toBeGreaterThan(0);
  });
});
