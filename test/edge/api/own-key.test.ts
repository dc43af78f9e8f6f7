import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { useApi } from '#test/api/test-api.ts';
import { type Body, errorOf, eventually } from '#test/inference/inference-gateway.ts';
import { createTestDatabase } from '#test/database.ts';
import { startGateway } from '#test/gateway.ts';
import { enoughOfTheDay } from '#test/one-day.ts';
import {
  type LimitedKey,
  makeKey,
  openStore,
  type StoreBench,
  storeNames,
} from '../../core/admission/limited-gateway.ts';

beforeEach(enoughOfTheDay);

const dayMs = 86_400_000;
const startOfDay = (ms: number): number => ms - (ms % dayMs);

describe.each(storeNames)('GET /v1/key, with limits counted in %s', (name) => {
  let bench: StoreBench;
  beforeAll(async () => {
    bench = await openStore(name);
    return () => bench.close();
  });

  const own = async (key: string, headers: Readonly<Record<string, string>> = {}): Promise<Body> => {
    const answer = await bench.gateway.request('/v1/key', { key, headers });
    expect(answer.status).toBe(200);
    const { data }: Body = await answer.json();
    return data;
  };
  const chat = async (key: LimitedKey): Promise<Body> => {
    const answer = await key.chat();
    expect(answer.status).toBe(200);
    return answer.json();
  };
  const make = async (path: string, body: object, key: string): Promise<Body> => {
    const answer = await bench.gateway.request(path, { body, key });
    expect(answer.status).toBe(201);
    return answer.json();
  };

  it('returns what remains of each limit, and uses up nothing', async () => {
    const key = await bench.key({
      requests_per_minute: 10,
      max_concurrency: 3,
      tokens_per_minute: 5000,
      monthly_token_limit: 9000,
    });
    const { usage } = await chat(key);
    const expected = {
      requests_per_minute: { limit: 10, remaining: 9, resets_at: expect.any(Number) },
      max_concurrency: { limit: 3, remaining: 3, resets_at: null },
      tokens_per_minute: { limit: 5000, remaining: 5000 - usage.total_tokens, resets_at: expect.any(Number) },
      monthly_token_limit: { limit: 9000, remaining: 9000 - usage.total_tokens, resets_at: expect.any(Number) },
    };
    await expect.poll(async () => (await own(key.secret)).limits).toEqual(expected);
    const { limits } = await own(key.secret);
    expect(limits).toEqual(expected);
    expect(limits.requests_per_minute.resets_at * 1000).toBeGreaterThan(Date.now());
    const now = new Date();
    expect(limits.monthly_token_limit.resets_at).toBe(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1) / 1000);
  });

  it('returns when all tokens of a minute are left again after a request that used more', async () => {
    const key = await bench.key({ tokens_per_minute: 10 });
    expect((await key.chat({ max_tokens: 40, min_tokens: 40, ignore_eos: true })).status).toBe(200);
    // 40 output tokens and the prompt against 10 a minute: five windows and more must pass.
    const inFourMinutes = Date.now() / 1000 + 240;
    const reset = async (): Promise<number> => (await own(key.secret)).limits.tokens_per_minute.resets_at;
    await eventually(async () => (await reset()) > inFourMinutes);
  });

  it('counts running requests', async () => {
    const key = await bench.key({ max_concurrency: 2 });
    const answer = await key.chat({ stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } });
    const reader = answer.body?.getReader();
    await reader?.read();
    expect((await own(key.secret)).limits.max_concurrency).toEqual({ limit: 2, remaining: 1, resets_at: null });
    await reader?.cancel();
    await eventually(async () => (await own(key.secret)).limits.max_concurrency.remaining === 2);
  });

  it('answers while a limit or the wallet is used up, and null for limits that are not set', async () => {
    const full = await bench.key({ requests_per_minute: 1 });
    await chat(full);
    const { limits } = await own(full.secret);
    expect(limits).toEqual({
      requests_per_minute: { limit: 1, remaining: 0, resets_at: expect.any(Number) },
      max_concurrency: null,
      tokens_per_minute: null,
      monthly_token_limit: null,
    });
    const poor = await bench.organization('0.000001');
    const key = await bench.key({ requests_per_minute: 7 }, poor.key);
    expect((await key.chat()).status).toBe(402);
    expect((await own(key.secret)).limits.requests_per_minute).toMatchObject({ limit: 7, remaining: 7 });
  });

  it('returns the spending of this key only, in total, today and in this month', async () => {
    const [key, other] = [await bench.key(), await bench.key()];
    expect(await own(key.secret)).toMatchObject({ usage: 0, usage_daily: 0, usage_monthly: 0 });
    const answer = await key.chat();
    const id = answer.headers.get('x-request-id') ?? '';
    await answer.text();
    await chat(other);
    const record: Body = await eventually(async () => {
      const found = await bench.gateway.request(`/v1/usage/requests/${id}`, { key: key.secret });
      return found.status === 200 ? found.json() : null;
    });
    const usage = Number(record.cost);
    expect(usage).toBeGreaterThan(0);
    expect(await own(key.secret)).toMatchObject({ usage, usage_daily: usage, usage_monthly: usage });
  });

  it('returns the budgets that requests with the key spend from, and the one with the least left as its limit', async () => {
    const owner = await bench.organization('10');
    const [key, other] = [await bench.key({}, owner.key), await bench.key({}, owner.key)];
    const { project_id: projectId } = await own(key.secret);
    const ofKey = (id: string) => ({ scope: { type: 'api_key', id } });
    await make('/v1/budgets', { ...ofKey(key.id), period: 'monthly', amount: '5' }, owner.key);
    await make('/v1/budgets', { ...ofKey(key.id), period: 'daily', amount: '2.5' }, owner.key);
    await make('/v1/budgets', { ...ofKey(other.id), period: 'daily', amount: '1' }, owner.key);
    await make('/v1/budgets', { scope: { type: 'project', id: projectId }, period: 'daily', amount: '3' }, owner.key);
    await make('/v1/budgets', { scope: { type: 'user', id: null }, period: 'daily', amount: '4' }, owner.key);
    await chat(key);
    const found = await own(key.secret);
    expect(found.budgets.map(({ scope, amount }: Body) => [scope.id, amount])).toEqual([
      [projectId, '3'],
      [key.id, '2.5'],
      [key.id, '5'],
    ]);
    const [, daily] = found.budgets;
    expect(found).toMatchObject({ limit: 2.5, limit_reset: 'daily', limit_remaining: Number(daily.remaining) });
    expect(found.limit_remaining).toBeLessThan(2.5);
    expect(daily).toMatchObject({ object: 'budget', held: '0', resets_at: (startOfDay(Date.now()) + dayMs) / 1000 });
    expect(Number(daily.spent)).toBe(found.usage);
    const without = await own(other.secret);
    expect(without.budgets.map(({ scope }: Body) => scope.id)).toEqual([projectId, other.id]);
    // An end user's budget does not apply to the key: it has one limit, without its neighbor's spending.
    expect(without).toMatchObject({ limit: 1, limit_remaining: 1, usage: 0 });
  });
});

