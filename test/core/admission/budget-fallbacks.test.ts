import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  eventually,
  externalFile,
  framesOf,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Requests that a dearer model answers, under a hard budget. */

const dear = 'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4 }';
const headers = { 'x-headgate-allow-fallback': 'true' };

describe.each(['memory', 'redis'] as const)('a fallback to a dearer model under a hard budget, in %s', (store) => {
  let redis: TestRedis | null = null;
  let gateway: TestGateway;
  beforeAll(async () => {
    redis = store === 'redis' ? await startRedis() : null;
    const enginesDir = writeEngines({
      gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [spare]'] }),
      spare: standinFile('spare', { priced: false, lines: [dear] }),
      other: standinFile('other'),
    });
    gateway = await startGateway({ enginesDir, ...(redis !== null && { redisUrl: redis.url }) });
  });
  afterAll(async () => {
    await gateway.stop();
    await redis?.stop();
  });

  async function open(amount: string, models: readonly string[] | null = null) {
    const { key } = await openOrganization(gateway, '100');
    const keyBody = { name: 'app', requests_per_minute: null };
    const made = (await (await gateway.request('/v1/keys', { key, body: keyBody })).json()) as Body;
    const scope = { type: 'api_key', id: made.id };
    const body = { scope, period: 'monthly', amount, models, alert_percents: [] };
    const { id } = (await (await gateway.request('/v1/budgets', { key, body })).json()) as Body;
    const read = async (): Promise<Body> => (await gateway.request(`/v1/budgets/${id}`, { key })).json();
    return {
      id,
      key,
      scope,
      ask: (fields: object): Promise<Response> =>
        gateway.request(chatPath, { body: chatBody({ model: 'gone', ...fields }), key: made.secret, headers }),
      settled: (): Promise<Body> =>
        eventually(async () => {
          const now = await read();
          return now.held === '0' ? now : null;
        }),
    };
  }

  it.each([[true], [false]])(
    'is not used when the budget cannot pay for it, and the first error stays, stream %s',
    async (stream) => {
      const place = await open('0.0001');
      const answer = await place.ask({ stream, max_tokens: 100 });
      expect(answer.headers.get('x-headgate-fallback')).toBeNull();
      expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
      expect(await place.settled()).toMatchObject({ spent: '0', remaining: '0.0001' });
    },
  );

  it('gets a smaller output limit when the budget pays for a part of a JSON answer', async () => {
    const place = await open('0.0007');
    const answer = await place.ask({ max_tokens: 100, ignore_eos: true });
    expect(answer.headers.get('x-headgate-fallback')).toBe('spare');
    const most = Number(answer.headers.get('x-headgate-max-tokens'));
    expect([most > 0, most < 100]).toEqual([true, true]);
    await answer.text();
    expect(Number((await place.settled()).spent)).toBeLessThanOrEqual(0.0007);
  });

  it.each([[true], [false]])('counts against the budgets of the model that answers, stream %s', async (stream) => {
    const place = await open('1', ['gone']);
    const make = async (models: readonly string[], period: string): Promise<() => Promise<Body>> => {
      const body = { scope: place.scope, period, amount: '0.002', models };
      const { id } = (await (await gateway.request('/v1/budgets', { key: place.key, body })).json()) as Body;
      return async () => (await gateway.request(`/v1/budgets/${id}`, { key: place.key })).json();
    };
    const spare = await make(['other', 'spare'], 'total');
    const both = await make(['gone', 'spare'], 'weekly');
    const used = async (): Promise<number> => {
      const answer = await place.ask({ stream, max_tokens: 64, ignore_eos: true });
      await answer.text();
      return answer.headers.get('x-headgate-fallback') === 'spare' ? used().then((more) => more + 1) : 0;
    };
    expect(await used()).toBeGreaterThan(1);
    expect(await place.settled()).toMatchObject({ spent: '0', held: '0' });
    const [one, other] = [await spare(), await both()];
    expect(one).toMatchObject({ held: '0', spent: other.spent });
    expect(Number(one.spent)).toBeGreaterThan(0.001);
    expect(Number(one.spent)).toBeLessThanOrEqual(0.002);
  });

  it('ends a stream with budget_exceeded when the budget pays for a part', async () => {
    const place = await open('0.0012');
    const long = { max_tokens: 4000, standin: { output_tokens: 4000, tpot_ms: 1 } };
    const answer = await place.ask({ stream: true, ...long });
    expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'spare']);
    const frames = framesOf(await answer.text());
    expect(JSON.stringify(frames.slice(-2))).toContain('budget_exceeded');
    const { spent } = await place.settled();
    expect(Number(spent)).toBeGreaterThan(0.0006);
    expect(Number(spent)).toBeLessThanOrEqual(0.0012);
  });

  it('never exceeds the budget with 30 requests at once, streams and JSON', async () => {
    const place = await open('0.003');
    const asked = Array.from({ length: 30 }, async (_, n) => {
      const answer = await place.ask({ stream: n % 2 === 0, max_tokens: 64, ignore_eos: true });
      await answer.text();
      return answer.status === 200 ? answer.headers.get('x-headgate-fallback') : null;
    });
    const served = (await Promise.all(asked)).filter((by) => by !== null);
    expect(served.length).toBeGreaterThan(0);
    expect(Number((await place.settled()).spent)).toBeLessThanOrEqual(0.003);
  });
});
