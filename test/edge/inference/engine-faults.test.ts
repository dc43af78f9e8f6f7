import { describe, expect, it } from 'vitest';
import { type Body, errorOf, framesOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '1', HEADGATE_UPSTREAM_IDLE_SECONDS: '1' },
}));

const failed = (status: number): object => ({ status, code: 'upstream_error', type: 'upstream_error', param: null });

/** Checks that an answer to a client shows nothing of the engine. */
function expectNothingOfTheEngine(answer: Response, text: string): void {
  expect(text).not.toMatch(/vllm|enginecore|uvicorn|stand-?in|\.sock|127\.0\.0\.1|\/work|\/tmp|traceback|stack/i);
  const names = [...answer.headers.keys()];
  expect(names.filter((name) => /^(?:server|vary|via|access-control-.*)$/.test(name))).toEqual([]);
}

/** Asks for an answer that fails as a whole: the answer, its error, and what the books have of it. */
async function askFailing(body: object): Promise<{ answer: Response; error: Body; record: Body }> {
  const answer = await bench.chat(body);
  const copy = answer.clone();
  expectNothingOfTheEngine(answer, await answer.text());
  return { answer, error: await errorOf(copy), record: await bench.recordOf(answer) };
}

const freeRecord = (status: number): object => ({
  outcome: 'failed',
  reason: 'upstream_error',
  status,
  output_tokens: 0,
  cost: '0',
});

describe.each([
  ['streamed', true],
  ['JSON', false],
])('an engine that fails before its first byte, %s', (_, stream) => {
  it.each([
    ['status 500', { status: 500, status_message: 'EngineCore encountered an issue at /opt/vllm' }, 502],
    ['status 401', { status: 401 }, 502],
    ['status 403', { status: 403 }, 502],
    ['status 404', { status: 404 }, 502],
    ['status 504', { status: 504 }, 504],
    ['status 302', { status: 302 }, 502],
    ['bytes that are not HTTP', { garbage_http: true }, 502],
    ['a cut', { cut_after: 0 }, 502],
    ['silence', { hang: 'before_headers' }, 504],
    ['silence after its headers', { hang: 'after_headers' }, 504],
  ])('returns upstream_error: %s', async (__, standin, status) => {
    const { error, record } = await askFailing({ stream, standin });
    expect(error).toMatchObject(failed(status));
    expect(record).toMatchObject(freeRecord(status));
  });

  it.each([429, 503])('returns 503 with Retry-After for status %d', async (status) => {
    const { answer, error, record } = await askFailing({
      stream,
      standin: { status, status_message: 'EngineCore is busy' },
    });
    expect(error).toMatchObject(failed(503));
    expect(record).toMatchObject(freeRecord(503));
    expect(answer.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
  });
});

describe('a JSON answer that breaks', () => {
  it.each([
    ['by an error', { error_after: 3 }, 502],
    ['by an abort before its first token', { abort_after: 0 }, 502],
    ['by a cut', { cut_after: 3 }, 502],
    ['by a cut in its body', { cut_after: 3, cut_mid_frame: true }, 502],
    ['by garbage', { garbage_after: 3 }, 502],
    ['by silence', { hang: 'after_tokens', hang_after: 3 }, 504],
  ])('returns upstream_error and costs nothing: %s', async (_, standin, status) => {
    const { error, record } = await askFailing({ stream: false, max_tokens: 40, standin });
    expect(error).toMatchObject(failed(status));
    expect(record).toMatchObject(freeRecord(status));
  });

  it('returns upstream_error after an unrequested abort, and writes off the counted tokens', async () => {
    const { error, record } = await askFailing({ stream: false, max_tokens: 40, standin: { abort_after: 3 } });
    expect(error).toMatchObject(failed(502));
    expect(record).toMatchObject({ ...freeRecord(502), output_tokens: 3, usage_source: 'engine' });
    expect(Number(record.written_off)).toBeGreaterThan(0);
  });
});

describe('a stream that breaks in the middle', () => {
  it.each([
    ['by an error frame', { error_after: 3 }],
    ['by a cut', { cut_after: 3 }],
    ['by a cut in a frame', { cut_after: 3, cut_mid_frame: true }],
    ['by garbage', { garbage_after: 3 }],
    ['by an abort that nobody asked for', { abort_after: 3 }],
    ['by silence', { hang: 'after_tokens', hang_after: 3 }],
  ])('ends with one error frame and [DONE], billed to the token: %s', async (_, standin) => {
    // A token takes its time, so that each has reached the gateway before the connection goes.
    const answer = await bench.chat({ stream: true, max_tokens: 40, standin: { ...standin, tpot_ms: 5 } });
    expect(answer.status).toBe(200);
    const text = await answer.text();
    expectNothingOfTheEngine(answer, text);
    const frames = framesOf(text);
    expect(frames.at(-1)).toBe('[DONE]');
    expect(frames.at(-2)).toEqual({
      error: expect.objectContaining({ code: 'upstream_error', type: 'upstream_error' }),
    });
    expect(frames.filter((frame) => frame.error !== undefined)).toHaveLength(1);
    const record = await bench.record(answer.headers.get('x-request-id') ?? '');
    expect(record).toMatchObject({ outcome: 'failed', reason: 'upstream_error', status: 200, stream: true });
    expect(record).toMatchObject({ output_tokens: 3, input_tokens: expect.any(Number) });
    expect(Number(record.cost)).toBeCloseTo((record.input_tokens * 0.1 + 3 * 0.4) / 1e6, 12);
  });

  it('ends with an error frame and costs nothing after an abort before its first token', async () => {
    const answer = await bench.chat({ stream: true, standin: { abort_after: 0 } });
    const frames = framesOf(await answer.text());
    expect(frames.slice(-2)).toEqual([{ error: expect.objectContaining({ code: 'upstream_error' }) }, '[DONE]']);
    const record = await bench.record(answer.headers.get('x-request-id') ?? '');
    expect(record).toMatchObject({
      outcome: 'failed',
      reason: 'upstream_error',
      input_tokens: 0,
      output_tokens: 0,
      cost: '0',
    });
  });

  it('returns an error status when it breaks before its first token', async () => {
    const { error, record } = await askFailing({ stream: true, standin: { error_after: 0 } });
    expect(error).toMatchObject(failed(502));
    expect(record).toMatchObject(freeRecord(502));
  });
});

describe('answers of an engine', () => {
  it('contain no header of the engine, streamed or not', async () => {
    for (const stream of [true, false]) {
      const answer = await bench.chat({ stream });
      expect(answer.status).toBe(200);
      expectNothingOfTheEngine(answer, '');
      expect(answer.headers.get('content-type')).toBe(stream ? 'text/event-stream; charset=utf-8' : 'application/json');
      expect(answer.headers.get('x-headgate-start')).toBe('warm');
      expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
      await answer.text();
    }
  });

  it('release their holds, also when they fail', async () => {
    const wallet: Body = await bench.wallet();
    expect(wallet.held).toBe('0');
  });
});
