import { afterAll, describe, expect, it } from 'vitest';
import { counts, done, frame, last, startToldEngine, type ToldEngine } from './told-engine.ts';
import { externalFile, openOrganization, useInference } from '#test/inference/inference-gateway.ts';

let engine: ToldEngine | null = null;

const bench = useInference(async () => {
  engine = await startToldEngine();
  return {
    engines: {
      chat: externalFile('chat', engine.url, { lines: ['kind: openai'] }),
      vllm: externalFile('vllm', engine.url, { lines: ['kind: vllm'] }),
    },
  };
});
afterAll(() => engine?.close());

const tokens = { input_tokens: 1000, output_tokens: 500 };
const response = { object: 'response', status: 'in_progress', model: 'chat', output: [] };
const failed = { ...response, status: 'failed', error: { code: 'server_error', message: 'x' }, usage: tokens };
const event = (type: string, more: object = {}): string => `event: ${type}\n${frame({ type, ...more })}`;
const created = event('response.created', { response });
const message = { id: 'm', type: 'message', role: 'assistant', model: 'vllm', content: [], usage: tokens };
const finished = (reason: string): string =>
  frame({ id: 'x', choices: [{ index: 0, delta: {}, finish_reason: reason }], ...counts(1000, 500) });

const chat = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2000 };
const texts = { input: 'Hello', max_output_tokens: 2000 };

/** Written off: 1,000 tokens at 0.10 a million, 500 at 0.40. */
const cost = '0.0003';

describe('a stream that fails before its first frame after its engine counted tokens', () => {
  it.each<[string, string, object]>([
    [
      'response.failed',
      '/v1/responses',
      { model: 'vllm', ...texts, answer: created + event('response.failed', { response: failed }) },
    ],
    [
      'response.completed with the status failed',
      '/v1/responses',
      { model: 'vllm', ...texts, answer: created + event('response.completed', { response: failed }) },
    ],
    [
      'a first chunk that ends by abort',
      '/v1/chat/completions',
      { model: 'vllm', ...chat, answer: finished('abort') + last(1000, 500) + done },
    ],
    [
      'a count, then an error',
      '/v1/chat/completions',
      { model: 'chat', ...chat, answer: last(1000, 500) + frame({ error: { message: 'x', code: 500 } }) },
    ],
    [
      'a message without a reason to stop',
      '/v1/messages',
      {
        model: 'vllm',
        ...chat,
        answer:
          event('message_start', { message }) +
          event('message_delta', { delta: { stop_reason: null }, usage: tokens }) +
          event('message_stop'),
      },
    ],
  ])('is written off: %s', async (_, path, body) => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const answer = await bench.post(path, { ...body, stream: true }, { key });
    expect(answer.status, await answer.text()).toBe(502);
    expect(await bench.recordOf(answer, key)).toMatchObject({ ...tokens, cost: '0', written_off: cost });
    expect((await bench.wallet(key)).balance).toBe('1000');
  });
});
