import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chatBody, chatPath, errorOf, eventually, type Body } from '#test/inference/inference-gateway.ts';
import { adminKey, startCluster, type Cluster } from '#test/redis/gateway-cluster.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { fresh } from '#test/cache/caching-key.ts';

/** Gateways that are killed with -9 while they have requests with an Idempotency-Key. */

const env = { HEADGATE_LEASE_SECONDS: '5' };
let named = 0;

/** A request that can be sent again, to any gateway, by a key of an organization of its own. */
interface Repeatable {
  send(which: number): Promise<Response>;
  /** Sends it until it is not 409, each time after the wait that the refusal named. */
  obey(which: number): Promise<{ answer: Response; refusals: number }>;
  /** Its organization's records and what they cost, beside what the wallet has lost. */
  books(which: number): Promise<{ records: Body[]; cost: bigint; spent: bigint }>;
  held(which: number): Promise<string>;
}

const toPico = (usd: string): bigint => BigInt(Math.round(Number(usd) * 1e12));

async function openRepeatable(cluster: Cluster, fields: object): Promise<Repeatable> {
  const owner = await cluster.organization('1');
  const { secret } = await cluster.key({}, owner.key);
  named += 1;
  const headers = { 'idempotency-key': `key ${named} ${Math.random()}` };
  const body = chatBody({ ...fresh(), ...fields });
  const read = async (which: number, path: string): Promise<Body> =>
    (await cluster.ask(which, path, { key: owner.key })).json();
  const send = (which: number): Promise<Response> => cluster.ask(which, chatPath, { key: secret, body, headers });
  return {
    send,
    async obey(which) {
      for (let refusals = 0; ; refusals += 1) {
        const answer = await send(which);
        if (answer.status !== 409) return { answer, refusals };
        expect(await errorOf(answer)).toMatchObject({ code: 'conflict', param: 'Idempotency-Key' });
        const seconds = Number(answer.headers.get('retry-after'));
        expect(seconds).toBeGreaterThan(0);
        await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      }
    },
    async books(which) {
      const { data: records } = await read(which, '/v1/usage/requests');
      const { balance } = await read(which, '/v1/wallet');
      const cost = records.reduce((sum: bigint, record: Body) => sum + toPico(record.cost), 0n);
      return { records, cost, spent: toPico('1') - toPico(balance) };
    },
    held: async (which) => (await read(which, '/v1/wallet')).held,
  };
}

async function runningAt(engineUrl: string): Promise<number> {
  const text = await (await fetch(new URL('/metrics', engineUrl))).text();
  return Number(/^vllm:num_requests_running\{[^}]*\} (\S+)/m.exec(text)?.[1] ?? 0);
}

/** A request of a gateway that is killed while the engine works on it; the client loses its connection. */
async function killRunning(cluster: Cluster, which: number, request: Repeatable): Promise<void> {
  const lost = request.send(which).then(
    () => 'answered',
    () => 'lost',
  );
  await eventually(async () => (await runningAt(cluster.engineUrl)) === 1);
  await cluster.gateways[which]?.end('SIGKILL');
  expect(await lost).toBe('lost');
}

/** Asks once more and expects the same bytes, one record, and one charge. */
async function expectBilledOnce(request: Repeatable, which: number, text: string): Promise<void> {
  const again = await request.send(which);
  expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
  expect(await again.text()).toBe(text);
  const { records, cost, spent } = await request.books(which);
  expect(records.map(({ outcome }) => outcome)).toEqual(['completed']);
  expect(cost).toBeGreaterThan(0n);
  expect(spent).toBe(cost);
}

