import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Answer,
  at,
  eventually,
  framesOf,
  type OpenAnswer,
  type StandIn,
  startStandIn,
} from '#test/standin/engine.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const MESSAGES = [{ role: 'user', content: 'Tell me about the gate.' }];
const PATH = '/v1/chat/completions';

let engine: StandIn;
beforeAll(async () => {
  engine = await startStandIn(['--enable-force-include-usage', '--dev-mode', '--reasoning-parser', 'deepseek_r1']);
});
afterAll(() => engine.stop());

function ask(standin: object, body: object = {}): Promise<Answer> {
  const whole = { messages: MESSAGES, ...body, standin: { reasoning_tokens: 0, ...standin } };
  return engine.send({ path: PATH, headers: JSON_TYPE, body: whole });
}

function open(standin: object, body: object = {}): Promise<OpenAnswer> {
  const whole = { messages: MESSAGES, ...body, standin: { reasoning_tokens: 0, ...standin } };
  return engine.open({ path: PATH, headers: JSON_TYPE, body: whole });
}

function contentFrames(text: string): number {
  return framesOf(text).filter((frame) => typeof at(frame, 'choices', 0, 'delta', 'content') === 'string').length;
}

describe('a requested fault', () => {
  it.each([400, 401, 404, 422, 429, 500, 503, 418])('answers with status %d', async (status) => {
    const answer = await ask({ status }, { stream: true });
    expect(answer.status).toBe(status);
    const error = at(JSON.parse(answer.text), 'error');
    expect(at(error, 'code') ?? error).toBe(status === 401 ? 'Unauthorized' : status);
  });

  it('includes internal details in an injected error, for tests that look for leaks', async () => {
    expect((await ask({ status: 503 })).text).toContain('10.42.0.17');
    expect((await ask({ status: 503, status_message: 'mine' })).text).toContain('"message":"mine"');
  });

  it('ends a stream with an error frame after a number of tokens', async () => {
    const { status, text, complete } = await ask({ error_after: 3, output_tokens: 50 }, { stream: true });
    const frames = framesOf(text);
    expect([status, complete]).toEqual([200, true]);
    expect(contentFrames(text)).toBe(4);
    expect(text).toContain(
      'data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}\n\n',
    );
    expect(at(frames.at(-3), 'usage', 'completion_tokens')).toBe(3);
    expect(frames.at(-1)).toBe('[DONE]');
    expect(text).not.toContain('finish_reason":"');
  });

  it('ends a stream with an error frame as its first frame', async () => {
    const { status, text } = await ask({ error_after: 0 }, { stream: true });
    expect(status).toBe(200);
    expect(framesOf(text)).toHaveLength(2);
  });

  it('returns 500 for a JSON request that breaks', async () => {
    const answer = await ask({ error_after: 3, output_tokens: 50 });
    expect([answer.status, at(JSON.parse(answer.text), 'error', 'type')]).toEqual([500, 'InternalServerError']);
  });

  it.each([
    [{ cut_after: 0 }, 0],
    [{ cut_after: 4, output_tokens: 50 }, 5],
    [{ cut_after: 4, output_tokens: 50, cut_mid_frame: true }, 5],
  ])('cuts a stream: %j', async (knobs, frames) => {
    const { text, complete } = await ask(knobs, { stream: true });
    expect(complete).toBe(false);
    expect(text).not.toContain('[DONE]');
    expect(text.split('\n\n').filter((frame) => frame.startsWith('data: {') && frame.endsWith('}'))).toHaveLength(
      frames,
    );
    expect(text.endsWith('\n\n') || text === '').toBe(!('cut_mid_frame' in knobs));
  });

  it('cuts a JSON answer in its middle or before its headers', async () => {
    const half = await ask({ cut_after: 2, output_tokens: 5, cut_mid_frame: true });
    expect([half.status, half.complete]).toEqual([200, false]);
    await expect(ask({ cut_after: 2, output_tokens: 5 })).rejects.toThrow(/hang up|ECONNRESET/);
  });

  it('puts a frame that is not JSON into a stream and continues', async () => {
    const { text } = await ask({ garbage_after: 2, output_tokens: 4 }, { stream: true });
    expect(() => framesOf(text)).toThrow(/JSON/);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('answers with bytes that are not HTTP', async () => {
    await expect(ask({ garbage_http: true })).rejects.toThrow(/Parse Error/);
  });

  it.each([[{ reset_after: 0 }], [{ reset_after: 3, output_tokens: 9 }]])('resets a connection: %j', async (knobs) => {
    const listening = await startStandIn(['--host', '127.0.0.1', '--port', '0'], { tcp: true });
    const { port } = new URL(/on (http:\S+)/.exec(listening.log())?.[1] ?? '');
    const socket = connect(Number(port), '127.0.0.1');
    const failed = new Promise((resolve) => socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code)));
    const body = JSON.stringify({ messages: MESSAGES, stream: true, standin: knobs });
    socket.resume();
    socket.write(
      `POST ${PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    expect(await failed).toBe('ECONNRESET');
    await listening.stop();
  });

  it.each([
    ['before the headers', { die_after: 0 }, []],
    ['after three tokens', { die_after: 3, output_tokens: 9 }, [1, 2, 3]],
  ])('kills the process %s, and its journal has the tokens counted so far', async (_when, knobs, counted) => {
    const folder = mkdtempSync(join(tmpdir(), 'standin-'));
    const journal = join(folder, 'journal');
    const dying = await startStandIn(['--journal', journal]);
    const headers = { ...JSON_TYPE, 'x-request-id': 'r-1' };
    const body = { messages: MESSAGES, stream: true, standin: knobs };
    const outcome = dying.send({ path: PATH, headers, body }).then(
      ({ complete }) => complete,
      () => false,
    );
    expect(await dying.exited).toBeNull();
    expect(await outcome).toBe(false);
    const lines = readFileSync(journal, 'utf8').split('\n').slice(0, -1);
    const prompt = lines[0]?.split(' ')[2] ?? '';
    expect(lines).toEqual(counted.map((token) => `${dying.child.pid} chatcmpl-r-1 ${prompt} ${token}`));
    rmSync(folder, { recursive: true });
  });

  it('holds frames back and writes them at the end', async () => {
    const answer = await open({ one_write: true, output_tokens: 300, tpot_ms: 1 }, { stream: true });
    await eventually(
      () => engine.counter('vllm:num_requests_running'),
      (count) => count === 1,
    );
    expect(answer.text()).toBe('');
    const { text, complete } = await answer.done;
    expect([complete, contentFrames(text)]).toEqual([true, 300]);
  });

  it('ends with an unrequested abort', async () => {
    const stream = framesOf((await ask({ abort_after: 3, output_tokens: 50 }, { stream: true, n: 2 })).text);
    expect(stream.filter((frame) => at(frame, 'choices', 0, 'finish_reason') === 'abort')).toHaveLength(2);
    expect(at(stream.at(-2), 'usage', 'completion_tokens')).toBe(3);
    const answer = JSON.parse((await ask({ abort_after: 3, output_tokens: 50 })).text) as unknown;
    expect(at(answer, 'choices', 0, 'finish_reason')).toBe('abort');
    expect(at(answer, 'usage', 'completion_tokens')).toBe(3);
  });

  it('hangs before the headers, after them, or after a number of tokens, until the client leaves', async () => {
    const after = await open({ hang: 'after_headers' }, { stream: true });
    expect([after.status, after.text()]).toEqual([200, '']);
    const middle = await open({ hang: 'after_tokens', hang_after: 2, output_tokens: 9 }, { stream: true });
    await middle.until((text) => text.includes('"completion_tokens":2'));
    const before = connect(engine.socketPath);
    const body = JSON.stringify({ messages: MESSAGES, standin: { hang: 'before_headers' } });
    before.write(
      `POST ${PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    let heard = '';
    before.on('data', (chunk: Buffer) => (heard += chunk.toString()));
    await ask({ output_tokens: 2 });
    expect(heard).toBe('');
    expect(middle.text()).not.toContain('"completion_tokens":3');
    before.destroy();
    after.leave();
    middle.leave();
    await Promise.all([after.done, middle.done]);
    expect(
      await eventually(
        () => engine.counter('vllm:num_requests_running'),
        (count) => count === 0,
      ),
    ).toBe(0);
  });
});

describe('a requested answer', () => {
  it.each(['stop', 'length'])('has exactly the requested tokens and ends by %s', async (finish) => {
    const answer = JSON.parse((await ask({ output_tokens: 37, finish })).text) as unknown;
    expect(at(answer, 'usage', 'completion_tokens')).toBe(37);
    expect(at(answer, 'choices', 0, 'finish_reason')).toBe(finish);
  });

  it('reasons for the requested tokens, and counts them', async () => {
    const answer = JSON.parse((await ask({ reasoning_tokens: 9, output_tokens: 20 })).text) as unknown;
    expect(at(answer, 'usage', 'completion_tokens_details', 'reasoning_tokens')).toBe(9);
    expect(at(answer, 'choices', 0, 'message', 'reasoning')).toMatch(/\w/);
    expect(at(answer, 'choices', 0, 'message', 'content')).toMatch(/stand-in/);
  });

  it('sends nothing while it reasons when reasoning is hidden', async () => {
    const { text } = await ask({ reasoning_tokens: 9, output_tokens: 20 }, { stream: true, include_reasoning: false });
    const [, second] = framesOf(text);
    expect(at(second, 'usage', 'completion_tokens')).toBe(11);
    expect(at(second, 'choices', 0, 'delta')).toEqual({ content: 'This', reasoning: null });
  });

  it('takes the requested time for the first token and for each next one', async () => {
    const beginMs = performance.now();
    const answer = await open({ ttft_ms: 120, tpot_ms: 10, output_tokens: 11 }, { stream: true });
    await answer.until((text) => text.includes('data: '));
    const firstMs = performance.now() - beginMs;
    await answer.done;
    expect(firstMs).toBeGreaterThan(115);
    expect(performance.now() - beginMs).toBeGreaterThan(215);
  });

  it('ignores a knob of the wrong type or name', async () => {
    expect((await ask({ output_tokens: 'many', no_such_knob: 1, status: null })).status).toBe(200);
    expect(
      (await engine.send({ path: PATH, headers: JSON_TYPE, body: { messages: MESSAGES, standin: 7 } })).status,
    ).toBe(200);
  });

  it('uses knobs given as flags, and prefers those in the body', async () => {
    const other = await startStandIn(['--output-tokens', '5', '--finish=length']);
    const plain = await other.post(PATH, { messages: MESSAGES });
    const own = await other.post(PATH, { messages: MESSAGES, standin: { output_tokens: 6 } });
    await other.stop();
    expect(at(plain, 'usage', 'completion_tokens')).toBe(5);
    expect(at(own, 'usage', 'completion_tokens')).toBe(6);
    expect(at(own, 'choices', 0, 'finish_reason')).toBe('length');
  });
});
