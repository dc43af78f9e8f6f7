import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { formatUsd } from '#base/money.ts';
import { answerTimeoutMs } from '#base/redis/redis.ts';
import { errorOf, eventually, type Body } from '#test/inference/inference-gateway.ts';
import { adminKey, startCluster, type Cluster } from '#test/redis/gateway-cluster.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

const leaseSeconds = '2';
let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ count: 2, env: { HEADGATE_LEASE_SECONDS: leaseSeconds } });
  await Promise.all([0, 1].map((which) => cluster.chat(which, adminKey).then((answer) => answer.text())));
});
afterAll(() => cluster.stop());

const slow = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 50 } };

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
}

async function wallet(key: string): Promise<Body> {
  return (await cluster.ask(0, '/v1/wallet', { key })).json();
}

/** A stream of gateway `which` that has begun; it goes on until it is left. */
async function startStream(which: number, key: string): Promise<{ leave(): void; ended: Promise<unknown> }> {
  const aborter = new AbortController();
  const answer = await cluster.chat(which, key, slow, aborter.signal);
  expect(answer.status).toBe(200);
  const reader = answer.body?.getReader();
  await reader?.read();
  const ended = answer.body === null ? Promise.resolve() : drain(reader).catch(() => undefined);
  return { leave: () => aborter.abort(), ended };
}

async function drain(reader: ReadableStreamDefaultReader<Uint8Array> | undefined): Promise<void> {
  while (reader !== undefined && !(await reader.read()).done);
}

/** The wallet where Redis answers, null where it does not. */
async function known(key: string): Promise<Body> {
  const answer = await cluster.ask(0, '/v1/wallet', { key });
  const body: Body = await answer.json();
  return answer.status === 200 ? body : null;
}

async function whileFrozen(run: () => Promise<void>): Promise<void> {
  const pid = cluster.redis.pid ?? 0;
  process.kill(pid, 'SIGSTOP');
  try {
    await run();
  } finally {
    process.kill(pid, 'SIGCONT');
  }
}

/** An organization's balance in the short memory, as the API writes it; null where it must ask the ledger. */
async function balanceInRedis(organizationId: string): Promise<string | null> {
  const client = new Redis(cluster.redis.url);
  const [name = ''] = await client.keys(`*{${uuidOf(organizationId)}}:wallet`);
  const { b, r } = await client.hgetall(name);
  client.disconnect();
  return b === undefined ? null : formatUsd(BigInt(b) * 1_000_000n + BigInt(r ?? '0'));
}

describe('Redis that has lost its data', () => {
  it('gets running requests and ledger sums again before any request is admitted', async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({ max_concurrency: 2, monthly_token_limit: 100_000 }, owner.key);
    expect(await statusOf(cluster.chat(0, secret))).toBe(200);
    const streams = [await startStream(0, secret), await startStream(1, secret)];
    await cluster.redis.flush();
    // Both slots are taken by streams that only their own gateways know of.
    const refused = await cluster.chat(0, secret);
    expect(await errorOf(refused)).toMatchObject({ status: 429, code: 'concurrency_limit_exceeded' });
    for (const stream of streams) stream.leave();
    await eventually(async () => (await statusOf(cluster.chat(1, secret))) === 200);
    const left = await eventually(async () => {
      const now = await wallet(owner.key);
      return now.held === '0' ? now : null;
    });
    expect(await balanceInRedis(owner.id)).toBe(left.balance);
  });

  it('gets revocations and monthly sums again', async () => {
    const { id, secret } = await cluster.key({ monthly_token_limit: 60 });
    await eventually(async () => {
      const answer = await cluster.chat(0, secret);
      await answer.text();
      return answer.status === 429;
    });
    await cluster.redis.flush();
    expect(await errorOf(await cluster.chat(1, secret))).toMatchObject({ code: 'monthly_quota_exceeded' });
    await cluster.ask(0, `/v1/keys/${id}`, { method: 'DELETE' });
    await cluster.redis.flush();
    for (const which of [0, 1]) expect(await statusOf(cluster.chat(which, secret))).toBe(401);
  });

  it('loses no money and admits no request twice when it is flushed under load', async () => {
    const owner = await cluster.organization('0.01');
    const { secret } = await cluster.key({}, owner.key);
    const flushing = (async () => {
      for (let time = 0; time < 5; time += 1) {
        await new Promise((resolve) => setTimeout(resolve, 60));
        await cluster.redis.flush();
      }
    })();
    const statuses = await Promise.all(
      Array.from({ length: 300 }, (_, index) => statusOf(cluster.chat(index % 2, secret, { max_tokens: 200 }))),
    );
    await flushing;
    expect(statuses.filter((status) => status !== 200 && status !== 402 && status !== 503)).toEqual([]);
    const [row] = await cluster.sql`select count(*)::int as records,
        (select balance >= 0 from wallets where organization_id = ${uuidOf(owner.id)}) as covered
      from usage_records where organization_id = ${uuidOf(owner.id)} and outcome = 'completed'`;
    expect(row).toEqual({ records: statuses.filter((status) => status === 200).length, covered: true });
    await eventually(async () => (await wallet(owner.key)).held === '0');
  });
});

