import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  eventually,
  externalFile,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';

/** The hold of a request that another model answers, in Redis. */

const dear = 'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4 }';

let redis: TestRedis;
let gateway: TestGateway;
beforeAll(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  const enginesDir = writeEngines({
    gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [spare]'] }),
    spare: standinFile('spare', { priced: false, lines: [dear] }),
  });
  gateway = await startGateway({ redisUrl: redis.url, enginesDir });
});
afterAll(async () => {
  await gateway.stop();
  await redis.stop();
});

const headers = { 'x-headgate-allow-fallback': 'true' };
const ask = (key: string, fields: object): Promise<Response> =>
  gateway.request(chatPath, { body: chatBody({ model: 'gone', ...fields }), key, headers });
const wallet = async (key: string): Promise<Body> => (await gateway.request('/v1/wallet', { key })).json();
const isSettled = (key: string) =>
  eventually(async () => {
    const now = await wallet(key);
    return now.held === '0' ? now : null;
  });

it.each([[true], [false]])('rejects a fallback that the wallet does not cover, stream %s', async (stream) => {
  const { key } = await openOrganization(gateway, '0.0001');
  const answer = await ask(key, { stream, max_tokens: 100 });
  expect(answer.headers.get('x-headgate-fallback')).toBeNull();
  expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
  expect(await isSettled(key)).toMatchObject({ balance: '0.0001' });
});

it.each([[true], [false]])(
  "raises the hold to the fallback's price, and releases it except the cost, stream %s",
  async (stream) => {
    const { key } = await openOrganization(gateway, '1');
    const answer = await ask(key, { stream });
    expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'spare']);
    await answer.text();
    const path = `/v1/usage/requests/${answer.headers.get('x-request-id')}`;
    const record = await eventually(async () => {
      const found = await gateway.request(path, { key });
      return found.status === 200 ? ((await found.json()) as Body) : null;
    });
    expect(record).toMatchObject({ model: 'spare', fallback_for: 'gone', output_tokens: 8, written_off: '0' });
    const cost = Number(record.input_tokens) * 1 + 8 * 4;
    expect(Number(record.cost)).toBeCloseTo(cost / 1e6, 12);
    expect(Number((await isSettled(key)).balance)).toBeCloseTo(1 - cost / 1e6, 12);
  },
);

it('raises the hold to the balance when it covers a part, and shortens the output', async () => {
  const { key } = await openOrganization(gateway, '0.0007');
  const answer = await ask(key, { max_tokens: 100 });
  expect(answer.headers.get('x-headgate-fallback')).toBe('spare');
  const most = Number(answer.headers.get('x-headgate-max-tokens'));
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThan(100);
  await answer.text();
  expect(Number((await isSettled(key)).balance)).toBeGreaterThanOrEqual(0);
});

it('counts a fallback once against the limits of its key', async () => {
  const { key } = await openOrganization(gateway, '1');
  const body = { name: 'app', requests_per_minute: 10, max_concurrency: 1 };
  const { secret } = (await (await gateway.request('/v1/keys', { key, body })).json()) as Body;
  for (const left of ['9', '8']) {
    const answer = await ask(secret, {});
    expect(answer.headers.get('x-ratelimit-remaining-requests')).toBe(left);
    await answer.text();
  }
});
