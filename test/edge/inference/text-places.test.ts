import { afterAll, describe, expect, it } from 'vitest';
import { externalFile, useInference } from '#test/inference/inference-gateway.ts';
import { done, finish, frame, startToldEngine, type ToldEngine } from './told-engine.ts';

/** Streams of engines that count no tokens, whose text stands in other places than the deltas of their API. */

let engine: ToldEngine | null = null;

const bench = useInference(async () => {
  engine = await startToldEngine();
  return { engines: { odd: externalFile('odd', engine.url, { lines: ['kind: openai'] }) } };
});
afterAll(() => engine?.close());

const text = 'word '.repeat(800);
/** By the length of the text, as of a JSON answer; and as of one delta. */
const byLength = 1000;
const ofDelta = 250;
const zeros = { prompt_tokens: 0, completion_tokens: 0, input_tokens: 0, output_tokens: 0 };

const messages = [{ role: 'user', content: 'Hello' }];
const bodies = {
  '/v1/chat/completions': { messages, max_tokens: 2000 },
  '/v1/responses': { input: 'Hello', max_output_tokens: 2000 },
  '/v1/messages': { messages, max_tokens: 2000 },
};
type Path = keyof typeof bodies;

async function recordOf(path: Path, answer: string, more: object = {}): ReturnType<typeof bench.recordOf> {
  const got = await bench.post(path, { model: 'odd', stream: true, ...bodies[path], ...more, answer });
  expect(got.status, await got.text()).toBe(200);
  return bench.recordOf(got);
}

const item = (said: string) => ({
  type: 'message',
  id: 'm',
  role: 'assistant',
  content: [{ type: 'output_text', text: said }],
});
const call = { type: 'function_call', id: 'f', call_id: 'c', name: '', arguments: text, status: 'completed' };
const completed = (output: readonly object[], usage: object | null = null): string =>
  frame({ type: 'response.completed', response: { status: 'completed', model: 'odd', output, usage } });
const created = frame({ type: 'response.created', response: { status: 'in_progress', model: 'odd', output: [] } });
const textDone = (said: string): string => frame({ type: 'response.output_text.done', item_id: 'm', text: said });
const itemDone = (one: object): string => frame({ type: 'response.output_item.done', output_index: 0, item: one });

const start = (content: readonly object[] = []): string =>
  frame({ type: 'message_start', message: { type: 'message', role: 'assistant', model: 'odd', content } });
const stop = frame({ type: 'message_delta', delta: { stop_reason: 'end_turn' } }) + frame({ type: 'message_stop' });
const block = (content: object): string =>
  frame({ type: 'content_block_start', index: 0, content_block: content }) +
  frame({ type: 'content_block_stop', index: 0 });
const blockDelta = (delta: object): string => frame({ type: 'content_block_delta', index: 0, delta });

const chunkOf = (message: object, index = 0): string =>
  frame({ id: 'x', choices: [{ index, message, finish_reason: 'stop' }] });

describe('a stream without a count, counted by its text', () => {
  it.each<[string, Path, string, number]>([
    ['only in the response at its end', '/v1/responses', created + completed([item(text)]), byLength],
    ['there, beside a count of zeros', '/v1/responses', created + completed([item(text)], zeros), byLength],
    ['only in output_text.done', '/v1/responses', created + textDone(text) + completed([]), byLength],
    ['only in output_item.done', '/v1/responses', created + itemDone(item(text)) + completed([]), byLength],
    ['in the arguments of a call only', '/v1/responses', created + completed([call]), byLength],
    [
      'beside what tools returned',
      '/v1/responses',
      created + itemDone(item(text)) + itemDone({ type: 'mcp_call', output: text.repeat(50) }) + completed([]),
      byLength,
    ],
    [
      'in each of them',
      '/v1/responses',
      created + textDone(text) + itemDone(item(text)) + completed([item(text)]),
      byLength,
    ],
    ['in several items', '/v1/responses', itemDone(item(text)).repeat(2) + completed([]), 2 * byLength],
    ['in the start of a block', '/v1/messages', start() + block({ type: 'text', text }) + stop, ofDelta],
    ['in the first event', '/v1/messages', start([{ type: 'text', text }]) + stop, ofDelta],
    [
      'in a delta behind an empty member',
      '/v1/messages',
      start() + blockDelta({ type: 'text_delta', id: '', text }) + stop,
      ofDelta,
    ],
    [
      'in a delta behind a short member',
      '/v1/messages',
      start() + blockDelta({ type: 'text_delta', note: 'x', text }) + stop,
      ofDelta + 1,
    ],
    [
      'in the message of a choice',
      '/v1/chat/completions',
      chunkOf({ role: 'assistant', content: text }) + done,
      byLength,
    ],
  ])('counts the text %s, %s', async (_, path, answer, tokens) => {
    const record = await recordOf(path, answer);
    expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted', output_tokens: tokens });
    expect(record.input_tokens).toBeGreaterThan(0);
  });

  it('counts the text in the messages of two choices', async () => {
    const answer = [0, 1].map((index) => chunkOf({ role: 'assistant', content: text }, index)).join('') + done;
    const record = await recordOf('/v1/chat/completions', answer, { n: 2 });
    expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted', output_tokens: 2 * byLength });
  });
});

describe('a text that is sent twice', () => {
  const words = Array.from({ length: 800 }, () => 'word ');

  it('is counted once when the final events repeat the deltas', async () => {
    const deltas = words.map((delta) => frame({ type: 'response.output_text.delta', delta })).join('');
    const end = textDone(text) + itemDone(item(text)) + completed([item(text)]);
    expect(await recordOf('/v1/responses', created + deltas + end)).toMatchObject({ output_tokens: 800 });
  });

  it('is counted once when chunks have a message beside the delta', async () => {
    const chunks = words.map((content, index) => {
      const message = { role: 'assistant', content: 'word '.repeat(index + 1) };
      return frame({ id: 'x', choices: [{ index: 0, delta: { content }, message }] });
    });
    const last = chunkOf({ role: 'assistant', content: text });
    const record = await recordOf('/v1/chat/completions', chunks.join('') + last + finish() + done);
    expect(record).toMatchObject({ output_tokens: 800 });
  });
});

it.each<[Path, string]>([
  ['/v1/responses', created + completed([item(text)], { input_tokens: 9, output_tokens: 5 })],
  [
    '/v1/messages',
    start() +
      block({ type: 'text', text: 'Hello there' }) +
      frame({
        type: 'message_delta',
        delta: { stop_reason: 'end_turn' },
        usage: { input_tokens: 9, output_tokens: 5 },
      }) +
      frame({ type: 'message_stop' }),
  ],
])("bills the engine's count of a stream of %s when it has one", async (path, answer) => {
  expect(await recordOf(path, answer)).toMatchObject({ usage_source: 'engine', input_tokens: 9, output_tokens: 5 });
});
