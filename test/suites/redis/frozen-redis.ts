import { afterEach, beforeEach, expect } from 'vitest';
import type { AdmitRequest } from '#core/admission/contract/types.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { AdmissionBench, type Opening, requestOf, type Wanted } from './admission-bench.ts';

type Rules = Pick<Opening, 'budgets' | 'projectLimits' | 'clock'>;

/** A Redis of each test's own that can be frozen, with gateways that admit through it. */
export function useFrozenRedis() {
  let opened: { readonly redis: TestRedis; readonly bench: AdmissionBench } | null = null;
  let isFrozen = false;

  const open = () => {
    if (opened === null) throw new Error('no test runs');
    return opened;
  };
  const thaw = (): void => {
    if (isFrozen) process.kill(open().redis.pid ?? 0, 'SIGCONT');
    isFrozen = false;
  };
  beforeEach(async () => {
    const redis = await startServer(findRedisServer() ?? 'redis-server');
    opened = { redis, bench: new AdmissionBench(redis.url) };
  });
  afterEach(async () => {
    thaw();
    await open().bench.close();
    await open().redis.stop();
  });

  const freeze = (): void => {
    process.kill(open().redis.pid ?? 0, 'SIGSTOP');
    isFrozen = true;
  };
  /** Both gateways have asked Redis about the key once, and nothing of it runs. */
  const openTwo = async (microUsd: bigint, wanted: Wanted, leaseMs = 30_000, rules: Rules = {}) => {
    const { bench } = open();
    const gateways = [await bench.open({ ...rules, leaseMs }), await bench.open({ ...rules, leaseMs })] as const;
    const organizationId = bench.books.open(microUsd);
    const make = (more: Wanted = {}): AdmitRequest => requestOf(organizationId, { keyId: 'key', ...wanted, ...more });
    for (const { admission } of gateways) expect(await admission.check(make())).toMatchObject({ ok: true });
    return { gateways, organizationId, make };
  };
  return {
    freeze,
    thaw,
    openTwo,
    get redis() {
      return open().redis;
    },
    get bench() {
      return open().bench;
    },
  };
}
