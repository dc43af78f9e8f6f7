import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { AdmissionBench, requestOf, type TestGateway } from './admission-bench.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Balances and months that Redis knows, while the books do not answer. */

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

const limits = { monthlyTokenLimit: 100 };

/** A balance and a month that Redis has known for an hour. */
async function open(gateway: TestGateway): Promise<string> {
  const organizationId = bench.books.open(100n);
  expect(await gateway.admission.check(requestOf(organizationId, { keyId: organizationId, limits }))).toMatchObject({
    ok: true,
  });
  await client.hset(`${bench.prefix}:{${organizationId}}:wallet`, 'at', String(Date.now() - 3_600_000));
  return organizationId;
}

async function ask({ admission }: TestGateway, organizationId: string, microUsd = 10n): Promise<string> {
  const result = await admission.admit(
    requestOf(organizationId, { keyId: organizationId, limits, microUsd, tokens: 1 }),
  );
  return result.ok ? 'ok' : result.code;
}

it('keeps using a balance while its refresh fails, but not a balance that was lost', async () => {
  const gateway = await bench.open();
  const [known, lost] = [await open(gateway), await open(gateway)];
  bench.books.state = 'refusing';
  expect([await ask(gateway, known), await ask(gateway, known, 91n), await ask(gateway, known, 90n)]).toEqual([
    'ok',
    'insufficient_funds',
    'ok',
  ]);
  await client.del(`${bench.prefix}:{${lost}}:wallet`);
  expect(await ask(gateway, lost)).toBe('billing_unavailable');
  bench.books.state = 'there';
  bench.books.credit(known, 50n);
  await eventually(async () => (await ask(gateway, known, 50n)) === 'ok');
  expect(await ask(gateway, lost)).toBe('ok');
});

it('waits once for an unanswered balance query, not for every request', async () => {
  const gateway = await bench.open();
  const organizationId = await open(gateway);
  bench.books.state = 'silent';
  const before = bench.books.reads;
  for (let time = 0; time < 5; time += 1) expect(await ask(gateway, organizationId)).toBe('ok');
  expect(bench.books.reads - before).toBe(1);
});

it('rejects requests after the allowed age of a balance', async () => {
  const gateway = await bench.open({ staleMs: 700 });
  const organizationId = await open(gateway);
  bench.books.state = 'refusing';
  expect(await ask(gateway, organizationId, 1n)).toBe('ok');
  await eventually(async () => (await ask(gateway, organizationId, 1n)) === 'billing_unavailable');
  bench.books.state = 'there';
  await eventually(async () => (await ask(gateway, organizationId, 1n)) === 'ok');
});
