import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { answerTimeoutMs } from '#base/redis/redis.ts';
import { type Body, errorOf, eventually } from '#test/inference/inference-gateway.ts';
import { adminKey, type Cluster, startCluster } from '#test/redis/gateway-cluster.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Hard budgets of several gateways with one Redis, which is lost, frozen, and outlived by gateways that are killed. */

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ count: 2, env: { HEADGATE_LEASE_SECONDS: '2' } });
  await Promise.all([0, 1].map((which) => cluster.chat(which, adminKey).then((answer) => answer.text())));
});
afterAll(() => cluster.stop());

interface Place {
  readonly owner: { readonly id: string; readonly key: string };
  readonly secret: string;
  readonly id: string;
}

/** A key with a monthly budget of so many USD, in an organization of its own. */
async function openPlace(amount: string): Promise<Place> {
  const owner = await cluster.organization('10');
  const { id: keyId, secret } = await cluster.key({}, owner.key);
  const body = { scope: { type: 'api_key', id: keyId }, period: 'monthly', amount, alert_percents: [] };
  const made: Body = await (await cluster.ask(0, '/v1/budgets', { body, key: owner.key })).json();
  return { owner, secret, id: made.id };
}

async function read(which: number, { owner, id }: Place): Promise<Body> {
  return (await cluster.ask(which, `/v1/budgets/${id}`, { key: owner.key })).json();
}

const settled = (place: Place): Promise<Body> =>
  eventually(async () => {
    const budget = await read(0, place);
    return budget.held === '0' ? budget : null;
  });

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
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

