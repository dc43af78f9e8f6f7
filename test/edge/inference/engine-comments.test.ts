import { describe, expect, it } from 'vitest';
import { standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({ engines: { 'chat.yaml': standinFile('chat') } }));

const messages = [{ role: 'user', content: 'Hello' }];
const routes = [
  ['chat/completions', { messages, max_tokens: 8, stream_options: { include_usage: true } }, 'choices'],
  ['completions', { prompt: 'Hello', max_tokens: 8, stream_options: { include_usage: true } }, 'choices'],
  ['responses', { input: 'Hello', max_output_tokens: 16 }, 'response.output_text.delta'],
  ['messages', { messages, max_tokens: 8 }, 'content_block_delta'],
] as const;

/** Members of frames that differ from request to request. */
const own = /"(?:id|item_id|created|created_at|completed_at|request_id)":(?:"[^"]*"|[\d.]+)/g;

/** Sends one request as a stream. @returns its events without comments, the comments, and what was recorded */
async function ask(route: string, body: object, standin: object) {
  const answer = await bench.post(`/v1/${route}`, { model: 'chat', ...body, stream: true, standin });
  expect(answer.status).toBe(200);
  const lines = (await answer.text()).split('\n');
  const events = lines.filter((line) => line !== '' && !line.startsWith(':')).map((line) => line.replaceAll(own, ''));
  const comments = lines.filter((line) => line.startsWith(':'));
  const { outcome, input_tokens, output_tokens, cost, reason } = await bench.recordOf(answer);
  return { events, comments, record: { outcome, input_tokens, output_tokens, cost, reason } };
}

describe('an engine that sends comments between the frames of a stream', () => {
  it.each(routes)('changes neither the events, the usage nor the cost on %s', async (route, body, name) => {
    const text = 'one two three four';
    // The first request fills the prompt cache of the engine, which changes the price of the next ones.
    await ask(route, body, { text });
    const plain = await ask(route, body, { text });
    const commented = await ask(route, body, { text, comments: true });
    expect(commented.events).toEqual(plain.events);
    expect(commented.events.join('\n')).toContain(name);
    expect(commented.events.join('\n')).toMatch(/"usage":\{/);
    expect(commented.record).toEqual(plain.record);
    expect(commented.record).toMatchObject({ outcome: 'completed' });
    expect(new Set(commented.comments)).toEqual(new Set([': keep-alive']));
  });

  it.each(routes)('is billed for what it generated when the client leaves, on %s', async (route, body) => {
    const leave = new AbortController();
    const standin = { output_tokens: 4000, tpot_ms: 20, comments: true };
    const most = 'max_output_tokens' in body ? 'max_output_tokens' : 'max_tokens';
    const sent = { model: 'chat', ...body, [most]: 4000, stream: true, standin };
    const answer = await bench.post(`/v1/${route}`, sent, { signal: leave.signal });
    const reader = answer.body?.getReader();
    for (let count = 0; count < 6; count += 1) await reader?.read();
    leave.abort();
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'aborted' });
    expect(record.output_tokens).toBeGreaterThan(0);
    expect(Number(record.cost)).toBeGreaterThan(0);
  });
});