/** A gateway that books through a proxy, on a data folder that another one may be started on. */
interface Spooling {
  readonly proxy: DatabaseProxy;
  readonly env: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

async function openSpooling(cluster: Cluster, env: Readonly<Record<string, string>>): Promise<Spooling> {
  const proxy = await startDatabaseProxy(cluster.database.url);
  const dataDir = mkdtempSync(join(tmpdir(), 'hg-killed-'));
  return {
    proxy,
    env: { HEADGATE_SPOOL_AFTER_MS: '500', DATABASE_URL: proxy.url, HEADGATE_DATA_DIR: dataDir, ...env },
    async close() {
      await proxy.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** A gateway answers a request without PostgreSQL, and is killed. @returns the answer */
async function killSpooled(cluster: Cluster, { proxy, env: own }: Spooling, request: Repeatable): Promise<string> {
  const which = cluster.gateways.indexOf(await cluster.start(own));
  await (await cluster.chat(which, adminKey)).text();
  const asking = request.send(which);
  await eventually(async () => (await runningAt(cluster.engineUrl)) === 1);
  proxy.refuse();
  const text = await (await asking).text();
  expect((await asking).status).toBe(200);
  await cluster.gateways[which]?.end('SIGKILL');
  proxy.restore();
  return text;
}

const slow = { standin: { ttft_ms: 3000 } };

describe('a gateway killed beside another one', () => {
  let redis: TestRedis;
  let cluster: Cluster;
  let spooling: Spooling;
  beforeAll(async () => {
    redis = await startRedis();
    cluster = await startCluster({ count: 1, redis, env });
    await (await cluster.chat(0, adminKey)).text();
    spooling = await openSpooling(cluster, {});
  });
  afterAll(async () => {
    await cluster.stop();
    await spooling.close();
    await redis.stop();
  });

  it('has its request answered with 409 by the other one until the lease expires, then run and billed once', async () => {
    const request = await openRepeatable(cluster, slow);
    const killed = cluster.gateways.indexOf(await cluster.start());
    await killRunning(cluster, killed, request);
    const { answer, refusals } = await request.obey(0);
    expect(refusals).toBeGreaterThan(0);
    expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([200, null]);
    await expectBilledOnce(request, 0, await answer.text());
    await eventually(async () => (await request.held(0)) === '0');
  });

  it('has its complete answer replayed by the other one, and not billed again', async () => {
    const request = await openRepeatable(cluster, { stream: true });
    const killed = cluster.gateways.indexOf(await cluster.start());
    const text = await (await request.send(killed)).text();
    await cluster.gateways[killed]?.end('SIGKILL');
    expect(text).toContain('data: [DONE]');
    // Requests that it had not reported as over are over when its lease is.
    const { answer } = await request.obey(0);
    expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
    expect(await answer.text()).toBe(text);
    await expectBilledOnce(request, 0, text);
  });

  it('after it answered without PostgreSQL, has its answer replayed by the next gateway on its data folder, billed once', async () => {
    const request = await openRepeatable(cluster, { standin: { ttft_ms: 500 } });
    const text = await killSpooled(cluster, spooling, request);
    const next = cluster.gateways.indexOf(await cluster.start(spooling.env));
    const { answer } = await request.obey(next);
    expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
    expect(await answer.text()).toBe(text);
    await expectBilledOnce(request, 0, text);
    await cluster.gateways[next]?.end();
  });

  it('after it answered without PostgreSQL, does not bill a request that another gateway ran before the restart', async () => {
    const request = await openRepeatable(cluster, { standin: { ttft_ms: 500 } });
    await killSpooled(cluster, spooling, request);
    const { answer, refusals } = await request.obey(0);
    expect(refusals).toBeGreaterThan(0);
    expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([200, null]);
    const text = await answer.text();
    const next = cluster.gateways.indexOf(await cluster.start(spooling.env));
    const { records, cost, spent } = await eventually(async () => {
      const books = await request.books(next);
      return books.records.length === 2 && books;
    });
    expect(spent).toBe(cost);
    const [lost] = records.filter((record) => record.cost === '0');
    expect(lost).toMatchObject({ outcome: 'completed', reason: 'repeated_idempotency_key' });
    expect(toPico(lost.written_off)).toBe(cost);
    await eventually(async () => (await request.held(next)) === '0');
    const again = await request.send(next);
    expect([again.headers.get('idempotent-replayed'), await again.text()]).toEqual(['true', text]);
  });
});

describe('a single gateway, killed and restarted', () => {
  let redis: TestRedis;
  let cluster: Cluster;
  const dataDir = mkdtempSync(join(tmpdir(), 'hg-killed-'));
  const alone = { REDIS_URL: '', HEADGATE_DATA_DIR: dataDir };
  beforeAll(async () => {
    redis = await startRedis();
    cluster = await startCluster({ count: 0, redis, env });
    await cluster.start(alone);
    await (await cluster.chat(0, adminKey)).text();
  });
  afterAll(async () => {
    await cluster.stop();
    await redis.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  it('replays what was complete, runs what was not, and bills each once', async () => {
    const [done, running] = [await openRepeatable(cluster, {}), await openRepeatable(cluster, slow)];
    const text = await (await done.send(0)).text();
    await killRunning(cluster, 0, running);
    await cluster.start(alone);
    const replay = await done.obey(1);
    expect([replay.answer.status, replay.answer.headers.get('idempotent-replayed')]).toEqual([200, 'true']);
    expect(await replay.answer.text()).toBe(text);
    await expectBilledOnce(done, 1, text);
    // It took the place of a gateway that has surely ended: there is no lease to wait for.
    const { answer, refusals } = await running.obey(1);
    expect(refusals).toBe(0);
    expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([200, null]);
    await expectBilledOnce(running, 1, await answer.text());
    for (const request of [done, running]) expect(await request.held(1)).toBe('0');
  });
});
