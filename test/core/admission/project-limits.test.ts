import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
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
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Limits of a project by model: set by the official SDK, applied at every request, in memory and in Redis. */

const allowsFallback = { 'x-headgate-allow-fallback': 'true' };

describe.each(['memory', 'redis'] as const)('limits of a project per model, in %s', (store) => {
  let redis: TestRedis | null = null;
  let database: TestDatabase;
  let gateway: TestGateway;
  let enginesDir = '';
  const shared = () => (redis === null ? {} : { redisUrl: redis.url });
  beforeAll(async () => {
    redis = store === 'redis' ? await startRedis() : null;
    enginesDir = writeEngines({
      chat: standinFile('chat'),
      gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [chat]'] }),
      hopeless: externalFile('hopeless', 'http://127.0.0.1:1', { lines: ['fallbacks: [gone]'] }),
    });
    database = await createTestDatabase();
    gateway = await startGateway({ enginesDir, ...shared(), databaseUrl: database.url });
  });
  afterAll(async () => {
    await gateway.stop();
    await database.drop();
    await redis?.stop();
  });

  async function openProject(keyLimits: object = {}) {
    const { key: owner } = await openOrganization(gateway, '100');
    const client = new OpenAI({ adminAPIKey: owner, apiKey: null, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
    const { projects } = client.admin.organization;
    const project = await projects.create({ name: 'Search' });
    const keyOf = async (limits: object): Promise<Body> => {
      const body = {
        name: 'app',
        project_id: project.id,
        requests_per_minute: null,
        tokens_per_minute: null,
        ...limits,
      };
      return (await gateway.request('/v1/keys', { key: owner, body })).json();
    };
    const { secret } = await keyOf(keyLimits);
    const set = (limits: object, model = 'chat') =>
      projects.rateLimits.updateRateLimit(`rl-${model}`, { project_id: project.id, ...limits });
    const ask = async (fields: object = {}, headers = {}, key: string = secret): Promise<Response> => {
      const answer = await gateway.request(chatPath, { body: chatBody(fields), key, headers });
      const copy = answer.clone();
      await answer.text();
      return copy;
    };
    return { owner, project, projects, keyOf, secret, set, ask };
  }

  const statuses = async (ask: () => Promise<Response>, times: number): Promise<number[]> =>
    (await Promise.all(Array.from({ length: times }, ask))).map(({ status }) => status);

  it('return 429 beyond the minute, with limit, model and reset time', async () => {
    const { set, ask, keyOf } = await openProject();
    await set({ max_requests_per_1_minute: 2 });
    const first = await ask();
    expect([first.status, first.headers.get('x-ratelimit-remaining-requests')]).toEqual([200, '1']);
    const other = await keyOf({});
    expect((await ask({}, {}, other.secret)).headers.get('x-ratelimit-limit-requests')).toBe('2');
    const refused = await ask();
    const wait = Number(refused.headers.get('retry-after'));
    expect([wait > 0, wait <= 60]).toEqual([true, true]);
    expect(refused.headers.get('x-ratelimit-remaining-requests')).toBe('0');
    expect(refused.headers.get('x-should-retry')).toBeNull();
    const { error }: Body = await refused.json();
    expect([refused.status, error.code]).toEqual([429, 'rate_limit_exceeded']);
    expect(error.message).toBe(
      'This project has used up its 2 requests per minute for the model "chat" (max_requests_per_1_minute).',
    );
  });

  it('reject exactly the excess of parallel requests', async () => {
    const { set, ask } = await openProject();
    await set({ max_requests_per_1_minute: 7 });
    const all = await statuses(() => ask(), 25);
    expect(all.filter((status) => status === 200)).toHaveLength(7);
    expect(all.filter((status) => status === 429)).toHaveLength(18);
  });

  it("reject by reserved tokens, and correct them by the engine's count", async () => {
    const { set, ask } = await openProject();
    await set({ max_tokens_per_1_minute: 5000 });
    const answer = await ask({ max_tokens: 4000, standin: { output_tokens: 5 } });
    const { usage }: Body = await answer.json();
    const remaining = await eventually(async () => {
      const forecast = await ask({ max_tokens: 1, standin: { output_tokens: 1 } });
      const left = Number(forecast.headers.get('x-ratelimit-remaining-tokens'));
      return left > 4000 ? left : null;
    });
    expect(remaining).toBeLessThan(5000 - usage.total_tokens);
    const long = await ask({ max_tokens: 6000, standin: { output_tokens: 5 } });
    expect(await errorOf(long)).toMatchObject({ status: 429, code: 'rate_limit_exceeded' });
  });

  it('return 429 beyond the daily limit until midnight UTC', async () => {
    const { set, ask } = await openProject();
    expect((await ask()).status).toBe(200);
    // The day's records in the ledger count.
    await set({ max_requests_per_1_day: 3 });
    const all = await statuses(() => ask(), 5);
    expect(all.toSorted((one, other) => one - other)).toEqual([200, 200, 429, 429, 429]);
    const refused = await ask();
    const midnight = 86_400 - ((Date.now() / 1000) % 86_400);
    expect(Math.abs(Number(refused.headers.get('retry-after')) - midnight)).toBeLessThan(120);
    expect(refused.headers.get('x-should-retry')).toBe('false');
    const { error }: Body = await refused.json();
    expect(error.message).toContain('(max_requests_per_1_day)');
  });

  it('apply beside those of the key: headers show the tighter one, errors name the longer one', async () => {
    const { set, ask, keyOf } = await openProject({ requests_per_minute: 3 });
    await set({ max_requests_per_1_minute: 100, max_requests_per_1_day: 4 });
    expect((await ask()).headers.get('x-ratelimit-limit-requests')).toBe('3');
    const other = await keyOf({ requests_per_minute: 50 });
    expect((await ask({}, {}, other.secret)).headers.get('x-ratelimit-limit-requests')).toBe('4');
    expect(await statuses(() => ask(), 2)).toEqual([200, 200]);
    const refused: Body = await (await ask()).json();
    expect(refused.error.message).toContain('max_requests_per_1_day');
    await set({ max_requests_per_1_day: null });
    const byKey: Body = await (await ask()).json();
    expect(byKey.error.message).toContain('requests_per_minute)');
    expect((await ask({}, {}, other.secret)).status).toBe(200);
  });

  it('do not apply to other models, other projects or dry runs', async () => {
    const { set, ask, owner } = await openProject();
    await set({ max_requests_per_1_minute: 1 }, 'gone');
    expect(await statuses(() => ask(), 3)).toEqual([200, 200, 200]);
    await set({ max_requests_per_1_minute: 1 });
    const dry = { 'x-headgate-dry-run': 'true' };
    for (let time = 0; time < 3; time += 1) {
      expect(await (await ask({}, dry)).json()).toMatchObject({ admitted: true, refusal: null });
    }
    expect((await ask()).status).toBe(200);
    expect(await (await ask({}, dry)).json()).toMatchObject({ admitted: false, refusal: 'rate_limit_exceeded' });
    const made: Body = await (await gateway.request('/v1/keys', { key: owner, body: { name: 'elsewhere' } })).json();
    expect(await statuses(() => ask({}, {}, made.secret), 3)).toEqual([200, 200, 200]);
  });

  it('apply as soon as a change is answered', async () => {
    const { set, ask } = await openProject();
    for (const [limits, status] of [
      [{ max_requests_per_1_minute: 1 }, 200],
      [{}, 429],
      [{ max_requests_per_1_minute: 2 }, 200],
      [{ max_tokens_per_1_minute: 1_000_000 }, 429],
      [{ max_requests_per_1_minute: null }, 200],
      [{ max_requests_per_1_day: 1 }, 429],
      [{ max_requests_per_1_day: null, max_tokens_per_1_minute: null }, 200],
    ] as const) {
      await set(limits);
      expect((await ask()).status).toBe(status);
    }
  });

  it('count a request for the fallback model that answers it', async () => {
    const { set, ask } = await openProject();
    await set({ max_requests_per_1_minute: 2, max_requests_per_1_day: 2 });
    await set({ max_requests_per_1_minute: 1 }, 'gone');
    for (let time = 0; time < 2; time += 1) {
      const answer = await ask({ model: 'gone' }, allowsFallback);
      expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'chat']);
    }
    expect((await ask()).status).toBe(429);
    // The limit of the fallback is used up: the refusal of the model that was asked for stands, and counts for that one.
    const refused = await ask({ model: 'gone' }, allowsFallback);
    expect([refused.status, refused.headers.get('x-headgate-fallback')]).toEqual([502, null]);
    expect((await ask({ model: 'gone' }, allowsFallback)).status).toBe(429);
  });

  it('count a request that no model answers for the model it asked for', async () => {
    const { set, ask } = await openProject();
    await set({ max_requests_per_1_minute: 1 }, 'hopeless');
    await set({ max_requests_per_1_minute: 1 }, 'gone');
    expect((await ask({ model: 'hopeless' }, allowsFallback)).status).toBe(502);
    expect((await ask({ model: 'hopeless' }, allowsFallback)).status).toBe(429);
    expect((await ask({ model: 'gone' })).status).toBe(502);
    expect((await ask({ model: 'gone' })).status).toBe(429);
  });

  it('restore the count of the day after a restart, and after Redis lost all data', async () => {
    const { set, ask, secret } = await openProject();
    await set({ max_requests_per_1_day: 3 });
    expect(await statuses(() => ask(), 2)).toEqual([200, 200]);
    await gateway.stop();
    await redis?.flush();
    gateway = await startGateway({ enginesDir, ...shared(), databaseUrl: database.url, keepLimits: true });
    const again = async (): Promise<number> => {
      const answer = await gateway.request(chatPath, { body: chatBody({}), key: secret });
      await answer.text();
      return answer.status;
    };
    expect([await again(), await again()]).toEqual([200, 429]);
  });
});
