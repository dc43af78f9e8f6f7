import { afterAll, describe, expect, it } from 'vitest';
import {
  type Body,
  eventually,
  externalFile,
  openOrganization,
  useInference,
} from '#test/inference/inference-gateway.ts';
import {
  chatAnswer,
  chunk,
  counts,
  done,
  finish,
  last,
  startToldEngine,
  type ToldEngine,
  vectors,
} from './told-engine.ts';

let engine: ToldEngine | null = null;

const bench = useInference(async () => {
  engine = await startToldEngine();
  const { url } = engine;
  return {
    engines: {
      odd: externalFile('odd', url),
      taught: externalFile('taught', url),
      open: externalFile('open', url, { lines: ['kind: openai'] }),
      filled: externalFile('filled', url, { taskType: 'embedding' }),
    },
  };
});
afterAll(() => engine?.close());

const settledWallet = (key: string): Promise<Body> =>
  eventually(async () => {
    const wallet = await bench.wallet(key);
    return wallet.held === '0' ? wallet : null;
  });

describe('a model that counted 8,000 prompt tokens for another request', () => {
  const body = { model: 'taught', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8 };
  const teach = async (): Promise<void> => {
    await (await bench.chat({ ...body, answer: chatAnswer(counts(8000, 1)) })).text();
  };

  it('does not bill them to a request without a count', async () => {
    await teach();
    const sent = { ...body, stream: true, answer: chunk('Hello') + finish() + done };
    const got = await bench.chat(sent);
    await got.text();
    const record = await bench.recordOf(got);
    expect(record).toMatchObject({ usage_source: 'counted', input_tokens: Math.ceil(JSON.stringify(sent).length / 4) });
  });

  it('does not count them against token limits', async () => {
    await teach();
    const { key } = await openOrganization(bench.gateway, '1');
    const limits = { name: 'limited', tokens_per_minute: 2000 };
    const made: Body = await (await bench.gateway.request('/v1/keys', { key, body: limits })).json();
    for (const _ of ['first', 'second']) {
      const got = await bench.chat({ ...body, answer: chatAnswer(counts(9, 1)) }, { key: made.secret });
      expect(got.status, await got.text()).toBe(200);
    }
  });

  it('does not reject a cost cap that pays for the estimate', async () => {
    await teach();
    const headers = { 'x-headgate-max-cost': '0.0004' };
    const got = await bench.chat({ ...body, answer: chatAnswer(counts(9, 1)) }, { headers });
    expect(got.status, await got.text()).toBe(200);
  });

  it.each([false, true])('does not reject a wallet that pays for the body, streamed: %s', async (stream) => {
    await teach();
    const { key } = await openOrganization(bench.gateway, '0.0004');
    const answer = stream ? chunk('Hello') + finish() + last(9, 1) + done : chatAnswer(counts(9, 1));
    const got = await bench.chat({ ...body, stream, answer }, { key });
    expect(got.status, await got.text()).toBe(200);
    expect(await bench.recordOf(got, key)).toMatchObject({ outcome: 'completed', written_off: '0' });
  });
});

it("holds nothing extra for texts after another request's text was padded", async () => {
  const list = (tokens: number): object => ({
    object: 'list',
    model: 'filled',
    data: vectors(1),
    ...counts(tokens, 0),
  });
  const filled = { model: 'filled', input: ['a'], padding: 'max_length', answer: list(8192) };
  await (await bench.post('/v1/embeddings', filled)).text();
  const input = Array.from({ length: 100 }, () => 'a');
  const headers = { 'x-headgate-dry-run': 'true' };
  const forecast: Body = await (await bench.post('/v1/embeddings', { model: 'filled', input }, { headers })).json();
  expect(Number(forecast.worst_cost)).toBeLessThan(0.001);
});

it('charges all that a wallet has when it cannot pay for the prompt, before the first token', async () => {
  const { key } = await openOrganization(bench.gateway, '0.0004');
  const body = { model: 'open', stream: true, max_tokens: 100, hold: 'poor', answer: chunk('', counts(5000, 0)) };
  const got = await bench.chat(body, { key });
  expect(await got.text()).toContain('insufficient_funds');
  const record = await bench.recordOf(got, key);
  expect(record).toMatchObject({ outcome: 'ended', input_tokens: 5000, cost: '0.0004', written_off: '0.0001' });
  expect(await settledWallet(key)).toMatchObject({ balance: '0' });
});

it('holds cached prompt tokens at their price, so that they do not use up a cap', async () => {
  const details = { prompt_tokens_details: { cached_tokens: 3990 } };
  const body = {
    model: 'odd',
    stream: true,
    max_tokens: 100,
    hold: 'cached',
    answer: chunk('a', counts(4000, 1, details)),
  };
  const got = await bench.chat(body, { headers: { 'x-headgate-max-cost': '0.0004' } });
  const reader = got.body?.pipeThrough(new TextDecoderStream()).getReader();
  expect((await reader?.read())?.value).not.toContain('insufficient_funds');
  engine?.end('cached', finish(0, counts(4000, 51, details)) + last(4000, 51, details) + done);
  let text = '';
  for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) text += read.value;
  expect(text).not.toContain('insufficient_funds');
  const record = await bench.recordOf(got);
  expect(record).toMatchObject({ outcome: 'completed', output_tokens: 51, written_off: '0' });
});