describe('GET /v1/key', () => {
  let bench: StoreBench;
  beforeAll(async () => {
    bench = await openStore('memory');
    return () => bench.close();
  });

  const ask = (key: string | null, path = '/v1/key', headers: Readonly<Record<string, string>> = {}) =>
    bench.gateway.request(path, { key, headers });

  it('describes an inference key and a management key, without a secret', async () => {
    const expiresAt = Math.floor(Date.now() / 1000) + 3600;
    const body = { name: 'nightly', models: ['chat'], expires_at: expiresAt };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body })).json();
    const text = await (await ask(made.secret)).text();
    expect(text).not.toContain(made.secret);
    expect(JSON.parse(text)).toEqual({
      data: {
        id: made.id,
        name: 'nightly',
        label: `${made.prefix}…${made.last4}`,
        scope: 'inference',
        is_management_key: false,
        project_id: made.project_id,
        user_id: made.user_id,
        service_account_id: null,
        models: ['chat'],
        limits: {
          requests_per_minute: { limit: 60, remaining: 60, resets_at: expect.any(Number) },
          max_concurrency: { limit: 10, remaining: 10, resets_at: null },
          tokens_per_minute: null,
          monthly_token_limit: null,
        },
        limit: null,
        limit_remaining: null,
        limit_reset: null,
        usage: 0,
        usage_daily: 0,
        usage_monthly: 0,
        budgets: [],
        created_at: made.created_at,
        expires_at: expiresAt,
      },
    });
    const { data }: Body = await (await ask(bench.gateway.key)).json();
    expect(data).toMatchObject({ scope: 'management', is_management_key: true, models: null, expires_at: null });
    expect(bench.gateway.key.startsWith(data.label.split('…')[0])).toBe(true);
  });

  it('returns the models that both the key and its organization allow', async () => {
    const owner = await bench.organization('1');
    const key = await bench.key({}, owner.key);
    const models = { method: 'PATCH', body: { models: ['chat'] } };
    expect((await bench.gateway.request(`/v1/organizations/${owner.id}`, models)).status).toBe(200);
    const { data }: Body = await (await ask(key.secret)).json();
    expect(data.models).toEqual(['chat']);
  });

  it('returns the earlier end of a former secret', async () => {
    const key = await bench.key();
    const rotate = { body: { grace_seconds: 3600 } };
    const now = Date.now() / 1000;
    const rotated: Body = await (await bench.gateway.request(`/v1/keys/${key.id}/rotate`, rotate)).json();
    const { data: former }: Body = await (await ask(key.secret)).json();
    expect(former.expires_at).toBe(rotated.former_secrets_end_at);
    expect(former.expires_at).toBeGreaterThan(now + 3500);
    const { data: current }: Body = await (await ask(rotated.secret)).json();
    expect(current).toMatchObject({ id: key.id, expires_at: null, label: `${rotated.prefix}…${rotated.last4}` });
    const expiresAt = Math.floor(now) + 600;
    const short: Body = await (await bench.gateway.request('/v1/keys', { body: { expires_at: expiresAt } })).json();
    expect((await bench.gateway.request(`/v1/keys/${short.id}/rotate`, rotate)).status).toBe(200);
    const { data: sooner }: Body = await (await ask(short.secret)).json();
    expect(sooner.expires_at).toBe(expiresAt);
  });

  it('calls a confined key no management key, since it may not manage', async () => {
    const body = { scope: 'management', confined: true };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body })).json();
    expect((await ask(made.secret, '/v1/keys')).status).toBe(403);
    const { data }: Body = await (await ask(made.secret)).json();
    expect(data).toMatchObject({ scope: 'management', is_management_key: false });
  });

  it('names the project that X-Project-ID names, with its budgets', async () => {
    const owner = await bench.organization('1');
    const project: Body = await (
      await bench.gateway.request('/v1/projects', { body: { name: 'second' }, key: owner.key })
    ).json();
    const body = { scope: { type: 'project', id: project.id }, period: 'daily', amount: '3', mode: 'soft' };
    await bench.gateway.request('/v1/budgets', { body, key: owner.key });
    const at = async (headers: Readonly<Record<string, string>>): Promise<Body> => {
      const { data }: Body = await (await ask(owner.key, '/v1/key', headers)).json();
      return data;
    };
    expect((await at({})).budgets).toEqual([]);
    const there = await at({ 'x-project-id': project.id });
    expect(there).toMatchObject({ project_id: project.id, limit: null });
    expect(there.budgets).toMatchObject([{ scope: { id: project.id }, mode: 'soft', remaining: '3' }]);
  });

  it('returns 401 without a key and for a revoked one, and 400 for another key in the query', async () => {
    for (const key of [null, 'sk-hg-000000000000-unknown']) {
      expect(await errorOf(await ask(key))).toMatchObject({ status: 401, code: 'unauthorized' });
    }
    const [key, other] = [await bench.key(), await bench.key()];
    const query = await errorOf(await ask(key.secret, `/v1/key?key_id=${other.id}`));
    expect(query).toMatchObject({ status: 400, param: 'key_id' });
    await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'DELETE' });
    expect(await errorOf(await ask(key.secret))).toMatchObject({ status: 401, code: 'unauthorized' });
  });

  it('knows the tokens of the month before the first request of a restarted gateway', async () => {
    const database = await createTestDatabase();
    const options = { databaseUrl: database.url, enginesDir: bench.enginesDir };
    const first = await startGateway(options);
    const key = await makeKey(first, { monthly_token_limit: 9000 }, first.key);
    const { usage }: Body = await (await key.chat()).json();
    await first.stop();
    const second = await startGateway({ ...options, keepLimits: true });
    const { data }: Body = await (await second.request('/v1/key', { key: key.secret })).json();
    expect(data.limits.monthly_token_limit).toMatchObject({ limit: 9000, remaining: 9000 - usage.total_tokens });
    await second.stop();
    await database.drop();
  });
});

describe('GET /v1/key', () => {
  const api = useApi();

  it('returns the limit of a key with more than a hundred budgets', async () => {
    const { key } = await api().organization();
    const { body: made } = await api().ask('/v1/keys', { key, body: { name: 'app' } });
    const scope = { type: 'api_key', id: made.id };
    const fields = { amount: '9', alert_percents: [] };
    await api().ask('/v1/budgets', { key, body: { ...fields, scope, period: 'total', amount: '0.5' } });
    await api().db.sql`
      insert into budgets (id, organization_id, scope_type, scope_id, period, mode, models, models_hash, amount,
        alert_percents, created_at, updated_at)
      select gen_random_uuid(), organization_id, scope_type, scope_id, period, mode, array[n::text], n::text, amount * 9,
        alert_percents, created_at, updated_at
      from budgets, generate_series(1, 300) n where scope_id = ${parseId('key', made.id)}`;
    const { data } = (await api().ask('/v1/key', { key: made.secret })).body;
    expect(data).toMatchObject({ limit: 0.5, limit_remaining: 0.5, limit_reset: 'total' });
    expect(data.budgets).toHaveLength(301);
  });
});