/** Micro-dollars spent as the short memory has them; null where it must ask the books. */
async function spentInRedis({ owner }: Place): Promise<number | null> {
  const client = new Redis(cluster.redis.url);
  const uuid = owner.id.replace(/^org_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  const [name = ''] = await client.keys(`*{${uuid}}:budgets`);
  const fields = await client.hgetall(name);
  client.disconnect();
  const slot = Object.keys(fields).find((field) => field.startsWith('api_key_') && !field.includes(':'));
  return slot === undefined ? null : -Number(fields[slot]) - Number(fields[`${slot}:r`]) / 1e6;
}

/** Checks that Redis has the sums of the ledger, or knows that it must ask it. */
async function expectExact(place: Place): Promise<void> {
  const { spent } = await settled(place);
  const inBooks = Number(spent) * 1e6;
  expect((await spentInRedis(place)) ?? inBooks).toBeCloseTo(inBooks, 3);
}

const ten = { max_tokens: 10, ignore_eos: true };

describe('a hard budget on several gateways', () => {
  it('is never exceeded, even if Redis is flushed under load, and leaves no hold', async () => {
    const amount = '0.001';
    const place = await openPlace(amount);
    const flushing = (async () => {
      for (let time = 0; time < 5; time += 1) {
        await new Promise((resolve) => setTimeout(resolve, 60));
        await cluster.redis.flush();
      }
    })();
    const statuses: number[] = [];
    for (let round = 0; round < 8; round += 1) {
      const asked = Array.from({ length: 30 }, (_, index) => statusOf(cluster.chat(index % 2, place.secret, ten)));
      statuses.push(...(await Promise.all(asked)));
    }
    await flushing;
    expect(statuses.filter((status) => ![200, 402, 503].includes(status))).toEqual([]);
    expect(statuses).toContain(402);
    const { spent } = await settled(place);
    expect(Number(spent)).toBeGreaterThan(0.0005);
    expect(Number(spent)).toBeLessThanOrEqual(Number(amount));
    await expectExact(place);
  });

  it('is never exceeded by 250 requests at once, beside a budget of a model and a raised one', async () => {
    const place = await openPlace('0.002');
    const { key } = place.owner;
    const { scope } = await read(0, place);
    const make = async (fields: object): Promise<Place> => {
      const body = { scope, alert_percents: [], ...fields };
      const { id }: Body = await (await cluster.ask(1, '/v1/budgets', { body, key })).json();
      return { ...place, id };
    };
    const ofModel = await make({ period: 'total', models: ['chat'], amount: '0.0015' });
    const raised = await make({ period: 'weekly', amount: '0.0005' });
    const raise = { amount: '0.0005', until: Math.floor(Date.now() / 1000) + 3600 };
    await cluster.ask(0, `/v1/budgets/${raised.id}`, { key, method: 'PATCH', body: { raise } });
    const asked = Array.from({ length: 250 }, (_, index) => statusOf(cluster.chat(index % 2, place.secret, ten)));
    const statuses = await Promise.all(asked);
    expect(statuses.filter((status) => ![200, 402].includes(status))).toEqual([]);
    expect(statuses).toContain(402);
    await settled(raised);
    for (;;) if ((await statusOf(cluster.chat(0, place.secret, ten))) === 402) break;
    const { spent } = await settled(raised);
    expect(Number(spent)).toBeGreaterThan(0.0005);
    expect(Number(spent)).toBeLessThanOrEqual(0.001);
    for (const one of [place, ofModel]) expect((await settled(one)).spent).toBe(spent);
  });

  it('applies on every gateway once its change is answered', async () => {
    const place = await openPlace('0.000001');
    const change = (body: object | null): Promise<Response> =>
      cluster.ask(1, `/v1/budgets/${place.id}`, {
        key: place.owner.key,
        ...(body === null ? { method: 'DELETE' } : { method: 'PATCH', body }),
      });
    const statuses = (): Promise<number[]> =>
      Promise.all([0, 1].map((which) => statusOf(cluster.chat(which, place.secret, ten))));
    expect(await statuses()).toEqual([402, 402]);
    await change({ amount: '1' });
    expect(await statuses()).toEqual([200, 200]);
    await change({ amount: '0.000002' });
    expect(await statuses()).toEqual([402, 402]);
    await change({ mode: 'soft' });
    expect(await statuses()).toEqual([200, 200]);
    await change({ mode: 'hard' });
    expect(await statuses()).toEqual([402, 402]);
    await change(null);
    expect(await statuses()).toEqual([200, 200]);
  });

  it('is found by a gateway that was not notified of it', async () => {
    const place = await openPlace('1');
    await cluster.sql`update budgets set amount = 1000000 where id = ${place.id.replace(/^budget_(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')}`;
    for (const which of [0, 1]) {
      const refused = (): Promise<boolean> =>
        statusOf(cluster.chat(which, place.secret, ten)).then((status) => status === 402);
      expect(await eventually(refused)).toBe(true);
    }
  });

  it('counts requests from a Redis freeze once, and each gateway stays within its share', async () => {
    const amount = '0.0008';
    const place = await openPlace(amount);
    for (const which of [0, 1]) expect(await statusOf(cluster.chat(which, place.secret, ten))).toBe(200);
    await settled(place);
    await whileFrozen(async () => {
      for (const which of [0, 1]) {
        const statuses: number[] = [];
        for (let round = 0; round < 6; round += 1) {
          const asked = Array.from({ length: 20 }, () => statusOf(cluster.chat(which, place.secret, ten)));
          statuses.push(...(await Promise.all(asked)));
        }
        expect(statuses).toContain(200);
        expect(statuses.filter((status) => ![200, 402, 503].includes(status))).toEqual([]);
        expect(statuses.some((status) => status !== 200)).toBe(true);
      }
    });
    const { spent } = await settled(place);
    expect(Number(spent)).toBeGreaterThan(0.0002);
    expect(Number(spent)).toBeLessThanOrEqual(Number(amount));
    await eventually(async () => (await statusOf(cluster.chat(0, place.secret, ten))) !== 503);
    await expectExact(place);
  });

  it('is not exceeded by a stream that grows while Redis is frozen', async () => {
    const amount = '0.002';
    const place = await openPlace(amount);
    const endless = { stream: true, max_tokens: 8000, ignore_eos: true, standin: { tpot_ms: 1 } };
    const answer = await cluster.chat(0, place.secret, endless);
    expect(answer.status).toBe(200);
    let text = '';
    await whileFrozen(async () => {
      text = await answer.text();
    });
    expect(text).toMatch(/"code":"(budget_exceeded|billing_unavailable)"/);
    const { spent } = await settled(place);
    expect(Number(spent)).toBeGreaterThan(0.0002);
    expect(Number(spent)).toBeLessThanOrEqual(Number(amount));
    await expectExact(place);
  });
});

describe('a killed gateway with a budget', () => {
  it('leaves a charge without its Redis update, which is counted once, and its hold is released', async () => {
    const place = await openPlace('1');
    const which = cluster.gateways.indexOf(await cluster.start());
    expect(await statusOf(cluster.chat(which, place.secret, ten))).toBe(200);
    await settled(place);
    const fields = { stream: true, max_tokens: 40, ignore_eos: true, standin: { ttft_ms: 20, tpot_ms: 20 } };
    const answer = await cluster.chat(which, place.secret, fields);
    expect(Number((await read(0, place)).held)).toBeGreaterThan(0);
    await whileFrozen(async () => {
      expect(await answer.text()).toContain('data: [DONE]');
      await new Promise((resolve) => setTimeout(resolve, 3 * answerTimeoutMs));
      await cluster.gateways[which]?.end('SIGKILL');
    });
    await eventually(async () => (await read(0, place)).held !== null);
    await expectExact(place);
    expect(await statusOf(cluster.chat(0, place.secret, ten))).toBe(200);
    await expectExact(place);
  });

  it('leaves holds of running streams, which are released by the ledger, and a new gateway knows the spend', async () => {
    const place = await openPlace('0.002');
    const third = await cluster.start();
    const which = cluster.gateways.indexOf(third);
    const slow = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 50 } };
    const streams = await Promise.all([1, 2].map(() => cluster.chat(which, place.secret, slow)));
    const ends = streams.map((stream) => stream.text().catch(() => ''));
    expect(Number((await read(0, place)).held)).toBeGreaterThan(0);
    await third.end('SIGKILL');
    await Promise.all(ends);
    await settled(place);
    for (;;) if ((await statusOf(cluster.chat(0, place.secret, ten))) === 402) break;
    await cluster.redis.flush();
    const fourth = cluster.gateways.indexOf(await cluster.start());
    const error = await errorOf(await cluster.chat(fourth, place.secret, ten));
    expect(error).toMatchObject({ status: 402, code: 'budget_exceeded' });
    const { spent } = await settled(place);
    expect(Number(spent)).toBeLessThanOrEqual(0.002);
  });
});
