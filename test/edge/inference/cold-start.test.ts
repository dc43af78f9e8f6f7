import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  eventually,
  framesOf,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: {
    slow: standinFile('slow', { flags: ['--start-delay-ms', '15000', '--max-num-seqs', '256'] }),
    broken: standinFile('broken', { flags: ['--fail-start', 'bad-model'] }),
    late: standinFile('late', { flags: ['--start-delay-ms', '60000'], lines: ['start_timeout_seconds: 6'] }),
    left: standinFile('left', { flags: ['--start-delay-ms', '60000'] }),
    quick: standinFile('quick'),
  },
}));

const machine = /\/work|\/tmp|\.sock|node |standin|vllm|traceback|CUDA|\.ts\b|pid/i;

describe.concurrent('a cold model', () => {
  it('returns 503 with the cause and without Retry-After when its start fails quickly, streamed or not', async () => {
    for (const stream of [true, false]) {
      const answer = await bench.chat({ model: 'broken', stream });
      expect(answer.headers.get('content-type')).toBe('application/json');
      expect(answer.headers.get('retry-after')).toBeNull();
      expect(answer.headers.get('x-should-retry')).toBe('false');
      expect(answer.headers.get('x-headgate-start')).toBe('cold');
      const error = await errorOf(answer);
      expect(error).toMatchObject({ status: 503, code: 'upstream_error', type: 'upstream_error' });
      expect(error.message).toMatch(/weights/i);
      expect(error.message).not.toMatch(machine);
      expect(await bench.recordOf(answer)).toMatchObject({
        outcome: 'failed',
        reason: 'upstream_error',
        status: 503,
        cost: '0',
        output_tokens: 0,
      });
    }
    const models: Body = await (await bench.gateway.request('/v1/models/broken')).json();
    expect(models.status).toBe('failed');
  });

  it('ends streams with an error frame and JSON requests with 503 when its start fails late', async () => {
    const [streamed, json] = await Promise.all([
      bench.chat({ model: 'late', stream: true }),
      bench.chat({ model: 'late' }),
    ]);
    expect(streamed.status).toBe(200);
    const text = await streamed.text();
    expect(text.startsWith(': ')).toBe(true);
    const frames = framesOf(text);
    expect(frames).toEqual([{ error: expect.objectContaining({ code: 'upstream_error' }) }, '[DONE]']);
    expect(frames[0].error.message).not.toMatch(machine);
    expect(await errorOf(json)).toMatchObject({ status: 503, code: 'upstream_error' });
    expect(await bench.recordOf(streamed)).toMatchObject({ outcome: 'failed', status: 200, cost: '0' });
  });

  it('starts once for 200 waiting requests, and sends streams a comment after five silent seconds', async () => {
    const startedMs = performance.now();
    const answers = Array.from({ length: 200 }, (_, index) => bench.chat({ model: 'slow', stream: index % 2 === 0 }));
    const first = await answers[0];
    const silentMs = performance.now() - startedMs;
    expect(silentMs).toBeGreaterThan(4900);
    const reader = first?.body?.getReader();
    const opening = Buffer.from((await reader?.read())?.value ?? []).toString();
    expect(opening).toMatch(/^: [\x20-\x7e]+\n$/);
    let rest = '';
    for (let read = await reader?.read(); read?.done === false; read = await reader?.read())
      rest += Buffer.from(read.value).toString();
    expect(framesOf(rest).at(-1)).toBe('[DONE]');
    const others = await Promise.all(answers.slice(1));
    const texts = await Promise.all(others.map((answer) => answer.text()));
    expect(others.map(({ status }) => status)).toEqual(Array.from({ length: 199 }, () => 200));
    expect(texts.filter((text) => text.endsWith('data: [DONE]\n\n'))).toHaveLength(99);
    // A head that left with the first comment could not know yet whether the start would come to a good end.
    const starts = others.map(({ headers }) => headers.get('x-headgate-start'));
    const cold = starts.indexOf('cold');
    expect(cold).not.toBe(-1);
    // On a busy machine some have come when it was there.
    expect(starts.filter((start) => start !== 'cold' && start !== 'warm')).toEqual([]);
    const record = await bench.recordOf(others[cold] as Response);
    expect(record.timings_ms.queued).toBeGreaterThan(5000);
    const logs = readdirSync(join(bench.gateway.dataDir, 'engines', 'logs')).filter((name) => name.startsWith('slow'));
    expect(logs).toHaveLength(1);
    expect(existsSync(`${bench.socketOf('slow')}`)).toBe(true);
    const warm = await bench.chat({ model: 'slow' });
    expect(warm.headers.get('x-headgate-start')).toBe('warm');
    await warm.text();
  });

  it.each([
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8 }],
    ['/v1/completions', { prompt: 'Hello', max_tokens: 8 }],
    ['/v1/messages', { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8 }],
    ['/v1/responses', { input: 'Hello', max_output_tokens: 8 }],
  ])('streams %s without an empty line that ends no event', async (path, fields) => {
    const answer = await bench.post(path, { model: 'slow', stream: true, ...fields });
    const text = await answer.text();
    expect(text.startsWith(': ')).toBe(true);
    const events = text.split('\n\n');
    expect(events.pop()).toBe('');
    // openai-go 3.42 takes each empty line for an event.
    expect(events.filter((event) => !/^data: ./m.test(event))).toEqual([]);
    expect(events.length).toBeGreaterThan(3);
  });

  it('records outcome aborted at no cost when the client leaves before the start ends', async () => {
    const leaving = new AbortController();
    const waiting = bench.chat({ model: 'left' }, { signal: leaving.signal }).catch(() => null);
    const status = async (): Promise<string> =>
      ((await (await bench.gateway.request('/v1/models/left')).json()) as Body).status;
    await eventually(async () => (await status()) === 'starting');
    leaving.abort();
    await waiting;
    const record = await eventually(async () => {
      const page: Body = await (await bench.gateway.request('/v1/usage/requests?model=left')).json();
      return page.data[0] ?? null;
    });
    expect(record).toMatchObject({ outcome: 'aborted', status: 499, reason: null, cost: '0', usage_source: 'none' });
  });
});

describe('a quick start', () => {
  it('sends streams no comments', async () => {
    const answer = await bench.chat({ model: 'quick', stream: true });
    expect(answer.headers.get('x-headgate-start')).toBe('cold');
    expect((await answer.text()).startsWith('data: ')).toBe(true);
    expect((await bench.wallet()).held).toBe('0');
  });
});
