import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, describe, expect, it } from 'vitest';
import {
  type Body,
  chatPath,
  externalFile,
  openOrganization,
  useInference,
} from '#test/inference/inference-gateway.ts';

/**
 * External engines keep to OpenAI's API as far as they know it: many send the count of a stream only at its end,
 * and some have never heard of `max_completion_tokens`.
 */
interface Script {
  /** Tokens of the answer, whatever limit the request has. */
  readonly tokens?: number;
  readonly word?: string;
  readonly gapMs?: number;
  readonly counts?: 'at its end' | 'never';
  readonly finish?: null;
}

const promptTokens = 10;
let server: Server | null = null;
/** Tokens that were written before the connection was closed. */
let made = 0;

const usageOf = (tokens: number) => ({
  prompt_tokens: promptTokens,
  completion_tokens: tokens,
  total_tokens: promptTokens + tokens,
});

async function streamTo(response: ServerResponse, path: string, script: Script): Promise<void> {
  const { tokens = 5, word = 'word ', gapMs = 0, counts = 'at its end', finish = 'stop' } = script;
  const chunk = (text: string, finish: string | null): object => {
    const choice = { index: 0, finish_reason: finish };
    return { id: 'x', choices: [path === chatPath ? { ...choice, delta: { content: text } } : { ...choice, text }] };
  };
  const frame = (body: object): boolean => response.write(`data: ${JSON.stringify(body)}\n\n`);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (let token = 0; token < tokens && !response.destroyed; token += 1) {
    frame(chunk(word, null));
    made += 1;
    if (gapMs > 0) await new Promise((resolve) => setTimeout(resolve, gapMs));
  }
  frame(chunk('', finish));
  if (counts === 'at its end') frame({ id: 'x', choices: [], usage: usageOf(tokens) });
  response.end('data: [DONE]\n\n');
}

