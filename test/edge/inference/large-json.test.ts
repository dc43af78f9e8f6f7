import { afterAll, describe, expect, it } from 'vitest';
import { fresh, openReuse } from '#test/cache/caching-key.ts';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import { type Body, eventually, externalFile, useInference } from '#test/inference/inference-gateway.ts';

/** The engine's answer; a function of how often it was asked. */
let answerOf: (count: number) => string = () => '';
let asked = 0;
let engine: ByteServer | null = null;

const bench = useInference(async () => {
  engine = await startByteServer({
    transport: 'tcp',
    answer({ socket }) {
      asked += 1;
      const body = answerOf(asked);
      const head = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
      socket.write(Buffer.from(head + body, 'latin1'));
    },
  });
  return {
    engines: { chat: externalFile('chat', `http://127.0.0.1:${engine.endpoint.port}`) },
    env: { HEADGATE_STORE_MAX_BYTES: '4096' },
  };
});
afterAll(() => engine?.close());

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const content = `"usage":{ \\" "model":"x" ${'é 🦙 '.repeat(10)}`;
const contentBytes = Buffer.byteLength(JSON.stringify(content)) - 2;

/** An answer of so many bytes and more, with its name at its head or its end; as latin1. */
function answer(bytes: number, model: string, { isLast = false, finish = 'stop', count = 0 } = {}): string {
  const name = `"model":"${model}"`;
  const message = { role: 'assistant', content: `${count} ${content.repeat(Math.ceil(bytes / contentBytes))}` };
  const choices = JSON.stringify([{ index: 0, message, finish_reason: finish }]);
  const text = isLast
    ? `{ "choices": ${choices},"usage":${JSON.stringify(usage)}, ${name} }\n`
    : `{${name},"choices":${choices},"usage":${JSON.stringify(usage)}}`;
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** About the 1 MiB from which an answer is metered as it comes, and above the 8 MiB from which it needs room. */
const sizes = [900_000, 1_100_000, 9_000_000];
const latin1 = async (response: Response): Promise<string> =>
  Buffer.from(await response.arrayBuffer()).toString('latin1');

describe('a JSON answer of megabytes', () => {
  it.each(sizes.flatMap((bytes) => [false, true].map((isLast) => ({ bytes, isLast }))))(
    'is billed and keeps its bytes except the model name: $bytes bytes',
    async ({ bytes, isLast }) => {
      answerOf = () => answer(bytes, '/srv/own.gguf', { isLast });
      const response = await bench.chat(fresh());
      expect((await latin1(response)) === answer(bytes, 'chat', { isLast }).trimEnd() + (isLast ? '\n' : '')).toBe(
        true,
      );
      expect(await bench.recordOf(response)).toMatchObject({ input_tokens: 10, output_tokens: 5, status: 200 });
    },
  );

  it.each(sizes)('shows its cost when requested: %d bytes', async (bytes) => {
    answerOf = () => answer(bytes, 'chat');
    const response = await bench.chat({ ...fresh(), usage: { include: true } });
    const { usage: told }: Body = await response.json();
    expect(told).toEqual({ ...usage, cost: Number((await bench.recordOf(response)).cost) });
  });

  it.each<[string, (bytes: number) => string]>([
    ['was broken off', (bytes) => answer(bytes, 'chat', { finish: 'abort' })],
    ['is not whole', (bytes) => answer(bytes, 'chat').slice(0, -1)],
    ['has brackets that do not match', (bytes) => answer(bytes, 'chat').replace('[', '{')],
    ['reports an error', (bytes) => answer(bytes, 'chat').replace('"usage":{"', '"error":{"')],
  ])('returns 502 and costs nothing when it %s', async (_, make) => {
    for (const bytes of [1_100_000, 9_000_000]) {
      answerOf = () => make(bytes);
      const response = await bench.chat(fresh());
      expect(response.status).toBe(502);
      expect(await bench.recordOf(response)).toMatchObject({ outcome: 'failed', cost: '0' });
    }
  });

  const message = (bytes: number, more: object): string => {
    const said = { finish_reason: 'abort', status: 'failed', stop_reason: null, text: 'x'.repeat(bytes) };
    const output = [{ type: 'tool_use', id: 't', name: 'f', input: said, finish_reason: 'error' }];
    return JSON.stringify({
      content: output,
      output,
      parsed: said,
      ...more,
      usage: { input_tokens: 10, output_tokens: 5 },
    });
  };
  const choices = (...finishes: string[]): object[] =>
    finishes.map((finish, index) => ({
      index,
      message: { role: 'assistant', content: null, parsed: { finish_reason: 'abort' } },
      finish_reason: finish,
    }));
  it.each<[string, object, object]>([
    ['/v1/messages', { stop_reason: 'tool_use' }, {}],
    ['/v1/messages', { stop_reason: 'tool_use' }, { stop_reason: null }],
    ['/v1/responses', { status: 'completed' }, {}],
    ['/v1/responses', { status: 'completed' }, { status: 'cancelled' }],
    ['/v1/chat/completions', { choices: choices('stop') }, {}],
    ['/v1/chat/completions', { choices: choices('stop') }, { choices: choices('stop', 'abort') }],
  ])('fails only when the answer itself says so, not a nested value: %s %j %j', async (path, ended, broken) => {
    const isBroken = Object.keys(broken).length > 0;
    for (const bytes of [10_000, 1_100_000]) {
      answerOf = () => message(bytes, { ...ended, ...broken });
      const response = await bench.post(path, { model: 'chat', input: 'x', max_tokens: 9, ...fresh() });
      expect(response.status).toBe(isBroken ? 502 : 200);
      const record = await bench.recordOf(response);
      const expected = isBroken ? ['failed', 5, true] : ['completed', 5, false];
      expect([record.outcome, record.output_tokens, record.cost === '0']).toEqual(expected);
    }
  });

  const zeros = { prompt_tokens: 0, completion_tokens: 0, input_tokens: 0, output_tokens: 0 };
  it.each<[string, (text: string) => object]>([
    [
      '/v1/chat/completions',
      (text) => ({ choices: [{ index: 0, message: { content: text }, finish_reason: 'stop' }] }),
    ],
    ['/v1/completions', (text) => ({ choices: [{ index: 0, text, finish_reason: 'stop' }] })],
    ['/v1/responses', (text) => ({ status: 'completed', output: [{ content: [{ type: 'output_text', text }] }] })],
    ['/v1/messages', (text) => ({ stop_reason: 'end_turn', content: [{ type: 'text', text }] })],
  ])('is counted by its bytes on %s when its engine counted none of its tokens', async (path, made) => {
    for (const usage of [zeros, { ...zeros, prompt_tokens: 10, input_tokens: 10 }]) {
      answerOf = () => JSON.stringify({ ...made('x'.repeat(1_200_000)), usage });
      const input = { messages: [{ role: 'user', content: 'x' }], prompt: 'x', input: 'x' };
      const response = await bench.post(path, { model: 'chat', max_tokens: 8000, max_output_tokens: 8000, ...input });
      expect(response.status, await response.text()).toBe(200);
      const record = await bench.recordOf(response);
      expect(record).toMatchObject({ outcome: 'completed', usage_source: 'counted' });
      expect(record.output_tokens).toBe(Math.ceil(answerOf(0).length / 1024));
      expect(record.input_tokens).toBeGreaterThan(0);
    }
  });

  it.each(sizes)('is repeated for an Idempotency-Key, and stored up to the limit: %d bytes', async (bytes) => {
    answerOf = (count) => answer(bytes, '/srv/own.gguf', { count });
    const { chat, key } = await openReuse(bench, { store_requests: true });
    const repeat = { headers: { 'idempotency-key': `large ${bytes}` } };
    const body = fresh();
    const first = await chat(body, repeat);
    const text = await latin1(first);
    const second = await chat(body, repeat);
    expect(second.headers.get('idempotent-replayed')).toBe('true');
    expect((await latin1(second)) === text).toBe(true);
    const path = `/v1/usage/requests/${first.headers.get('x-request-id')}/content`;
    const stored = await eventually(async () => {
      const found = await bench.gateway.request(path, { key });
      return found.status === 200 ? found : null;
    });
    expect(await stored.json()).toMatchObject({ truncated: true });
  });

  it('is cached up to the limit of the cache', async () => {
    for (const [bytes, expected] of [
      [3_000_000, 'hit'],
      [9_000_000, 'miss'],
    ] as const) {
      answerOf = (count) => answer(bytes, 'chat', { count });
      const { chat } = await openReuse(bench, { cache_responses: true });
      const body = { ...fresh(), temperature: 0 };
      const text = await latin1(await chat(body));
      const again = await chat(body);
      expect(again.headers.get('x-headgate-cache')).toBe(expected);
      expect((await latin1(again)) === text).toBe(expected === 'hit');
    }
  });
});
