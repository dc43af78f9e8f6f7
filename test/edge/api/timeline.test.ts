import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { type Body, errorOf, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { makeKey, openReuse } from '#test/cache/caching-key.ts';

let database: TestDatabase | null = null;
let proxy: DatabaseProxy | null = null;

afterAll(async () => {
  await proxy?.close();
  await database?.drop();
});

const bench = useInference(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  return { engines: { chat: standinFile('chat') }, databaseUrl: proxy.url };
});
afterEach(() => proxy?.restore());

const sumOf = (timeline: Record<string, number | null>): number =>
  Object.values(timeline).reduce<number>((sum, part) => sum + (part ?? 0), 0);

/** A request with what its client measured, and its record. */
async function ask(body: object, key: string): Promise<{ wallMs: number; record: Body }> {
  const beganMs = performance.now();
  const answer = await bench.chat(body, { key });
  await answer.text();
  const wallMs = performance.now() - beganMs;
  return { wallMs, record: await bench.recordOf(answer, key) };
}

describe('the timeline of a request', () => {
  it('shows the time of a cold start, and then of the engine', async () => {
    const { key } = await openReuse(bench, {});
    const cold = await ask({ standin: { ttft_ms: 100 } }, key);
    expect(cold.record.timeline.engine_cold_start).toBeGreaterThan(0);
    const warm = await ask({ stream: true, max_tokens: 20, standin: { ttft_ms: 150, tpot_ms: 10 } }, key);
    expect(warm.record.timeline).toMatchObject({ queued: 0, engine_cold_start: 0 });
    expect(warm.record.timeline.first_byte).toBeGreaterThanOrEqual(140);
    // A first byte that is read late leaves less until the last one.
    expect(warm.record.timeline.first_byte + warm.record.timeline.last_byte).toBeGreaterThanOrEqual(330);
    for (const { wallMs, record } of [cold, warm]) {
      expect(Object.keys(record.timeline)).toEqual([
        'admitted',
        'queued',
        'engine_cold_start',
        'first_byte',
        'last_byte',
        'committed',
      ]);
      // All of it passed while the client waited. What the commit itself took is that of others.
      expect(sumOf(record.timeline) - record.timeline.committed).toBeLessThanOrEqual(Math.ceil(wallMs));
      expect(sumOf(record.timeline)).toBe(record.timings_ms.total + record.timeline.committed);
    }
    expect(warm.record.replica.id).toBe(cold.record.replica.id);
    expect(warm.record.replica.age_seconds).toBeGreaterThanOrEqual(cold.record.replica.age_seconds);
  });

  it('shows the wait for the ledger', async () => {
    const { key, asked } = await openReuse(bench, {});
    await ask({}, key);
    const before = await asked();
    const { balance } = await bench.wallet(key);
    const release = proxy?.holdAnswers();
    // The first commit is not answered, and the second request waits behind it.
    const first = ask({}, key);
    await eventually(async () => (await bench.wallet(key)).balance !== balance);
    const second = ask({}, key);
    await eventually(async () => (await asked()) === before + 2);
    await new Promise((resolve) => setTimeout(resolve, 300));
    release?.();
    await first;
    const { wallMs, record } = await second;
    expect(record.timeline.committed).toBeGreaterThan(100);
    expect(sumOf(record.timeline) - wallMs).toBeLessThan(100);
  });

  it('is shown beside the price version and the remaining amount of every limit', async () => {
    const reuse = await openReuse(bench, {});
    const limits = {
      requests_per_minute: 5,
      max_concurrency: 3,
      tokens_per_minute: 10_000,
      monthly_token_limit: 50_000,
    };
    const limited = await makeKey(bench, reuse.managementKey, limits);
    const { record } = await ask({}, limited.secret);
    expect(record.price_version).toMatch(/^[0-9a-f-]{36}$/);
    const remaining = record.limits_remaining;
    expect(remaining).toMatchObject({ requests_per_minute: 4, max_concurrency: 2 });
    expect(remaining.tokens_per_minute).toBeLessThan(10_000);
    expect(remaining.monthly_token_limit).toBeLessThan(50_000);
    const unlimited = await ask({}, reuse.key);
    expect(unlimited.record.limits_remaining).toEqual({
      requests_per_minute: null,
      tokens_per_minute: null,
      monthly_token_limit: null,
      max_concurrency: null,
    });
  });

  it('is missing for a rejected request, whose error names the limit', async () => {
    const reuse = await openReuse(bench, {});
    const limited = await makeKey(bench, reuse.managementKey, { requests_per_minute: 1 });
    await ask({}, limited.secret);
    const refused = await bench.chat({}, { key: limited.secret });
    const id = refused.headers.get('x-request-id') ?? '';
    const error = await errorOf(refused);
    expect(error).toMatchObject({ status: 429, code: 'rate_limit_exceeded' });
    expect(error.message).toContain('requests_per_minute');
    const found = await bench.gateway.request(`/v1/usage/requests/${id}`, { key: reuse.managementKey });
    expect(found.status).toBe(404);
  });
});
