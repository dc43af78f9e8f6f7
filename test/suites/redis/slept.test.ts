import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { AdmissionBench, requestOf } from './admission-bench.ts';

let redis: TestRedis;
let bench: AdmissionBench;
beforeEach(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  bench = new AdmissionBench(redis.url);
});
afterEach(async () => {
  await bench.close();
  await redis.stop();
});

describe('a gateway that was frozen', () => {
  it('takes its concurrency slots again before it admits requests', async () => {
    const [sleeper, other] = [await bench.open({ leaseMs: 600 }), await bench.open({ leaseMs: 600 })];
    const organizationId = bench.books.open(1000n);
    const make = () => requestOf(organizationId, { keyId: 'key', limits: { maxConcurrency: 1 } });
    const stream = make();
    expect(await sleeper.admission.admit(stream)).toMatchObject({ ok: true });
    sleeper.answers = false;
    await eventually(async () => (await other.admission.check(make())).ok);
    sleeper.answers = true;
    const refused = { ok: false, code: 'concurrency_limit_exceeded' };
    expect(await sleeper.admission.admit(make())).toMatchObject(refused);
    expect(await other.admission.check(make())).toMatchObject(refused);
    sleeper.admission.settle(stream.requestId, { chargedPicoUsd: 0n, tokens: 0 });
  });
});
