import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';

/** OpenAI's own SDK, changed in nothing but base URL and key. */

const weatherTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
} as const;

const question = [{ role: 'user', content: 'What is the weather in Paris?' }] as const;

describe('the openai SDK', () => {
  let gateway: TestGateway;
  let client: OpenAI;

  beforeAll(async () => {
    gateway = await startGateway();
    client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key, maxRetries: 0 });
  });
  afterAll(() => gateway.stop());

  it("throws its own error classes, with the gateway's code and param", async () => {
    const stranger = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'sk-wrong', maxRetries: 0 });
    const refused = stranger.chat.completions.create({ model: 'standin-chat', messages: [...question] });
    await expect(refused).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    const unknown = client.chat.completions.create({ model: 'nope', messages: [...question] });
    await expect(unknown).rejects.toMatchObject({ status: 400, code: 'model_not_found', param: 'model' });
    await expect(client.models.retrieve('nope')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  it('chats', async () => {
    const { data, request_id } = await client.chat.completions
      .create({ model: 'standin-chat', messages: [...question], max_tokens: 12 })
      .withResponse();
    expect(data.choices[0]?.message.content?.length).toBeGreaterThan(0);
    expect(data.usage?.completion_tokens).toBe(12);
    expect(data.model).toBe('standin-chat');
    const record = await gateway.request(`/v1/usage/requests/${request_id ?? ''}`);
    expect(await record.json()).toMatchObject({ id: request_id, output_tokens: 12, outcome: 'completed' });
  });

  it('streams, with usage only when requested', async () => {
    const plain = await client.chat.completions.create({
      model: 'standin-chat',
      messages: [...question],
      max_tokens: 9,
      stream: true,
    });
    let text = '';
    for await (const chunk of plain) {
      expect(chunk.usage).toBeUndefined();
      text += chunk.choices[0]?.delta.content ?? '';
    }
    expect(text.length).toBeGreaterThan(0);

    const counted = await client.chat.completions.create({
      model: 'standin-chat',
      messages: [...question],
      max_tokens: 9,
      stream: true,
      stream_options: { include_usage: true },
    });
    const usages = [];
    for await (const chunk of counted) if (chunk.usage) usages.push(chunk.usage.completion_tokens);
    expect(usages).toEqual([9]);
  });

  it('calls tools, streamed or not', async () => {
    const asked = { model: 'standin-chat', messages: [...question], tools: [weatherTool] } as const;
    const answer = await client.chat.completions.create({
      ...asked,
      messages: [...question],
      tools: [weatherTool],
      tool_choice: 'required',
    });
    const call = answer.choices[0]?.message.tool_calls?.[0];
    if (call?.type !== 'function') throw new Error('no function was called');
    expect(call.function.name).toBe('get_weather');
    expect(JSON.parse(call.function.arguments)).toHaveProperty('city');

    const runner = client.chat.completions.stream({
      model: asked.model,
      messages: [...question],
      tools: [weatherTool],
      tool_choice: 'required',
    });
    const final = await runner.finalChatCompletion();
    expect(final.choices[0]?.finish_reason).toBe('tool_calls');
    expect(final.choices[0]?.message.tool_calls?.[0]).toMatchObject({ function: { name: 'get_weather' } });
  });

  it('reads structured output', async () => {
    const answer = await client.chat.completions.create({
      model: 'standin-chat',
      messages: [...question],
      response_format: { type: 'json_schema', json_schema: { name: 'city', schema: weatherTool.function.parameters } },
    });
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toHaveProperty('city');
  });

  it('completes text', async () => {
    const answer = await client.completions.create({
      model: 'standin-chat',
      prompt: 'Once upon a time',
      max_tokens: 7,
    });
    expect(answer.choices[0]?.text.length).toBeGreaterThan(0);
    expect(answer.usage?.completion_tokens).toBe(7);
  });

  it('embeds with its default encoding', async () => {
    const answer = await client.embeddings.create({ model: 'standin-embed', input: ['one', 'two'] });
    expect(answer.data.map(({ index }) => index)).toEqual([0, 1]);
    expect(answer.data[0]?.embedding.length).toBeGreaterThan(8);
    expect(answer.usage.prompt_tokens).toBeGreaterThan(0);
  });

  it.each(['float', 'base64'] as const)('embeds 3,000 texts at once, as %s', async (encoding) => {
    const input = Array.from({ length: 3000 }, (_, index) => `text ${index}`);
    const answer = await client.embeddings.create({ model: 'standin-embed', input, encoding_format: encoding });
    expect(answer.data.map(({ index }) => index)).toEqual([...input.keys()]);
    const alone = { model: 'standin-embed', input: input[2222] ?? '', encoding_format: encoding };
    expect(answer.data[2222]?.embedding).toEqual((await client.embeddings.create(alone)).data[0]?.embedding);
  });

  it('lists and finds models', async () => {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    expect(ids).toContain('standin-chat');
    expect(await client.models.retrieve('headgate/standin-chat')).toMatchObject({
      id: 'standin-chat',
      object: 'model',
    });
  });
});
