import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, embedMany, generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startGateway, type TestGateway } from '#test/gateway.ts';

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

  it('throws with status 401 for a wrong key', async () => {
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
    const { output } = await generateText({
      model: provider('standin-chat'),
      prompt: 'Name a city',
      output: Output.object({ schema: z.object({ city: z.string() }) }),
    });
    expect(typeof output.city).toBe('string');
  });

  it('generates and streams text with its Anthropic provider and authToken', async () => {
    const anthropic = createAnthropic({ baseURL: `${gateway.url}/v1`, authToken: gateway.key });
    const asked = { model: anthropic('standin-chat'), prompt: 'Hello', maxOutputTokens: 12, maxRetries: 0 };
    const whole = await generateText(asked);
    expect([whole.text.length > 0, whole.usage.outputTokens]).toEqual([true, 12]);
    const streamed = streamText(asked);
    let text = '';
    for await (const part of streamed.textStream) text += part;
    expect([text.length > 0, (await streamed.usage).outputTokens]).toEqual([true, 12]);
  });

  it('embeds', async () => {
    const { embeddings, usage } = await embedMany({
      model: provider.embeddingModel('standin-embed'),
      values: ['one', 'two'],
    });
    expect(embeddings).toHaveLength(2);
    expect(usage.tokens).toBeGreaterThan(0);
  });

  it('works on every route with its own OpenAI provider, which uses /v1/responses by default', async () => {
    const openai = createOpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key });
    for (const model of [openai('standin-chat'), openai.chat('standin-chat'), openai.completion('standin-chat')]) {
      const asked = { model, prompt: 'Hello', maxOutputTokens: 12, maxRetries: 0 };
      const whole = await generateText(asked);
      expect([whole.text.length > 0, whole.usage.outputTokens]).toEqual([true, 12]);
      const streamed = streamText(asked);
      let text = '';
      for await (const part of streamed.textStream) text += part;
      expect([text.length > 0, (await streamed.usage).outputTokens]).toEqual([true, 12]);
    }
    const { embedding, usage } = await embed({ model: openai.embedding('standin-embed'), value: 'one' });
    expect([embedding.length > 8, usage.tokens > 0]).toEqual([true, true]);
    const { data }: { data: { endpoint: string }[] } = JSON.parse(
      await (await gateway.request('/v1/usage/requests?limit=7')).text(),
    );
    expect(new Set(data.map(({ endpoint }) => endpoint))).toEqual(
      new Set(['/v1/responses', '/v1/chat/completions', '/v1/completions', '/v1/embeddings']),
    );
  });

  it('calls tools with its own OpenAI provider, and continues with their results', async () => {
    const openai = createOpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key });
    const asked: string[] = [];
    const weather = tool({
      description: 'The weather of a city',
      inputSchema: z.object({ city: z.string() }),
      execute({ city }: { city: string }) {
        asked.push(city);
        return `sunny in ${city}`;
      },
    });
    const { steps } = await generateText({
      model: openai('standin-chat'),
      prompt: 'What is the weather in Paris?',
      tools: { get_weather: weather },
      toolChoice: 'required',
      stopWhen: stepCountIs(2),
      providerOptions: { openai: { store: false } },
      maxRetries: 0,
    });
    expect([steps.length, asked.length > 0]).toEqual([2, true]);
  });
});
