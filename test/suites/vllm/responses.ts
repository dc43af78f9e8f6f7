import { ChatOpenAI } from '@langchain/openai';
import { OpenAIResponses } from '@llamaindex/openai';
import { expect, it } from 'vitest';
import { isVllmSince } from '#core/catalog/catalog.ts';
import { askEngine, type Body } from '#test/inference/inference-gateway.ts';
import { itBillsWhatIsLeft } from './left-answers.ts';
import { bench, counters, expectExact } from './real-engine.ts';

const path = '/v1/responses';
const ask = (fields: object, options: object = {}): Promise<Response> =>
  bench.post(path, { model: 'chat', temperature: 0, ...fields }, options);
const question = { input: 'What is the capital of France?', max_output_tokens: 24 };
const story = { input: 'Tell a very long story.', ignore_eos: true, max_output_tokens: 1500 };

/** `/v1/responses` of a real vLLM: what is billed is what its counters say. */
export function describeResponses(): void {
  it("answers as JSON with the request's id, and is billed by the engine's count", async () => {
    // Starts the engine.
    expect((await ask(question)).status).toBe(200);
    const before = await counters();
    const answer = await ask(question);
    const body: Body = await answer.json();
    expect(body).toMatchObject({
      object: 'response',
      model: 'chat',
      id: `resp_${answer.headers.get('x-request-id')}`,
    });
    // The words that a small model finds differ between processors.
    expect(body.output[0].content[0].text).not.toBe('');
    await expectExact(await bench.recordOf(answer), before, 'completed');
  });

  it("streams events up to response.completed, and is billed by the engine's count", async () => {
    const before = await counters();
    const answer = await ask({ ...question, stream: true });
    const text = await answer.text();
    const events: Body[] = [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data));
    expect(events.at(0)).toMatchObject({ type: 'response.created', sequence_number: 0 });
    expect(events.at(-1)).toMatchObject({
      type: 'response.completed',
      response: { model: 'chat' },
    });
    expect(events.map(({ sequence_number: at }) => at)).toEqual(events.map((_, at) => at));
    await expectExact(await bench.recordOf(answer), before, 'completed');
  });

  it('ends as incomplete at the output limit', async () => {
    const before = await counters();
    const answer = await ask({ ...story, max_output_tokens: 16 });
    expect(await answer.json()).toMatchObject({
      status: 'incomplete',
      usage: { output_tokens: 16 },
    });
    await expectExact(await bench.recordOf(answer), before, 'completed');
  });

  itBillsWhatIsLeft({
    tell: (fields, options) => ask({ ...story, ...fields }, options),
    delta: 'output_text.delta',
  });

  it('continues stored responses with its own output items, and counts what the engine counts', async () => {
    const one: Body = await (await ask(question)).json();
    const two: Body = await (await ask({ ...question, input: 'Why?', previous_response_id: one.id })).json();
    const before = await counters();
    const reference = { type: 'item_reference', id: two.output[0].id };
    const referring = [reference, { role: 'user', content: 'And?' }];
    const answer = await ask({ ...question, input: referring, previous_response_id: one.id, stream: true });
    expect(await answer.text()).toContain(`"previous_response_id":"${one.id}"`);
    await expectExact(await bench.recordOf(answer), before, 'completed');
    const input = [{ role: 'user', content: question.input }, ...one.output, { role: 'user', content: 'Why?' }];
    const whole: Body = await (await ask({ ...question, input, store: false })).json();
    expect(two.usage.input_tokens).toBe(whole.usage.input_tokens);
  });

  it('answers in the form of a JSON schema', async () => {
    const schema = {
      type: 'object',
      properties: { city: { type: 'string', enum: ['Paris'] } },
      required: ['city'],
      additionalProperties: false,
    };
    const text = { format: { type: 'json_schema', name: 'place', schema, strict: true } };
    const answer: Body = await (await ask({ ...question, text, max_output_tokens: 64 })).json();
    expect(JSON.parse(answer.output[0].content[0].text)).toEqual({ city: 'Paris' });
  });

  it('serves custom tools over two turns where vLLM does, and leaves them out elsewhere', async () => {
    const format = { type: 'grammar', syntax: 'lark', definition: 'start: "x"' };
    const patch = { type: 'custom', name: 'apply_patch', description: 'Edits files.', format };
    const fields = { ...question, tools: [{ type: 'web_search' }, patch] };
    const call = {
      type: 'custom_tool_call',
      id: 'ctc_1',
      call_id: 'call_1',
      name: 'apply_patch',
      input: 'é',
    };
    const output = { type: 'custom_tool_call_output', call_id: 'call_1', output: 'Done' };
    const second = { ...fields, input: [{ role: 'user', content: 'Hi' }, call, output] };
    // Starts the engine, which counts as the newest until it has reported its version.
    expect((await ask(question)).status).toBe(200);
    const { text } = await askEngine(bench.socketOf('chat'), '/version');
    const { version }: Body = JSON.parse(text);
    const isServed = isVllmSince(version, '0.32');
    const dropped = isServed ? 'web_search, custom.format' : 'web_search, custom';
    await expect.poll(async () => (await ask(fields)).headers.get('x-headgate-dropped-tools')).toBe(dropped);
    const before = await counters();
    const answer = await ask(second);
    expect(answer.status).toBe(isServed ? 200 : 400);
    if (isServed) await expectExact(await bench.recordOf(answer), before, 'completed');
  });

  it("accepts LangChain's and LlamaIndex's requests with all their fields", async () => {
    const base = { model: 'chat', apiKey: bench.gateway.key, maxRetries: 0, temperature: 0 };
    const baseURL = `${bench.gateway.url}/v1`;
    const said = 'What is the capital of France?';
    const chat = new ChatOpenAI({
      ...base,
      maxTokens: 24,
      useResponsesApi: true,
      configuration: { baseURL },
    });
    const { text: whole } = await chat.invoke(said);
    expect(whole).not.toBe('');
    let text = '';
    for await (const chunk of await chat.stream(said)) text += chunk.text;
    expect(text).toBe(whole);
    // It sends no temperature.
    const llm = new OpenAIResponses({ ...base, maxOutputTokens: 24, baseURL });
    const messages = [{ role: 'user' as const, content: said }];
    expect((await llm.chat({ messages })).message.content).not.toHaveLength(0);
    let streamed = '';
    for await (const { delta } of await llm.chat({ messages, stream: true })) streamed += delta;
    expect(streamed).not.toBe('');
  });
}
