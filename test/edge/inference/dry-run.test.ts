import { afterAll, describe, expect, it } from 'vitest';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { type Body, errorOf, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const headers = { 'x-headgate-dry-run': 'true' };
const ask = { model: 'cold', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 100 };
const path = '/v1/chat/completions';

describe.each(['this process', 'Redis'])('a dry run with limits in %s', (place) => {
  let redis: TestRedis | null = null;
  afterAll(() => redis?.stop());
  const bench = useInference(async () => {
    if (place === 'Redis') redis = await startRedis();
    return {
      engines: { chat: standinFile('chat'), cold: standinFile('cold'), free: standinFile('free', { priced: false }) },
      env: redis === null ? {} : { REDIS_URL: redis.url },
    };
  });

  async function rehearse(body: object, more: object = {}): Promise<Body> {
    const answer = await bench.post(path, body, { headers, ...more });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toBe('application/json');
    return answer.json();
  }

  async function limitKey(key: string, limits: object): Promise<string> {
    const body = { name: 'limited', scope: 'inference', ...limits };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body, key })).json();
    return made.secret;
  }

  it('fails like the real request when the request or the key is not valid', async () => {
    for (const [body, code] of [
      [{ ...ask, model: 'nobody' }, 'model_not_found'],
      [{ ...ask, max_tokens: 'many' }, 'invalid_value'],
      [{ ...ask, priority: 1 }, 'unsupported_parameter'],
      [{ ...ask, service_tier: 'flex' }, 'unsupported_parameter'],
    ] as const) {
      expect(await errorOf(await bench.post(path, body, { headers }))).toMatchObject({ status: 400, code });
    }
    const free = await errorOf(await bench.post(path, { ...ask, model: 'free' }, { headers }));
    expect(free).toMatchObject({ status: 503, code: 'pricing_unavailable' });
    expect((await bench.post(path, ask, { headers, key: 'sk-wrong' })).status).toBe(401);
  });

  it('returns 400 when the header is neither true nor false', async () => {
    const answer = await bench.post(path, ask, { headers: { 'x-headgate-dry-run': 'yes' } });
    expect(await errorOf(answer)).toMatchObject({ status: 400, code: 'invalid_value', param: 'x-headgate-dry-run' });
  });

  it('returns the cost of the request, starts no engine and writes nothing', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    for (const stream of [false, true]) {
      const body = { ...ask, stream };
      const answer = await rehearse(body, { key });
      const bytes = Buffer.byteLength(JSON.stringify(body));
      const estimated = (Math.ceil(bytes / 4) * 100_000 + 100 * 400_000) / 1e12;
      const worst = ((bytes + 512) * 100_000 + 100 * 400_000) / 1e12;
      expect(answer).toEqual({
        object: 'dry_run',
        model: 'cold',
        estimated_cost: estimated.toFixed(12).replace(/0+$/, ''),
        worst_cost: worst.toFixed(12).replace(/0+$/, ''),
        admitted: true,
        refusal: null,
        cold_start_seconds: 600,
      });
    }
    const models: Body = await (await bench.gateway.request('/v1/models')).json();
    expect(models.data.find(({ id }: Body) => id === 'cold').status).toBe('cold');
    expect(await bench.wallet(key)).toMatchObject({ balance: '1', held: '0' });
    const { totals }: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(totals).toMatchObject({ num_model_requests: 0, refusals: {} });
  });

  it('returns cold_start_seconds null for a warm model', async () => {
    const warm = await bench.chat({});
    expect(warm.status).toBe(200);
    await warm.text();
    expect((await rehearse({ ...ask, model: 'chat' })).cold_start_seconds).toBeNull();
  });

  it('returns the refusal of an empty wallet', async () => {
    const { key } = await openOrganization(bench.gateway, null);
    expect(await rehearse(ask, { key })).toMatchObject({ admitted: false, refusal: 'insufficient_funds' });
    const { totals }: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(totals.refusals).toEqual({});
  });

  it('returns the limit that would refuse, and uses up none', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const limited = await limitKey(key, { requests_per_minute: 1 });
    for (let count = 0; count < 3; count += 1) {
      const answer = await bench.post(path, { ...ask, model: 'chat' }, { headers, key: limited });
      expect(answer.headers.get('x-ratelimit-remaining')).toBe('1');
      expect(await answer.json()).toMatchObject({ admitted: true });
    }
    const used = await bench.chat({}, { key: limited });
    expect(used.status).toBe(200);
    await used.text();
    const answer = await rehearse({ ...ask, model: 'chat' }, { key: limited });
    expect(answer).toMatchObject({ admitted: false, refusal: 'rate_limit_exceeded' });
  });

  it('applies a cap on the cost', async () => {
    const both = { ...headers, 'x-headgate-max-cost': '0.00002' };
    const capped = await rehearse(ask, { headers: both });
    expect(Number(capped.estimated_cost)).toBeLessThanOrEqual(0.00002);
    const tooLow = { ...headers, 'x-headgate-max-cost': '0.000000000001' };
    expect(await errorOf(await bench.post(path, ask, { headers: tooLow }))).toMatchObject({ status: 400 });
  });
});
