import { afterAll, afterEach, describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  eventually,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { fresh, openReuse, type ReuseBench } from '#test/cache/caching-key.ts';

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
  const env = { HEADGATE_SPOOL_AFTER_MS: '500', HEADGATE_LEASE_SECONDS: '5' };
  return { engines: { chat: standinFile('chat') }, databaseUrl: proxy.url, env };
});
afterEach(() => proxy?.restore());

let named = 0;
function freshKey(): { headers: Record<string, string> } {
  named += 1;
  return { headers: { 'idempotency-key': `key ${named} ${Math.random()}` } };
}

const replayed = (answer: Response): string | null => answer.headers.get('idempotent-replayed');
const running = (): Promise<number> => readMetric(bench.socketOf('chat'), 'vllm:num_requests_running');

/** An organization whose key is known here, and how it stands once nothing is held any more. */
async function open(): Promise<ReuseBench & { requests(): Promise<number> }> {
  const reuse = await openReuse(bench, {});
  await (await reuse.chat(fresh())).text();
  const requests = async (): Promise<number> => {
    await eventually(async () => (await bench.wallet(reuse.key)).held === '0');
    const path = '/v1/usage/requests';
    const { data }: Body = await (await bench.gateway.request(path, { key: reuse.managementKey })).json();
    const cost = data.reduce((sum: number, record: { cost: string }) => sum + Number(record.cost) * 1e9, 0);
    const { balance } = await bench.wallet(reuse.key);
    expect(Math.round(5e9 - Number(balance) * 1e9)).toBe(Math.round(cost));
    return data.filter((record: { cost: string }) => record.cost !== '0').length;
  };
  return { ...reuse, requests };
}

/** Asks until it is neither 409 nor 503, as the answers say. */
async function obey(ask: () => Promise<Response>): Promise<Response> {
  return eventually(async () => {
    const answer = await ask();
    if (answer.status !== 409 && answer.status !== 503) return answer;
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    await answer.text();
    return null;
  });
}

describe('a request with an Idempotency-Key while PostgreSQL is unavailable', () => {
  it.each(['refuse', 'silence'] as const)(
    'returns 503 with Retry-After when it is new, and does not run: %s',
    async (way) => {
      const reuse = await open();
      const asked = await reuse.asked();
      if (way === 'refuse') proxy?.refuse();
      else proxy?.answerWith('silence');
      const options = freshKey();
      const body = fresh();
      const answers = await Promise.all(Array.from({ length: 12 }, () => reuse.chat(body, options)));
      for (const answer of answers) {
        expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
        expect(await errorOf(answer)).toMatchObject({ status: 503, code: 'billing_unavailable' });
      }
      expect(await reuse.asked()).toBe(asked);
      proxy?.restore();
      const answer = await obey(() => reuse.chat(body, options));
      expect([answer.status, replayed(answer)]).toEqual([200, null]);
      await answer.text();
      expect(await reuse.requests()).toBe(2);
    },
  );

  it.each([[false], [true]])(
    'that settles is answered, replayed with the same bytes, and billed once (stream: %s)',
    async (stream) => {
      const reuse = await open();
      const options = freshKey();
      const body = { ...fresh(), stream, standin: { ttft_ms: 300 } };
      const asking = reuse.chat(body, options);
      await eventually(async () => (await running()) === 1);
      proxy?.refuse();
      const first = await asking;
      const text = await first.text();
      expect([first.status, replayed(first)]).toEqual([200, null]);
      const again = await reuse.chat(body, options);
      expect([again.status, replayed(again), await again.text()]).toEqual([200, 'true', text]);
      expect((await reuse.chat({ ...body, seed: 1 }, options)).status).toBe(422);
      proxy?.restore();
      for (let round = 0; round < 2; round += 1) {
        const later = await obey(() => reuse.chat(body, options));
        expect([later.status, replayed(later), await later.text()]).toEqual([200, 'true', text]);
        expect(await reuse.requests()).toBe(2);
      }
    },
  );

  it('that fails runs again once PostgreSQL is back', async () => {
    const reuse = await open();
    const options = freshKey();
    const body = fresh();
    const failing = reuse.chat({ ...body, standin: { ttft_ms: 300, error_after: 1 } }, options);
    await eventually(async () => (await running()) === 1);
    proxy?.refuse();
    expect((await failing).status).toBe(502);
    proxy?.restore();
    const answer = await obey(() => reuse.chat({ ...body, standin: { ttft_ms: 300, error_after: 1 } }, options));
    expect([answer.status, replayed(answer)]).toEqual([502, null]);
    await answer.text();
  });

  it('whose settlement is committed without an answer is billed once', async () => {
    const reuse = await open();
    const options = freshKey();
    const body = { ...fresh(), standin: { ttft_ms: 300 } };
    const asking = reuse.chat(body, options);
    await eventually(async () => (await running()) === 1);
    proxy?.loseNextAnswer();
    const text = await (await asking).text();
    const again = await obey(() => reuse.chat(body, options));
    expect([again.status, replayed(again), await again.text()]).toEqual([200, 'true', text]);
    expect(await reuse.requests()).toBe(2);
  });
});
