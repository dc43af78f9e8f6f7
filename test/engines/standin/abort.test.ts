import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { at, eventually, framesOf, type StandIn, startStandIn } from '#test/standin/engine.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const SLOW = { ttft_ms: 5, tpot_ms: 20, output_tokens: 2000 };
const MESSAGES = [{ role: 'user', content: 'Write a long story about a river.' }];

let engine: StandIn;
beforeEach(async () => {
  engine = await startStandIn([
    '--enable-force-include-usage',
    '--enable-prompt-tokens-details',
    '--dev-mode',
    '--served-model-name',
    'smollm2-135m',
  ]);
});
afterEach(() => engine.stop());

function start(path: string, id: string, body: object): ReturnType<StandIn['open']> {
  const whole = { standin: SLOW, ...body };
  return engine.open({ path, headers: { ...JSON_TYPE, 'x-request-id': id }, body: whole });
}

async function generated(): Promise<number> {
  return engine.counter('vllm:generation_tokens_total');
}

function recordedFinish(name: string): unknown {
  const file = join(import.meta.dirname, 'recordings', 'aborted-by-id', `${name}.json`);
  const { reads } = JSON.parse(readFileSync(file, 'utf8')) as { reads: [number, string][] };
  const frames = framesOf(reads.map(([, text]) => text).join(''));
  return frames.find((frame) => at(frame, 'choices', 0, 'finish_reason') === 'abort');
}

describe('POST /abort_requests', () => {
  it('returns 404 outside development mode', async () => {
    const plain = await startStandIn([]);
    const answer = await plain.send({ path: '/abort_requests', headers: JSON_TYPE, body: { request_ids: ['x'] } });
    await plain.stop();
    expect([answer.status, answer.text]).toEqual([404, '{"detail":"Not Found"}']);
  });

  it('returns the number of ids given, found or not', async () => {
    expect(await engine.post('/abort_requests', { request_ids: ['chatcmpl-no', 'cmpl-no-0'] })).toEqual({
      status: 'aborted',
      aborted: 2,
    });
  });

  it.each([
    ['chat-stream', '/v1/chat/completions', { messages: MESSAGES, stream: true }, ['chatcmpl-R'], 1],
    ['chat-stream-n2', '/v1/chat/completions', { messages: MESSAGES, stream: true, n: 2 }, ['chatcmpl-R'], 2],
    ['completion-stream', '/v1/completions', { prompt: 'Once', max_tokens: 2000, stream: true }, ['cmpl-R-0'], 1],
    [
      'completion-stream-two-prompts',
      '/v1/completions',
      { prompt: ['Once', 'A'], max_tokens: 2000, stream: true },
      ['cmpl-R-0', 'cmpl-R-1'],
      2,
    ],
  ])('ends %s with its exact usage', async (...[name, path, body, ids, choices]) => {
    const open = await start(path, 'R', body);
    await open.until((text) => text.split('data: ').length > 8);
    await engine.post('/abort_requests', { request_ids: ids });
    const { text, complete } = await open.done;
    const frames = framesOf(text);
    const finishes = frames.filter((frame) => at(frame, 'choices', 0, 'finish_reason') === 'abort');
    const recorded = recordedFinish(name);
    expect(complete).toBe(true);
    expect(finishes).toHaveLength(choices);
    for (const finish of finishes) {
      expect(Object.keys(finish as object)).toEqual(Object.keys(recorded as object));
      expect({ ...(at(finish, 'choices', 0) as object), index: 0 }).toEqual({
        ...(at(recorded, 'choices', 0) as object),
        index: 0,
      });
    }
    expect(frames.at(-1)).toBe('[DONE]');
    expect(at(frames.at(-2), 'usage', 'completion_tokens')).toBe(await generated());
  });

  it('ends all choices of a JSON answer with what they generated', async () => {
    const open = start('/v1/chat/completions', 'J', { messages: MESSAGES, n: 2 });
    await eventually(generated, (count) => count > 10);
    await engine.post('/abort_requests', { request_ids: ['chatcmpl-J'] });
    const answer = JSON.parse((await (await open).done).text) as unknown;
    expect(at(answer, 'choices', 0, 'finish_reason')).toBe('abort');
    expect(at(answer, 'choices', 1, 'finish_reason')).toBe('abort');
    expect(at(answer, 'usage', 'completion_tokens')).toBe(await generated());
    const prompt = at(answer, 'usage', 'prompt_tokens') as number;
    expect(await engine.counter('vllm:prompt_tokens_total')).toBe(2 * prompt);
  });

  it('sends no finish frame and counts nothing before the first token', async () => {
    const open = await start('/v1/chat/completions', 'E', {
      messages: MESSAGES,
      stream: true,
      standin: { ttft_ms: 60_000 },
    });
    await eventually(
      () => engine.counter('vllm:num_requests_running'),
      (count) => count === 1,
    );
    await engine.post('/abort_requests', { request_ids: ['chatcmpl-E'] });
    const frames = framesOf((await open.done).text);
    expect(frames).toHaveLength(3);
    expect(at(frames[0], 'choices', 0, 'delta', 'role')).toBe('assistant');
    expect(at(frames[1], 'usage', 'completion_tokens')).toBe(0);
    expect(at(frames[1], 'usage', 'prompt_tokens')).toBeGreaterThan(0);
    expect(await generated()).toBe(0);
    expect(await engine.counter('vllm:prompt_tokens_total')).toBe(0);
  });

  it('aborts a request that still waits in the queue', async () => {
    const narrow = await startStandIn(['--dev-mode', '--max-num-seqs', '1']);
    const body = { messages: MESSAGES, stream: true, standin: SLOW };
    const first = await narrow.open({ path: '/v1/chat/completions', headers: JSON_TYPE, body });
    const second = await narrow.open({
      path: '/v1/chat/completions',
      headers: { ...JSON_TYPE, 'x-request-id': 'Q' },
      body,
    });
    await eventually(
      () => narrow.counter('vllm:num_requests_waiting'),
      (count) => count === 1,
    );
    expect(await narrow.counter('vllm:num_requests_running')).toBe(1);
    await narrow.post('/abort_requests', { request_ids: ['chatcmpl-Q'] });
    expect((await second.done).complete).toBe(true);
    expect(await narrow.counter('vllm:num_requests_waiting')).toBe(0);
    first.leave();
    await narrow.stop();
  });
});

