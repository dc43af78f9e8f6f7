import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import { createRedisAdmission, type RedisAdmission } from '#core/admission/admission.ts';
import type { AdmitRequest, Settlement } from '#core/admission/contract/types.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { heldOf } from './admission-bench.ts';

/** Admission's holds when Redis or a message comes at a bad moment, without a gateway around it. */

const log = createLog('silent');
const limits = { requestsPerMinute: 10, maxConcurrency: null, tokensPerMinute: 1000, monthlyTokenLimit: null };

let redis: TestRedis;
let store: RedisStore;
let client: Redis;
beforeAll(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  store = await connectRedis(redis.url, log);
  client = new Redis(redis.url);
});
afterAll(async () => {
  client.disconnect();
  store.close();
  await redis.stop();
});

interface Opening {
  readonly leaseMs?: number;
  readonly gatewayId?: string;
  readonly settled?: ReadonlyMap<string, Settlement>;
}

/** Admission of a gateway that lives, over books that have 1 USD for everybody. */
function open({ leaseMs = 30_000, gatewayId = randomUUID(), settled = new Map() }: Opening = {}): RedisAdmission {
  return createRedisAdmission({
    store,
    prefix: 'hg:leases',
    gatewayId,
    leaseMs,
    books: {
      balanceWith: () => Promise.resolve({ balancePicoUsd: 10n ** 12n, charged: [] }),
      tokensWith: () => Promise.resolve({ tokens: 0, counted: [] }),
      isRevoked: () => Promise.resolve(false),
    },
    collect: () => Promise.resolve([]),
    findSettled: () => Promise.resolve(settled),
    liveGateways: () => Promise.resolve(new Set([gatewayId])),
    clock: systemClock,
    log,
  });
}

function requestOf(organizationId: string): AdmitRequest {
  const ids = { organizationId, keyId: randomUUID(), requestId: randomUUID() };
  return { ...ids, limits, neededMicroUsd: 1n, wantedMicroUsd: 100n, estimatedTokens: 50 };
}

async function admit(admission: RedisAdmission, organizationId: string = randomUUID()): Promise<AdmitRequest> {
  const request = requestOf(organizationId);
  expect(await admission.admit(request)).toMatchObject({ ok: true, heldMicroUsd: 100n });
  return request;
}

const used: Settlement = { chargedPicoUsd: 7_000_000n, tokens: 20 };
const balanceOf = async (organizationId: string): Promise<string | null> =>
  client.hget(`hg:leases:{${organizationId}}:wallet`, 'b');

describe('a wallet hold', () => {
  it('that is settled during its registration stays settled, even if the registration is sent twice', async () => {
    const admission = open();
    await client.script('FLUSH');
    // Admission and settlement are known to Redis then, registration is not.
    const first = await admit(admission);
    admission.settle(first.requestId, used);
    await eventually(async () => (await heldOf({ admission }, first.organizationId)) === 0n);
    const request = await admit(admission);
    const { organizationId, requestId } = request;
    const registered = admission.register(organizationId);
    admission.settle(requestId, used);
    await registered;
    await admission.close();
    expect(await admission.heldMicroUsd(organizationId)).toBe(0n);
    expect(await balanceOf(organizationId)).toBe('999993');
    expect(await admission.view(request)).toMatchObject({ tokens: { remaining: 980 } });
  });

  it('whose settlement Redis did not answer is released once Redis answers, before leases are renewed', async () => {
    const admission = open({ leaseMs: 3_600_000 });
    const { organizationId, requestId } = await admit(admission);
    const pid = redis.pid ?? 0;
    process.kill(pid, 'SIGSTOP');
    try {
      admission.settle(requestId, used);
      await eventually(async () => (await heldOf({ admission }, organizationId)) === null);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await eventually(async () => (await client.hlen(`hg:leases:{${organizationId}}:holds`)) === 0);
    const held = await eventually(async () => {
      const known = await heldOf({ admission }, organizationId);
      return known === null ? null : { known };
    });
    expect(held.known).toBe(0n);
    await admission.close();
  });

  it('that its own gateway has lost is settled by the ledger once its lease expires', async () => {
    const gatewayId = randomUUID();
    const before = open({ gatewayId, leaseMs: 600 });
    const { organizationId, requestId } = await admit(before);
    const after = open({ gatewayId, leaseMs: 600, settled: new Map([[requestId, used]]) });
    const mine = await admit(after, organizationId);
    expect(await after.heldMicroUsd(organizationId)).toBe(200n);
    await eventually(async () => {
      await after.sweep();
      return (await heldOf({ admission: after }, organizationId)) === 100n;
    });
    expect(await balanceOf(organizationId)).toBe('999993');
    // The one that runs here stays, although its lease is over too.
    await eventually(async () => {
      const [, endsMs] = await client.zrange(`hg:leases:{${organizationId}}:leases`, '0', '0', 'WITHSCORES');
      return Number(endsMs) < Date.now();
    });
    await after.sweep();
    expect(await after.heldMicroUsd(organizationId)).toBe(100n);
    after.settle(mine.requestId, used);
    await eventually(async () => (await heldOf({ admission: after }, organizationId)) === 0n);
    await after.close();
  });
});
