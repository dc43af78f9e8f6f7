import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import type { TestRedis } from '#test/redis.ts';
import { adminKey, startCluster, type Cluster } from '#test/redis/gateway-cluster.ts';
import { startRedisCluster } from './redis-cluster.ts';

let redis: TestRedis;
let cluster: Cluster;
beforeAll(async () => {
  redis = await startRedisCluster();
  cluster = await startCluster({ count: 2, redis });
  await Promise.all([0, 1].map((which) => cluster.chat(which, adminKey).then((answer) => answer.text())));
});
afterAll(async () => {
  await cluster.stop();
  await redis.stop();
});

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
}

/** Null while Redis does not answer. */
async function heldOf(key: string): Promise<string | null> {
  const answer = await cluster.ask(1, '/v1/wallet', { key });
  const wallet: Body = await answer.json();
  return answer.status === 200 ? wallet.held : null;
}

/** The first status that is not Redis being late. */
async function decided(ask: () => Promise<Response>): Promise<number> {
  return eventually(async () => {
    const status = await statusOf(ask());
    return status === 503 ? null : status;
  });
}

describe('two gateways on a Redis cluster of three', () => {
  it('share the limits of organizations on all nodes', async () => {
    for (let time = 0; time < 6; time += 1) {
      const statuses = await cluster.undisturbed(async () => {
        const owner = await cluster.organization('1');
        const { secret } = await cluster.key({ requests_per_minute: 10 }, owner.key);
        const asked = Array.from({ length: 30 }, (_, index) => statusOf(cluster.chat(index % 2, secret)));
        const found = await Promise.all(asked);
        await eventually(async () => (await heldOf(owner.key)) === '0');
        return found;
      });
      expect(statuses.filter((status) => status === 200)).toHaveLength(10);
      expect(statuses.filter((status) => status === 429)).toHaveLength(20);
    }
  });

  it('notify each other of a revocation', async () => {
    const { id, secret } = await cluster.key();
    expect(await decided(() => cluster.chat(1, secret))).toBe(200);
    await cluster.ask(0, `/v1/keys/${id}`, { method: 'DELETE' });
    expect(await decided(() => cluster.chat(1, secret))).toBe(401);
  });

  it('restore balances when all nodes have lost their data', async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({}, owner.key);
    expect(await decided(() => cluster.chat(0, secret))).toBe(200);
    await redis.flush();
    expect(await decided(() => cluster.chat(1, secret))).toBe(200);
  });
});