const bench = useInference(async () => {
  server = createServer((incoming, response) => {
    void readText(incoming).then((text) => {
      const { url = '' } = incoming;
      // The engine has no counters and no aborts.
      if (!url.startsWith('/v1/') || text === '') return void response.writeHead(404).end();
      const body: Body = JSON.parse(text);
      const script: Script = body.script ?? {};
      if (body.stream === true) return void streamTo(response, url, script);
      const { tokens = 5 } = script;
      const message = { role: 'assistant', content: 'word '.repeat(tokens) };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(
        JSON.stringify({ id: 'x', choices: [{ index: 0, message, finish_reason: 'stop' }], usage: usageOf(tokens) }),
      );
    });
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    engines: { other: externalFile('other', url), keeps: externalFile('keeps', url, { lines: ['kind: vllm'] }) },
  };
});
afterAll(() => {
  server?.closeAllConnections();
  server?.close();
});

const messages = [{ role: 'user', content: 'Hello' }];
/** USD of so many tokens, at the prices of the files of these tests, in pico-dollars. */
const costOf = (input: number, output: number): number => input * 100_000 + output * 400_000;
const picoUsd = (usd: string): number => Math.round(Number(usd) * 1e12);

/** Streams, reads so many frames, and leaves. */
async function leaveAfter(frames: number, path: string, body: object, key?: string): Promise<Body> {
  const leaving = new AbortController();
  const answer = await bench.post(
    path,
    { model: 'other', stream: true, ...body },
    {
      signal: leaving.signal,
      ...(key !== undefined && { key }),
    },
  );
  const reader = answer.body?.getReader();
  let text = '';
  while (reader !== undefined && text.split('\n\n').length <= frames)
    text += Buffer.from((await reader.read()).value ?? []).toString();
  leaving.abort();
  return bench.recordOf(answer, key);
}

describe('a stream whose engine counts only at the end', () => {
  it.each([
    [chatPath, { messages }],
    ['/v1/completions', { prompt: 'Hello' }],
  ])('%s is billed by frames with text and an estimated prompt when its client leaves', async (path, request) => {
    const record = await leaveAfter(20, path, { ...request, max_tokens: 500, script: { tokens: 500, gapMs: 5 } });
    expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'counted' });
    expect(record.input_tokens).toBeGreaterThan(0);
    expect(record.output_tokens).toBeGreaterThanOrEqual(20);
    expect(picoUsd(record.cost)).toBe(costOf(record.input_tokens, record.output_tokens));
  });

  it('is billed by the final count', async () => {
    const answer = await bench.post(chatPath, { model: 'other', stream: true, messages, script: { tokens: 7 } });
    await answer.text();
    const billed = { outcome: 'completed', usage_source: 'engine', input_tokens: promptTokens, output_tokens: 7 };
    expect(await bench.recordOf(answer)).toMatchObject(billed);
  });

  it.each(['at its end', 'never'])(
    'is complete without a finish reason (%s), and its record shows that',
    async (counts) => {
      const script = { tokens: 7, finish: null, counts };
      const answer = await bench.post(chatPath, { model: 'other', stream: true, messages, script });
      const text = await answer.text();
      expect(text).not.toContain('error');
      expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
      const record = { outcome: 'completed', status: 200, reason: 'no_finish_reason', output_tokens: 7 };
      expect(await bench.recordOf(answer)).toMatchObject(record);
    },
  );

  it('fails without text and without a finish reason', async () => {
    const script = { tokens: 0, finish: null };
    const answer = await bench.post(chatPath, { model: 'other', stream: true, messages, script });
    expect(await answer.text()).toContain('"upstream_error"');
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
  });

  it('ends when the wallet is empty, not at the end of the answer', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0006');
    made = 0;
    const script = { tokens: 6000, gapMs: 1 };
    const answer = await bench.post(chatPath, { model: 'other', stream: true, messages, script }, { key });
    expect(await answer.text()).toContain('"code":"insufficient_funds"');
    expect(made).toBeLessThan(4000);
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'ended', usage_source: 'counted' });
    expect(picoUsd(record.cost)).toBeGreaterThan(costOf(0, 1000));
  });
});

describe('an output limit that the engine may not know', () => {
  it('holds as much as the engine may generate instead, and charges all of it', async () => {
    for (const limit of [
      { max_completion_tokens: 1 },
      { max_tokens: 4000, max_completion_tokens: 1 },
      { max_tokens: 0 },
      { max_tokens: 1, n_predict: 4000 },
    ]) {
      for (const stream of [false, true]) {
        const body = { model: 'other', messages, stream, ...limit, script: { tokens: 4000 } };
        const answer = await bench.post(chatPath, body);
        expect(answer.status).toBe(200);
        await answer.text();
        const record = await bench.recordOf(answer);
        expect(record).toMatchObject({ output_tokens: 4000, usage_source: 'engine' });
        expect(picoUsd(record.cost)).toBe(costOf(promptTokens, 4000));
      }
    }
  });

  it('is neither refused nor raised when the wallet pays for it', async () => {
    const { key } = await openOrganization(bench.gateway, '0.001');
    const answer = await bench.post(chatPath, { model: 'other', messages, max_completion_tokens: 16 }, { key });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('x-headgate-max-tokens')).toBeNull();
  });

  it('sets the hold when every engine knows the field, or the engine is vLLM', async () => {
    for (const [model, limit] of [
      ['other', { max_tokens: 1 }],
      ['other', { max_tokens: 1, max_completion_tokens: 1 }],
      ['keeps', { max_tokens: 4000, max_completion_tokens: 1 }],
    ] as const) {
      const dry = await bench.post(
        chatPath,
        { model, messages, ...limit },
        { headers: { 'x-headgate-dry-run': 'true' } },
      );
      expect(picoUsd(((await dry.json()) as Body).worst_cost)).toBeLessThan(costOf(1000, 2));
    }
  });
});