describe('a client that leaves', () => {
  it.each([true, false])('stops its generation (stream: %s)', async (stream) => {
    const call = start('/v1/chat/completions', 'L', { messages: MESSAGES, stream, n: 2 });
    if (stream) {
      const open = await call;
      await open.until((text) => text.includes('"completion_tokens":3'));
      open.leave();
      await open.done;
    } else {
      const { request } = await import('node:http');
      const req = request({
        socketPath: engine.socketPath,
        method: 'POST',
        path: '/v1/chat/completions',
        headers: JSON_TYPE,
      });
      req.on('error', () => undefined);
      req.end(JSON.stringify({ messages: MESSAGES, standin: SLOW }));
      await eventually(
        () => engine.counter('vllm:num_requests_running'),
        (count) => count === 3,
      );
      req.destroy();
      await eventually(
        () => engine.counter('vllm:num_requests_running'),
        (count) => count === 2,
      );
      await engine.post('/abort_requests', { request_ids: ['chatcmpl-L'] });
      await (
        await call
      ).done;
    }
    await eventually(
      () => engine.counter('vllm:num_requests_running'),
      (count) => count === 0,
    );
    const before = await generated();
    await engine.post('/v1/completions', { prompt: 'x', max_tokens: 1 });
    expect(await generated()).toBe(before + 1);
    expect(await engine.counter('standin:aborted_requests_total')).toBeGreaterThanOrEqual(2);
  });

  it('makes room for the next request in the queue', async () => {
    const narrow = await startStandIn(['--max-num-seqs', '1']);
    const body = { messages: MESSAGES, stream: true, standin: SLOW };
    const first = await narrow.open({ path: '/v1/chat/completions', headers: JSON_TYPE, body });
    const second = narrow.post('/v1/chat/completions', { messages: MESSAGES, standin: { output_tokens: 2 } });
    await eventually(
      () => narrow.counter('vllm:num_requests_waiting'),
      (count) => count === 1,
    );
    first.leave();
    expect(at(await second, 'usage', 'completion_tokens')).toBe(2);
    await narrow.stop();
  });
});

it('counts in /metrics what the answers said, for many kinds of request at once', async () => {
  const kinds = Array.from({ length: 60 }, (_, index) => ({
    path: index % 3 === 0 ? '/v1/completions' : '/v1/chat/completions',
    body: {
      ...(index % 3 === 0
        ? { prompt: [`Prompt ${index}`, 'Other'] }
        : { messages: [{ role: 'user', content: `Ask ${index}` }] }),
      stream: index % 2 === 0,
      n: 1 + (index % 2),
      max_tokens: 5 + index,
    },
  }));
  const usages = await Promise.all(
    kinds.map(async ({ path, body }) => {
      const { text } = await engine.send({ path, headers: JSON_TYPE, body });
      const usage = body.stream ? at(framesOf(text).at(-2), 'usage') : at(JSON.parse(text), 'usage');
      return { prompt: at(usage, 'prompt_tokens') as number, out: at(usage, 'completion_tokens') as number, n: body.n };
    }),
  );
  expect(await generated()).toBe(usages.reduce((sum, usage) => sum + usage.out, 0));
  expect(await engine.counter('vllm:prompt_tokens_total')).toBe(
    usages.reduce((sum, usage) => sum + usage.prompt * usage.n, 0),
  );
});
