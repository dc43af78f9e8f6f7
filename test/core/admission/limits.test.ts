import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { errorOf, eventually, framesOf } from '#test/inference/inference-gateway.ts';
import { estimateOf, openStore, storeNames, type LimitedKey, type StoreBench } from './limited-gateway.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

const limit = (answer: Response, name = 'x-ratelimit-remaining'): number => Number(answer.headers.get(name));

/** Reads an answer to its end, so that it is settled. */
async function done(answer: Response): Promise<Response> {
  const copy = answer.clone();
  await answer.text();
  return copy;
}

/** The code of a refusal with its status; the answer can still be read. */
async function codeOf(answer: Response): Promise<string> {
  const { status, code } = await errorOf(answer.clone());
  return `${status} ${code}`;
}

/** A stream that has begun and goes on until it is left. */
async function startStream(key: LimitedKey): Promise<{ leave(): Promise<void> }> {
  const answer = await key.chat({ stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } });
  expect(answer.status).toBe(200);
  const reader = answer.body?.getReader();
  await reader?.read();
  return { leave: async () => reader?.cancel() };
}

describe.each(storeNames)('limits of a key, in %s', (name) => {
  let bench: StoreBench;
  beforeAll(async () => {
    bench = await openStore(name);
    return () => bench.close();
  });

  it('return 429 after the last request of a minute, and do not count rejected requests', async () => {
    const key = await bench.key({ requests_per_minute: 3 });
    for (const remaining of [2, 1, 0]) {
      const answer = await done(await key.chat());
      expect(answer.status).toBe(200);
      expect(limit(answer)).toBe(remaining);
      expect(limit(answer, 'x-ratelimit-limit')).toBe(3);
    }
    for (let time = 0; time < 3; time += 1) {
      const refused = await key.chat();
      expect(await codeOf(refused)).toBe('429 rate_limit_exceeded');
      const retryAfter = limit(refused, 'retry-after');
      expect(retryAfter).toBeGreaterThan(0);
      expect(retryAfter).toBeLessThanOrEqual(60);
      expect(limit(refused)).toBe(0);
      expect(limit(refused, 'x-ratelimit-reset')).toBeGreaterThan(Date.now() / 1000);
      expect(refused.headers.get('x-should-retry')).toBeNull();
    }
  });

  it('accept exactly the limit of a minute from parallel requests', async () => {
    const key = await bench.key({ requests_per_minute: 20 });
    const answers = await Promise.all(Array.from({ length: 60 }, async () => done(await key.chat())));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(20);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(40);
  });

  it('return 429 beyond max_concurrency, and accept a request when another one has ended', async () => {
    const key = await bench.key({ max_concurrency: 2 });
    const streams = [await startStream(key), await startStream(key)];
    const refused = await key.chat();
    expect(await codeOf(refused)).toBe('429 concurrency_limit_exceeded');
    expect(limit(refused, 'retry-after')).toBeGreaterThanOrEqual(1);
    await streams[0]?.leave();
    await eventually(async () => (await done(await key.chat())).status === 200);
    await streams[1]?.leave();
  });

  it('give one slot to a hundred requests at once', async () => {
    const key = await bench.key({ max_concurrency: 1 });
    const answers = await Promise.all(
      Array.from({ length: 100 }, async () => done(await key.chat({ standin: { ttft_ms: 10_000 } }))),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  });

  it('reserve estimated tokens, accept up to the exact limit, and correct by actual usage', async () => {
    const fields = { min_tokens: 8, ignore_eos: true };
    const estimate = estimateOf(fields, 8);
    const plain = await bench.key();
    const { usage } = (await (await plain.chat(fields)).json()) as { usage: { total_tokens: number } };
    const used = usage.total_tokens;
    const second = async (tokensPerMinute: number): Promise<Response> => {
      const key = await bench.key({ tokens_per_minute: tokensPerMinute });
      const first = await done(await key.chat(fields));
      expect(limit(first, 'x-ratelimit-limit-tokens')).toBe(tokensPerMinute);
      expect(limit(first, 'x-ratelimit-remaining-tokens')).toBe(tokensPerMinute - estimate);
      await eventually(async () => {
        const listed = await bench.gateway.request('/v1/models', { key: key.secret });
        return limit(listed, 'x-ratelimit-remaining-tokens') === tokensPerMinute - used;
      });
      return done(await key.chat(fields));
    };
    const edge = await second(used + estimate);
    expect(edge.status).toBe(200);
    expect(limit(edge, 'x-ratelimit-remaining-tokens')).toBe(0);
    const beyond = await second(used + estimate - 1);
    expect(await codeOf(beyond)).toBe('429 tokens_limit_exceeded');
    expect(limit(beyond)).toBe(estimate - 1);
    expect(limit(beyond, 'retry-after')).toBeLessThanOrEqual(60);
  });

  it('carry usage beyond the token limit over as debt', async () => {
    const key = await bench.key({ tokens_per_minute: 10 });
    await done(await key.chat({ max_tokens: 30, min_tokens: 30, ignore_eos: true }));
    // 30 output tokens and the prompt against 10 a minute: three windows and more must pass.
    const refused = await eventually(async () => {
      const answer = await key.chat();
      return limit(answer, 'retry-after') > 120 ? answer : null;
    });
    expect(await codeOf(refused)).toBe('429 tokens_limit_exceeded');
  });

  it('return 429 with x-should-retry: false when the monthly token limit is used up', async () => {
    const estimate = estimateOf({}, 8);
    const key = await bench.key({ monthly_token_limit: estimate });
    expect((await done(await key.chat())).status).toBe(200);
    const refused = await key.chat();
    expect(await codeOf(refused)).toBe('429 monthly_quota_exceeded');
    expect(refused.headers.get('x-should-retry')).toBe('false');
    const now = new Date();
    const nextMonth = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1) / 1000;
    expect(Math.abs(limit(refused, 'x-ratelimit-reset') - nextMonth)).toBeLessThanOrEqual(1);
    expect(Math.abs(limit(refused, 'retry-after') - (nextMonth - Date.now() / 1000))).toBeLessThan(5);
  });

  it('report month before requests before tokens before concurrency', async () => {
    const limits = { requests_per_minute: 1, tokens_per_minute: 1, monthly_token_limit: 1, max_concurrency: 1 };
    const key = await bench.key(limits);
    const stream = await startStream(key);
    expect(await codeOf(await key.chat())).toBe('429 monthly_quota_exceeded');
    for (const [lifted, code] of [
      ['monthly_token_limit', 'rate_limit_exceeded'],
      ['requests_per_minute', 'tokens_limit_exceeded'],
      ['tokens_per_minute', 'concurrency_limit_exceeded'],
    ] as const) {
      await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'PATCH', body: { [lifted]: null } });
      expect(await codeOf(await key.chat())).toBe(`429 ${code}`);
    }
    await stream.leave();
  });

  it('count no request that fails validation, and no GET /v1/models', async () => {
    const key = await bench.key({ requests_per_minute: 2, max_concurrency: 1, tokens_per_minute: 1000 });
    expect((await key.chat({ n: 'many' })).status).toBe(400);
    expect((await key.chat({ model: 'nothing' })).status).toBe(400);
    await bench.gateway.request('/v1/models', { key: key.secret });
    const answer = await done(await key.chat());
    expect(answer.status).toBe(200);
    expect(limit(answer)).toBe(1);
  });

  it('count nothing when the wallet rejects a request, and hold nothing when a limit rejects one', async () => {
    const poor = await bench.organization('0.000001');
    const key = await bench.key({ requests_per_minute: 5 }, poor.key);
    expect(await codeOf(await key.chat())).toBe('402 insufficient_funds');
    const listing = await bench.gateway.request('/v1/models', { key: key.secret });
    expect(limit(listing)).toBe(5);
    const rich = await bench.organization('1');
    const limited = await bench.key({ tokens_per_minute: 1, requests_per_minute: 1 }, rich.key);
    await done(await limited.chat());
    expect(await codeOf(await limited.chat())).toBe('429 rate_limit_exceeded');
    const wallet = async () => (await bench.gateway.request('/v1/wallet', { key: rich.key })).json();
    await eventually(async () => ((await wallet()) as { held: string }).held === '0');
  });

  it('apply an edited limit to the next request', async () => {
    const key = await bench.key({ requests_per_minute: 1 });
    await done(await key.chat());
    expect(await codeOf(await key.chat())).toBe('429 rate_limit_exceeded');
    await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'PATCH', body: { requests_per_minute: 2 } });
    const answer = await done(await key.chat());
    expect(answer.status).toBe(200);
    expect(limit(answer)).toBe(0);
  });

  it('show limits in headers on every authenticated answer, and no headers without limits', async () => {
    const key = await bench.key();
    const answer = await done(await key.chat());
    expect(answer.headers.get('x-ratelimit-limit')).toBeNull();
    expect(answer.headers.get('x-ratelimit-limit-tokens')).toBeNull();
    expect(answer.headers.get('x-request-id')).not.toBeNull();
    const full = await bench.key({ requests_per_minute: 4, tokens_per_minute: 1000 });
    const listed = await bench.gateway.request('/v1/models', { key: full.secret });
    expect(limit(listed)).toBe(4);
    expect(limit(listed, 'x-ratelimit-remaining-requests')).toBe(4);
    expect(limit(listed, 'x-ratelimit-remaining-tokens')).toBe(1000);
    expect(listed.headers.get('x-ratelimit-reset-requests')).toMatch(/^\d+(m\d+)?s$|ms$/);
  });

  it('end the running stream of a revoked key, and return 401 from then on', async () => {
    const key = await bench.key();
    const answer = await key.chat({ stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } });
    const reading = answer.text();
    await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'DELETE' });
    expect((await key.chat()).status).toBe(401);
    const frames = framesOf(await reading);
    // The engine makes 50 in a second.
    expect(frames.length).toBeLessThan(150);
    expect(frames.at(-2)).toMatchObject({ error: { code: 'unauthorized' } });
  });
});
