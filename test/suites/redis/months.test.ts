import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { monthStartMs } from '#core/limits/limits.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { AdmissionBench, heldOf, requestOf, usedOf } from './admission-bench.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

let redis: TestRedis;
let bench: AdmissionBench;
beforeAll(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  bench = new AdmissionBench(redis.url);
});
afterAll(async () => {
  await bench.close();
  await redis.stop();
});

it('counts running requests of every gateway against a monthly limit that is set meanwhile', async () => {
  const gateways = [await bench.open(), await bench.open()];
  const [first] = gateways;
  const organizationId = bench.books.open(1000n);
  const ask = async (which: number, tokens: number, monthlyTokenLimit: number | null): Promise<string> => {
    const request = requestOf(organizationId, { keyId: 'busy', tokens, limits: { monthlyTokenLimit } });
    const result = await gateways[which]?.admission.admit(request);
    if (result?.ok === true) admitted.push({ request, which });
    return result?.ok === true ? 'ok' : (result?.code ?? '');
  };
  const admitted: { request: ReturnType<typeof requestOf>; which: number }[] = [];
  expect([await ask(0, 500, null), await ask(1, 500, null)]).toEqual(['ok', 'ok']);
  expect([await ask(0, 201, 1200), await ask(1, 200, 1200)]).toEqual(['monthly_quota_exceeded', 'ok']);
  // Taken off, and set again while more runs.
  expect([await ask(0, 1000, null), await ask(1, 101, 2300), await ask(0, 100, 2300)]).toEqual([
    'ok',
    'monthly_quota_exceeded',
    'ok',
  ]);
  for (const { request, which } of admitted.splice(0)) {
    gateways[which]?.admission.settle(request.requestId, bench.books.book(request, usedOf(1n, 100)));
  }
  await eventually(async () => (await heldOf(first, organizationId)) === 0n);
  expect([await ask(0, 1801, 2300), await ask(1, 1800, 2300)]).toEqual(['monthly_quota_exceeded', 'ok']);
});

it('does not count tokens of a request admitted in another month, even if it is still running', async () => {
  const { admission } = await bench.open();
  const organizationId = bench.books.open(1000n);
  const of = { keyId: 'across', limits: { monthlyTokenLimit: 1000 } };
  const across = requestOf(organizationId, {
    ...of,
    limits: {},
    tokens: 900,
    acceptedMs: monthStartMs(Date.now()) - 60_000,
  });
  expect(await admission.admit(across)).toMatchObject({ ok: true });
  const ask = async (tokens: number): Promise<boolean> =>
    (await admission.admit(requestOf(organizationId, { ...of, tokens }))).ok;
  expect([await ask(600), await ask(401), await ask(300)]).toEqual([true, false, true]);
  admission.settle(across.requestId, usedOf(1n, 900));
  await eventually(async () => (await heldOf({ admission }, organizationId)) === 20n);
  expect([await ask(101), await ask(100)]).toEqual([false, true]);
});
