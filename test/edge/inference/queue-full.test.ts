import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { eventually, readMetric, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** Engines whose queue takes one request; vLLM answers 503 to more, also before a stream. */
const bench = useInference(() => ({
  engines: {
    'chat.yaml': standinFile('chat', { lines: ['max_num_queued_reqs: 1', 'replicas: { min: 1, max: 1 }'] }),
    'pair.yaml': standinFile('pair', { lines: ['max_num_queued_reqs: 1', 'replicas: { min: 2, max: 2 }'] }),
  },
}));

const slow = {
  messages: [{ role: 'user', content: 'Hello' }],
  max_tokens: 4000,
  standin: { output_tokens: 4000, tpot_ms: 50 },
};
const short = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 };

/** Starts a stream that keeps a replica busy until the returned function is called. */
async function occupy(model: string): Promise<() => void> {
  const leave = new AbortController();
  const answer = await bench.chat({ ...slow, model, stream: true }, { signal: leave.signal });
  expect(answer.status).toBe(200);
  return () => leave.abort();
}

interface Running {
  readonly engineId: string;
  readonly socketPath: string;
}

const socketsOf = (engineId: string): string[] => {
  const folder = join(bench.gateway.dataDir, 'engines', 'running');
  const records = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Running);
  return records.filter((one) => one.engineId === engineId).map(({ socketPath }) => socketPath);
};

async function isEmpty(engineId: string): Promise<boolean> {
  const running = socketsOf(engineId).map((path) => readMetric(path, 'vllm:num_requests_running'));
  return (await Promise.all(running)).every((count) => count === 0);
}

describe('an engine whose queue is full', () => {
  it.each([
    ['chat/completions', { ...short, stream: false }],
    ['chat/completions', { ...short, stream: true }],
    ['completions', { prompt: 'Hi', max_tokens: 4, stream: true }],
    ['responses', { input: 'Hi', max_output_tokens: 16, stream: true }],
    ['messages', { ...short, stream: true }],
  ])('answers 503 with Retry-After on %s, and charges nothing', async (route, body) => {
    const leave = await occupy('chat');
    const answer = await bench.post(`/v1/${route}`, { model: 'chat', ...body });
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
    const text = await answer.text();
    expect(text).toContain('The model is busy. Try again shortly.');
    expect(text).not.toContain('different instance');
    leave();
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'failed', cost: '0' });
    await eventually(() => isEmpty('chat'));
  });

  it('passes a request to another replica', async () => {
    await eventually(() => Promise.resolve(socketsOf('pair').length === 2));
    const leave = await occupy('pair');
    // It is not known which replica is tried first: the queue of one of both is full.
    for (let count = 0; count < 4; count += 1) {
      const answer = await bench.chat({ ...short, model: 'pair' });
      expect(answer.status).toBe(200);
      await answer.text();
    }
    leave();
  });
});
