import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import {
  errorOf,
  eventually,
  framesOf,
  openOrganization,
  standinFile,
  useInference,
  type Body,
} from '#test/inference/inference-gateway.ts';

let database: TestDatabase | null = null;
let proxy: DatabaseProxy | null = null;

// Before the gateway's own: hooks run from the last to the first, and it stops with a database.
afterAll(async () => {
  await proxy?.close();
  await database?.drop();
});

const bench = useInference(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  return { engines: { chat: standinFile('chat') }, databaseUrl: proxy.url, env: { HEADGATE_SETTLE_SECONDS: '4' } };
});
afterEach(() => proxy?.restore());

const unavailable = { status: 503, code: 'billing_unavailable', type: 'server_error' };

/** Waits until requests are taken again. */
async function restored(): Promise<void> {
  proxy?.restore();
  await eventually(async () => (await bench.chat({})).status === 200);
}

describe('a PostgreSQL outage', () => {
  it('returns 503 for a valid key that is not cached, and 401 for a malformed one', async () => {
    await (await bench.chat({})).text();
    const fresh: Body = await (
      await bench.gateway.request('/v1/keys', { body: { name: 'fresh', scope: 'inference' } })
    ).json();
    const other = await openOrganization(bench.gateway, '1');
    proxy?.cut();
    // A key made here may be known already; one of an organization that has never asked is not.
    for (const key of [fresh.secret, other.key]) {
      const answer = await bench.chat({}, { key });
      expect(answer.status).not.toBe(401);
      expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
      expect(await errorOf(answer)).toMatchObject(unavailable);
    }
    expect((await bench.chat({}, { key: 'sk-hg-nonsense' })).status).toBe(401);
    await restored();
    for (const key of [fresh.secret, other.key]) expect((await bench.chat({}, { key })).status).toBe(200);
  });

  it.each(['reset', 'close', 'silence'] as const)(
    'returns 503 for a valid key in bounded time with few connections: %s',
    async (way) => {
      const { key } = await openOrganization(bench.gateway, '1');
      const takenBefore = proxy?.taken ?? 0;
      const beganMs = performance.now();
      proxy?.answerWith(way);
      const chats = [bench.chat({}, { key }), bench.chat({}, { key })];
      const reads = [bench.gateway.request('/v1/wallet', { key }), bench.gateway.request('/v1/wallet', { key })];
      for (const answer of await Promise.all(chats)) expect(await errorOf(answer)).toMatchObject(unavailable);
      for (const answer of await Promise.all(reads))
        expect(await errorOf(answer)).toMatchObject({ ...unavailable, code: 'database_unavailable' });
      const seconds = (performance.now() - beganMs) / 1000;
      expect((proxy?.taken ?? 0) - takenBefore).toBeLessThan(30 * Math.max(seconds, 1));
      await restored();
      expect((await bench.chat({}, { key })).status).toBe(200);
    },
  );

  it('spools records to disk, serves known keys, and applies all records once afterwards', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    expect((await bench.chat({}, { key })).status).toBe(200);
    const streaming = await bench.chat(
      { stream: true, max_tokens: 30, standin: { tpot_ms: 10, output_tokens: 30 } },
      { key },
    );
    proxy?.refuse();
    expect(framesOf(await streaming.text()).at(-1)).toBe('[DONE]');
    const meanwhile = await bench.chat({}, { key });
    expect(meanwhile.status).toBe(200);
    await restored();
    const listed = async (): Promise<Body> => (await bench.gateway.request('/v1/usage/requests', { key })).json();
    await eventually(async () => (await listed()).data.length === 3);
    expect(await bench.recordOf(streaming, key)).toMatchObject({ outcome: 'completed', output_tokens: 30 });
    const { data } = await listed();
    const spent = data.reduce((sum: bigint, { cost }: Body) => sum + BigInt(Math.round(Number(cost) * 1e12)), 0n);
    const wallet: Body = await eventually(async () => {
      const body: Body = await bench.wallet(key);
      return body.held === '0' && body;
    });
    expect(BigInt(Math.round(Number(wallet.balance) * 1e12))).toBe(1_000_000_000_000n - spent);
  });

  it('never shows more held than the wallet has, also between a charge and the end of its hold', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0001');
    const release = proxy?.holdAnswers();
    const asked = bench.chat({ stream: true, max_tokens: 100, standin: { output_tokens: 100 } }, { key });
    const charged: Body = await eventually(async () => {
      const wallet: Body = await bench.wallet(key);
      return wallet.balance !== '0.0001' && wallet;
    });
    release?.();
    await (await asked).text();
    // All that there is, or less where the hold has shrunk to the charge already.
    expect(Number(charged.held)).toBeLessThanOrEqual(Number(charged.balance));
    await eventually(async () => (await bench.wallet(key)).held === '0');
    expect(await bench.wallet(key)).toMatchObject({ balance: charged.balance, available: charged.balance });
  });

  it('repeats a commit whose reply was lost, and charges once', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    expect((await bench.chat({}, { key })).status).toBe(200);
    await eventually(async () => (await bench.wallet(key)).held === '0');
    const before: Body = await bench.wallet(key);
    proxy?.loseNextAnswer();
    const answer = await bench.chat({}, { key });
    expect(answer.status).toBe(200);
    expect(proxy?.lost).toBeGreaterThan(0);
    const record = await bench.recordOf(answer, key);
    const after: Body = await bench.wallet(key);
    expect(Number(before.balance) - Number(after.balance)).toBeCloseTo(Number(record.cost), 12);
    const { totals }: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(totals.num_model_requests).toBe(2);
  });
});
