import { afterAll, describe, expect, it } from 'vitest';
import { batchEnd, flexPricing, line, outputOf, startBatch } from '#test/inference/batch-bench.ts';
import { type Body, externalFile, useInference } from '#test/inference/inference-gateway.ts';
import {
  chatAnswer,
  chunk,
  counts,
  done,
  finish,
  frame,
  last,
  startToldEngine,
  type ToldEngine,
} from './told-engine.ts';

let engine: ToldEngine | null = null;

const bench = useInference(async () => {
  engine = await startToldEngine();
  const { url } = engine;
  return {
    engines: {
      odd: externalFile('odd', url, { lines: ['kind: openai'] }),
      'vllm-odd': externalFile('vllm-odd', url, { lines: ['kind: vllm'] }),
      cheap: externalFile('cheap', url, { priced: false, lines: [flexPricing, 'kind: openai'] }),
    },
  };
});
afterAll(() => engine?.close());

const objectsOf = (text: string): readonly Body[] =>
  text
    .split('\n')
    .filter((one) => one.startsWith('data: {'))
    .map((one) => JSON.parse(one.slice('data: '.length)));

/** Figures of a record, as `usage` of chat has them. */
const figuresOf = ({ input_tokens: input, output_tokens: output }: Body): object => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
});

const messages = [{ role: 'user', content: 'Hello' }];
const text = chunk('a') + chunk('b');
const complete = { total_tokens: 11 };

const includeUsage = { stream_options: { include_usage: true } };
const includeCost = { usage: { include: true } };

describe.each([
  ['openai', 'stream_options.include_usage', { model: 'odd', ...includeUsage }, false],
  ['openai', 'usage.include', { model: 'odd', ...includeCost }, true],
  ['vllm', 'stream_options.include_usage', { model: 'vllm-odd', ...includeUsage }, false],
  ['vllm', 'usage.include', { model: 'vllm-odd', ...includeCost }, true],
])('a chat stream from an engine of kind: %s that requests %s', (_, __, asked, wantsCost) => {
  it.each([
    ['on the finish chunk', text + finish(0, counts(9, 2, complete))],
    ['on each chunk', chunk('a', counts(9, 1)) + chunk('b', counts(9, 2)) + finish(0, counts(9, 2))],
    ['before the text', last(9, 0) + text + finish()],
    ['in two last chunks', text + finish() + last(9, 1) + last(9, 2, complete)],
    ['in a chunk without choices', text + finish() + frame({ id: 'x', ...counts(9, 2) })],
    ['as zeros', text + finish() + last(0, 0)],
    ['without a total', text + finish() + last(9, 2)],
    ['above the limit of the request', text + finish() + last(9, 4000, { total_tokens: 4009 })],
    ['never', text + finish()],
  ])('ends with one usage chunk that equals the bill when the engine counts %s', async (___, answer) => {
    const got = await bench.chat({ stream: true, max_tokens: 64, ...asked, answer: answer + done });
    const read = await got.text();
    expect(read.endsWith(done)).toBe(true);
    const objects = objectsOf(read);
    const record = await bench.recordOf(got);
    expect(objects.filter(({ usage }) => usage !== undefined)).toEqual([objects.at(-1)]);
    const cost = wantsCost ? { cost: Number(record.cost) } : {};
    expect(objects.at(-1)).toMatchObject({
      id: 'x',
      model: asked.model,
      choices: [],
      usage: { ...figuresOf(record), ...cost },
    });
    expect(typeof objects.at(-1)?.usage.cost).toBe(wantsCost ? 'number' : 'undefined');
    expect(Number(record.cost)).toBeGreaterThan(0);
  });

  it('keeps the bytes of a last usage chunk that equals the bill', async () => {
    const named = (frames: string): string => frames.replaceAll('"model":"odd"', `"model":"${asked.model}"`);
    const begin = named(text + finish());
    const end = named(last(9, 2, { total_tokens: 11, prompt_tokens_details: { cached_tokens: 4 } }));
    const got = await bench.chat({ stream: true, ...asked, answer: begin + end + done });
    const read = await got.text();
    const { cost } = await bench.recordOf(got);
    const shown = wantsCost ? end.replace('}}}', `},"cost":${cost}}}`) : end;
    expect(read).toBe(begin + shown + done);
  });
});

it('ends a completions stream with a usage chunk that equals the bill when the engine never counts', async () => {
  const piece = frame({
    id: 'x',
    object: 'text_completion',
    created: 5,
    model: 'odd',
    choices: [{ text: 'a', index: 0 }],
  });
  const end = frame({ id: 'x', choices: [{ text: '', index: 0, finish_reason: 'stop' }] });
  const body = { model: 'odd', prompt: 'Hello', stream: true, stream_options: { include_usage: true } };
  const got = await bench.post('/v1/completions', {
    ...body,
    answer: piece + end.replace('}\n', ',"model":"odd"}\n') + done,
  });
  const objects = objectsOf(await got.text());
  const record = await bench.recordOf(got);
  expect(objects.at(-1)).toMatchObject({ id: 'x', model: 'odd', choices: [], usage: figuresOf(record) });
  expect(record).toMatchObject({ usage_source: 'counted', output_tokens: 1 });
});