describe('frozen Redis', () => {
  it('leaves each gateway its share of limits and wallets, and counts each request once when thawed', async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({ requests_per_minute: 30 }, owner.key);
    for (const which of [0, 1]) expect(await statusOf(cluster.chat(which, secret))).toBe(200);
    await eventually(async () => (await wallet(owner.key)).held === '0');
    await whileFrozen(async () => {
      // The first one has heard that 29 are left, the other that 28 are.
      for (const which of [0, 1]) {
        const asked = Array.from({ length: 20 }, () => statusOf(cluster.chat(which, secret)));
        const statuses = await Promise.all(asked);
        expect(statuses.filter((status) => status === 200)).toHaveLength(14);
        expect(statuses.filter((status) => status === 429)).toHaveLength(6);
      }
      // One that no gateway has seen yet is looked up in PostgreSQL.
      const poor = await cluster.organization('0.000001');
      const other = await cluster.key({}, poor.key);
      expect(await statusOf(cluster.chat(0, other.secret))).toBe(402);
    });
    const left = await eventually(async () => {
      const now = await known(owner.key);
      return now?.held === '0' ? now : null;
    });
    // Redis has the balance of the ledger, or knows that it must ask it: the next request has it do so.
    await eventually(async () => {
      for (const which of [0, 1]) expect(await statusOf(cluster.chat(which, secret))).toBe(429);
      const balance = await balanceInRedis(owner.id);
      expect([null, left.balance]).toContain(balance);
      return balance !== null;
    });
    const [row] = await cluster.sql`select count(*)::int as records,
        (1 - sum(cost) / 1e12 = ${left.balance as string}::numeric) as exact
      from usage_records where organization_id = ${uuidOf(owner.id)} and cost > 0`;
    expect(row).toEqual({ records: 30, exact: true });
  });
});

describe('the wallet without Redis', () => {
  it('returns an error, never a wrong balance', async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({}, owner.key);
    const stream = await startStream(0, secret);
    const before = await wallet(owner.key);
    expect(Number(before.held)).toBeGreaterThan(0);
    await whileFrozen(async () => {
      for (let time = 0; time < 3; time += 1) {
        const answers = await Promise.all([0, 1].map((which) => cluster.ask(which, '/v1/wallet', { key: owner.key })));
        for (const answer of answers) {
          expect(answer.headers.get('retry-after')).toBe('1');
          expect(await errorOf(answer)).toMatchObject({ status: 503, code: 'billing_unavailable' });
        }
      }
      const listed = await cluster.ask(0, '/v1/models', { key: secret });
      expect([listed.status, listed.headers.get('x-ratelimit-limit')]).toEqual([200, null]);
    });
    const after = await eventually(() => known(owner.key));
    expect(Number(after.held)).toBeGreaterThan(0);
    stream.leave();
    await eventually(async () => (await known(owner.key))?.held === '0');
  });
});

describe('a killed gateway', () => {
  it('leaves a charge without its Redis update, which is posted once, and its hold is released', async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({ tokens_per_minute: 100_000 }, owner.key);
    const which = cluster.gateways.indexOf(await cluster.start());
    expect(await statusOf(cluster.chat(which, secret))).toBe(200);
    await eventually(async () => (await wallet(owner.key)).held === '0');
    const fields = { stream: true, max_tokens: 40, ignore_eos: true, standin: { ttft_ms: 20, tpot_ms: 20 } };
    const answer = await cluster.chat(which, secret, fields);
    const held = Number((await wallet(owner.key)).held);
    expect(held).toBeGreaterThan(0);
    await whileFrozen(async () => {
      // Complete means booked; what Redis was sent of it is late when it thaws.
      expect(await answer.text()).toContain('data: [DONE]');
      // Nothing that was sent before is in time then, and nothing more is sent.
      await new Promise((resolve) => setTimeout(resolve, 3 * answerTimeoutMs));
      await cluster.gateways[which]?.end('SIGKILL');
    });
    const before = await eventually(() => known(owner.key));
    expect(Number(before.held)).toBe(held);
    const after = await eventually(async () => {
      const now = await known(owner.key);
      return now?.held === '0' ? now : null;
    });
    const [row] = await cluster.sql`select count(*)::int as records,
        (1e12 - sum(cost) = ${after.balance as string}::numeric * 1e12) as exact
      from usage_records where organization_id = ${uuidOf(owner.id)} and outcome = 'completed'`;
    expect(row).toEqual({ records: 2, exact: true });
    expect(await balanceInRedis(owner.id)).toBe(after.balance);
    expect(await statusOf(cluster.chat(0, secret))).toBe(200);
  });

  it('frees its concurrency by time, and its holds by the ledger', async () => {
    const owner = await cluster.organization('0.001');
    const { secret } = await cluster.key({ max_concurrency: 2 }, owner.key);
    const third = await cluster.start();
    const which = cluster.gateways.indexOf(third);
    const streams = [await startStream(which, secret), await startStream(which, secret)];
    const held = (await wallet(owner.key)).held as string;
    expect(Number(held)).toBeGreaterThan(0);
    expect(await statusOf(cluster.chat(0, secret))).toBe(429);
    await third.end('SIGKILL');
    await Promise.all(streams.map(({ ended }) => ended));
    await eventually(async () => (await statusOf(cluster.chat(0, secret))) !== 429);
    // Its holds outlive its slots: they go when its heartbeat is old and the books do not have its requests.
    await eventually(async () => (await wallet(owner.key)).held === '0');
    const [row] =
      await cluster.sql`select balance >= 0 as covered from wallets where organization_id = ${uuidOf(owner.id)}`;
    expect(row).toEqual({ covered: true });
  });
});

function uuidOf(id: string): string {
  const digits = id.replace(/^[a-z]+_/, '');
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
