import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { findValkeyServer, startServer, type TestRedis } from '#test/redis.ts';
import { adminKey, startCluster, type Cluster } from '#test/redis/gateway-cluster.ts';

/** The functions of Redis that gateways need most, on Valkey. */

let valkey: TestRedis;
let cluster: Cluster;
beforeAll(async () => {
  valkey = await startServer(findValkeyServer() ?? 'valkey-server');
  cluster = await startCluster({ count: 2, redis: valkey });
  await Promise.all([0, 1].map((which) => cluster.chat(which, adminKey).then((answer) => answer.text())));
});
afterAll(async () => {
  await cluster.stop();
  await valkey.stop();
});

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
}

async function settled(key: string): Promise<Body> {
  return eventually(async () => {
    const answer = await cluster.ask(1, '/v1/wallet', { key });
    const wallet: Body = await answer.json();
    return wallet.held === '0' ? wallet : null;
  });
}

describe('two gateways on Valkey', () => {
  it('run on Valkey', async () => {
    const client = new Redis(valkey.url);
    expect(await client.info('server')).toMatch(/^valkey_version:\d/m);
    client.disconnect();
  });

  it('share limits exactly', async () => {
    for (let time = 0; time < 3; time += 1) {
      const { owner, statuses } = await cluster.undisturbed(async () => {
        const owner = await cluster.organization('1');
        const { secret } = await cluster.key({ requests_per_minute: 20 }, owner.key);
        const asked = Array.from({ length: 60 }, (_, index) => statusOf(cluster.chat(index % 2, secret)));
        return { owner, statuses: await Promise.all(asked) };
      });
      expect(statuses.filter((status) => status === 200)).toHaveLength(20);
      expect(statuses.filter((status) => status === 429)).toHaveLength(40);
      await settled(owner.key);
    }
  });

  it('notify each other of a revocation', async () => {
    const { id, secret } = await cluster.key();
    expect(await statusOf(cluster.chat(1, secret))).toBe(200);
    await cluster.ask(0, `/v1/keys/${id}`, { method: 'DELETE' });
    expect(await statusOf(cluster.chat(1, secret))).toBe(401);
  });

  it('restore balances and revocations after Valkey has lost its data', async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({}, owner.key);
    const revoked = await cluster.key({}, owner.key);
    expect(await statusOf(cluster.chat(0, secret))).toBe(200);
    await cluster.ask(0, `/v1/keys/${revoked.id}`, { method: 'DELETE', key: owner.key });
    await valkey.flush();
    expect(await statusOf(cluster.chat(1, secret))).toBe(200);
    expect(await statusOf(cluster.chat(1, revoked.secret))).toBe(401);
    const { balance } = await settled(owner.key);
    const [row] = await cluster.sql`select count(*)::int as records,
        (1e12 - sum(cost) = ${balance as string}::numeric * 1e12) as exact
      from usage_records where organization_id = ${owner.id.replace('org_', '')}`;
    expect(row).toEqual({ records: 2, exact: true });
  });
});