it('shows no usage in a stream that did not request it', async () => {
  const got = await bench.chat({ model: 'odd', stream: true, answer: text + finish(0, counts(9, 2)) + done });
  expect(await got.text()).toBe(text + finish() + done);
});

const responseText = { type: 'response.output_text.delta', delta: 'Hello' };
const response = { object: 'response', status: 'completed', model: 'odd', output: [] };

it.each(
  ['odd', 'vllm-odd'].flatMap((model) => [
    { model, shape: 'absent', told: response },
    { model, shape: 'null', told: { ...response, usage: null } },
    { model, shape: 'zeros', told: { ...response, usage: { input_tokens: 0, output_tokens: 0, total_tokens: 0 } } },
  ]),
)('shows the bill in the last event of a response stream of $model whose usage is $shape', async ({ model, told }) => {
  const answer = frame(responseText) + frame({ type: 'response.completed', response: told });
  const body = { model, input: 'Hello', stream: true, usage: { include: true }, answer };
  const got = await bench.post('/v1/responses', body);
  const usage = objectsOf(await got.text()).at(-1)?.response.usage;
  const record = await bench.recordOf(got);
  const { input_tokens: input, output_tokens: output } = record;
  expect(output).toBe(1);
  expect(usage).toMatchObject({ input_tokens: input, output_tokens: output, total_tokens: input + output });
  expect(usage.cost).toBe(Number(record.cost));
});

const start = (usage: object): string =>
  frame({ type: 'message_start', message: { model: 'odd', role: 'assistant', content: [], usage } });
const block = frame({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } });
const stop = frame({ type: 'message_stop' });
const messageEnd = (more: object): string =>
  frame({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, ...more });

describe.each(['odd', 'vllm-odd'])('a message stream of %s', (model) => {
  const send = (answer: string, more: object = {}): Promise<Response> =>
    bench.post('/v1/messages', { model, messages, max_tokens: 64, stream: true, answer, ...more });

  it.each([
    ['no usage', {}],
    ['null', { usage: null }],
    ['zeros', { usage: { input_tokens: 0, output_tokens: 0 } }],
  ])('shows the bill in its message_delta when the engine sends %s', async (_, more) => {
    const got = await send(start({}) + block + messageEnd(more) + stop, { usage: { include: true } });
    const [, , delta] = objectsOf(await got.text());
    const record = await bench.recordOf(got);
    expect(record).toMatchObject({ output_tokens: 1, usage_source: 'counted' });
    expect(delta?.usage).toMatchObject({
      input_tokens: record.input_tokens,
      output_tokens: 1,
      cost: Number(record.cost),
    });
  });

  it('keeps its bytes when the engine counts the prompt only in the first event', async () => {
    const begin = start({ input_tokens: 9, output_tokens: 1 }).replace('"model":"odd"', `"model":"${model}"`);
    const answer = begin + block + messageEnd({ usage: { output_tokens: 3 } }) + stop;
    const got = await send(answer);
    expect(await got.text()).toBe(answer);
    expect(await bench.recordOf(got)).toMatchObject({ input_tokens: 9, output_tokens: 3 });
  });
});

describe('a JSON answer', () => {
  it('shows the bill when it exceeds 1 MiB and has no usage', async () => {
    const content = 'word '.repeat(300_000);
    const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
    const got = await bench.chat({
      model: 'odd',
      usage: { include: true },
      answer: { id: 'x', model: 'gpt', choices },
    });
    const body: Body = await got.json();
    const record = await bench.recordOf(got);
    expect(body.choices).toEqual(choices);
    expect(body).toMatchObject({ model: 'odd', usage: { ...figuresOf(record), cost: Number(record.cost) } });
    expect(record).toMatchObject({ usage_source: 'counted' });
  });

  it('shows all figures when the engine sends some, and keeps other members of its usage', async () => {
    const answer = chatAnswer({ usage: { completion_tokens: 2, queue_time: 0.5 } });
    const got = await bench.chat({ model: 'odd', answer });
    const body: Body = await got.json();
    const record = await bench.recordOf(got);
    expect(record.input_tokens).toBeGreaterThan(2);
    expect(body.usage).toEqual({ ...figuresOf(record), queue_time: 0.5 });
  });

  it('keeps its bytes when its usage equals the bill', async () => {
    const answer = chatAnswer({ usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11, x: 1.0 } });
    const got = await bench.chat({ model: 'odd', answer });
    expect(await got.text()).toBe(JSON.stringify(answer));
  });
});

it('shows the bill in the output of a batch whose engine never counts', async () => {
  const body = { model: 'cheap', answer: chatAnswer({}) };
  const { id } = await startBatch(bench.gateway, line(1, { body }));
  const batch = await batchEnd(bench.gateway, id);
  const [output] = await outputOf(bench.gateway, batch.output_file_id);
  const record = await bench.record(output?.response.request_id);
  expect(record.input_tokens).toBeGreaterThan(0);
  expect(output?.response.body.usage).toMatchObject(figuresOf(record));
});
