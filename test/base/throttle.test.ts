import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import { createThrottle, type Throttle } from '#base/redis/throttle.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';

let redis: TestRedis;
const stores: RedisStore[] = [];

beforeAll(async () => {
  redis = await startRedis();
  for (let count = 0; count < 2; count += 1) stores.push(await connectRedis(redis.url, createLog('silent')));
});
afterAll(async () => {
  for (const store of stores) store.close();
  await redis.stop();
});

const throttleOf = (index: number, kind: string, prefix = 'test:'): Throttle =>
  createThrottle({ kind, limit: 10, windowSeconds: 60, store: stores[index] ?? null, prefix });

describe('a throttle over Redis', () => {
  it('rejects what exceeds the limit for two gateways together', async () => {
    const [one, other] = [throttleOf(0, 'together'), throttleOf(1, 'together')];
    const hits = Array.from({ length: 30 }, (_, index) => (index % 2 === 0 ? one : other).hit('somebody'));
    const counts = await Promise.all(hits);
    expect(counts.filter(({ allowed }) => allowed)).toHaveLength(10);
    const refused = await one.hit('somebody');
    expect(refused).toMatchObject({ allowed: false, limit: 10, remaining: 0 });
    expect(refused.resetMs).toBeGreaterThan(0);
    expect(refused.resetMs).toBeLessThanOrEqual(60_000);
  });

  it('keeps names, kinds and installations separate', async () => {
    const hits = await Promise.all([
      throttleOf(0, 'a').hit('x'),
      throttleOf(0, 'b').hit('x'),
      throttleOf(0, 'a').hit('y'),
      throttleOf(0, 'a', 'other:').hit('x'),
    ]);
    expect(hits.map(({ remaining }) => remaining)).toEqual([9, 9, 9, 9]);
  });

  it('continues in memory while Redis is unavailable', async () => {
    const throttle = throttleOf(0, 'away');
    expect((await throttle.hit('x')).remaining).toBe(9);
    await redis.stop();
    const counts: boolean[] = [];
    for (let count = 0; count < 12; count += 1) counts.push((await throttle.hit('x')).allowed);
    expect(counts.filter(Boolean)).toHaveLength(10);
  });
});
