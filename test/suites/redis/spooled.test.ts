import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, afterEach, describe, expect, it } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { AdmissionBench, heldOf, requestOf } from './admission-bench.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Records that are durable in a gateway's spool, while the books do not have them yet. */

let redis: TestRedis;
let client: Redis;
let bench: AdmissionBench;
beforeAll(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  client = new Redis(redis.url);
});
afterAll(async () => {
  client.disconnect();
  await redis.stop();
});
beforeEach(() => {
  bench = new AdmissionBench(redis.url);
});
afterEach(() => bench.close());

const limits = { maxConcurrency: 1, tokensPerMinute: 1000, monthlyTokenLimit: 1000 };
/** Less than 3 micro-dollars, which is what is held for it. */
const used = { chargedPicoUsd: 2_000_001n, tokens: 300 };

async function spoolOne(leaseMs = 30_000) {
  const gateway = await bench.open({ leaseMs });
  const organizationId = bench.books.open(100n);
  const request = requestOf(organizationId, { limits, keyId: 'limited', microUsd: 50n, tokens: 500 });
  expect(await gateway.admission.admit(request)).toMatchObject({ ok: true, heldMicroUsd: 50n });
  gateway.admission.spooled(request.requestId, used);
  await eventually(async () => (await heldOf(gateway, organizationId)) === 3n);
  return { gateway, organizationId, request, another: { ...request, requestId: requestOf(organizationId).requestId } };
}

const balanceOf = (organizationId: string): Promise<string[]> =>
  client.hmget(`${bench.prefix}:{${organizationId}}:wallet`, 'b', 'r') as Promise<string[]>;

describe('a spooled record', () => {
  it('releases slot and tokens at once, and its money once it is in the ledger', async () => {
    const { gateway, organizationId, request, another } = await spoolOne();
    expect(await gateway.admission.view(request)).toMatchObject({ tokens: { remaining: 700 } });
    expect(await gateway.admission.admit({ ...another, estimatedTokens: 701 })).toMatchObject({
      code: 'monthly_quota_exceeded',
      view: { remaining: 700 },
    });
    expect(await gateway.admission.admit({ ...another, wantedMicroUsd: 98n, neededMicroUsd: 98n })).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 100_000_000n,
      heldMicroUsd: 3n,
    });
    expect(await gateway.admission.admit(another)).toMatchObject({ ok: true });
    gateway.admission.settle(another.requestId, { chargedPicoUsd: 0n, tokens: 0 });
    gateway.admission.settle(request.requestId, bench.books.book(request, used));
    gateway.admission.settle(request.requestId, used);
    await eventually(async () => (await heldOf(gateway, organizationId)) === 0n);
    expect(await balanceOf(organizationId)).toEqual(['97', '999999']);
    expect(await gateway.admission.view(request)).toMatchObject({ tokens: { remaining: 700 } });
    expect(await client.hlen(`${bench.prefix}:{${organizationId}}:holds`)).toBe(0);
  });

  it('holds its money after its gateway has ended, until it is in the ledger', async () => {
    const { gateway, organizationId, request } = await spoolOne(200);
    const other = await bench.open({ leaseMs: 200 });
    gateway.answers = false;
    gateway.lives = false;
    for (let time = 0; time < 4; time += 1) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      await other.admission.sweep();
      expect(await other.admission.heldMicroUsd(organizationId)).toBe(3n);
    }
    bench.books.book(request, used);
    await eventually(async () => {
      await other.admission.sweep();
      return (await heldOf(other, organizationId)) === 0n;
    });
    expect(await balanceOf(organizationId)).toEqual(['97', '999999']);
  });

  it('is settled once by the gateway that writes it to the ledger', async () => {
    const { gateway, organizationId, request } = await spoolOne();
    const other = await bench.open();
    gateway.answers = false;
    gateway.lives = false;
    bench.books.book(request, used);
    for (let time = 0; time < 2; time += 1) {
      other.admission.settleReplayed(organizationId, request.keyId, request.requestId, used);
    }
    await eventually(async () => (await heldOf(other, organizationId)) === 0n);
    const rich = requestOf(organizationId, { microUsd: 101n });
    expect(await other.admission.admit(rich)).toMatchObject({ balancePicoUsd: 97_999_999n });
  });

  it('counts in a month and a balance that are read again before it is in the ledger', async () => {
    const { gateway, organizationId, request, another } = await spoolOne();
    await redis.flush();
    expect(await gateway.admission.admit({ ...another, estimatedTokens: 701 })).toMatchObject({
      code: 'monthly_quota_exceeded',
      view: { remaining: 700 },
    });
    expect(await gateway.admission.heldMicroUsd(organizationId)).toBe(3n);
    // Its slot was given back before.
    expect(await gateway.admission.admit(another)).toMatchObject({ ok: true });
    await gateway.admission.renew();
    gateway.admission.settle(another.requestId, { chargedPicoUsd: 0n, tokens: 0 });
    gateway.admission.settle(request.requestId, bench.books.book(request, used));
    await eventually(async () => (await heldOf(gateway, organizationId)) === 0n);
    expect(await gateway.admission.admit({ ...another, estimatedTokens: 701 })).toMatchObject({
      view: { remaining: 700 },
    });
  });
});
