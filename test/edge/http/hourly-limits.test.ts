import { describe, expect, it } from 'vitest';
import { signInVisitor } from '#test/portal/visitor.ts';
import { type Body, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_TRUSTED_PROXIES: '127.0.0.1,::1' },
}));

interface Hour {
  readonly status: number;
  readonly limit: number;
  readonly remaining: number;
  readonly reset: number;
  readonly retryAfter: string | null;
  readonly body: Body;
}

async function ask(path: string, key: string | null, address = '10.0.0.1', method = 'GET'): Promise<Hour> {
  const answer = await bench.gateway.request(path, { key, method, headers: { 'x-forwarded-for': address } });
  const header = (name: string): number => Number(answer.headers.get(`x-ratelimit-${name}`) ?? Number.NaN);
  const text = await answer.text();
  return {
    status: answer.status,
    limit: header('limit'),
    remaining: header('remaining'),
    reset: header('reset'),
    retryAfter: answer.headers.get('retry-after'),
    body: text === '' ? null : JSON.parse(text),
  };
}

async function makeKey(by: string, scope: string): Promise<string> {
  const made: Body = await (await bench.gateway.request('/v1/keys', { key: by, body: { name: scope, scope } })).json();
  return made.secret;
}

/** Fifty at once. */
function askOften(paths: readonly string[], key: string, method = 'GET'): Promise<Hour[]> {
  const path = (index: number): string => paths[index % paths.length] ?? '';
  return Promise.all(Array.from({ length: 50 }, (_, index) => ask(path(index), key, '10.0.1.1', method)));
}

describe('the hourly limit of the generic API', () => {
  it('returns 429 to an address without a key after 100 requests in an hour, on any path', async () => {
    const before = Math.floor(Date.now() / 1000);
    const paths = ['/v1/projects', '/api/v1/projects', '/api/v1/nothing', '/v1/projects/proj_1'];
    const seen: Hour[] = [];
    for (let count = 0; count < 100; count += 1) seen.push(await ask(paths[count % 4] ?? '', null));
    expect(seen.map(({ remaining }) => remaining)).toEqual(Array.from({ length: 100 }, (_, index) => 99 - index));
    expect(new Set(seen.map(({ status }) => status))).toEqual(new Set([401, 404]));
    for (const { limit, reset } of seen) {
      expect(limit).toBe(100);
      expect(Math.abs(reset - before - 3600)).toBeLessThan(60);
    }
    const refused = await ask('/v1/projects', null);
    expect(refused).toMatchObject({ status: 429, limit: 100, remaining: 0 });
    expect(refused.body).toEqual({ error: { code: 'RATE_LIMITED', message: expect.any(String), details: [] } });
    expect(Math.abs(Number(refused.retryAfter) - (refused.reset - Date.now() / 1000))).toBeLessThan(3);
    expect((await ask('/v1/projects', null, '10.0.0.2')).status).toBe(401);
    expect((await ask('/v1/projects', bench.gateway.key)).status).toBe(200);
    expect((await ask('/v1/models', null)).status).toBe(401);
  });

  it('returns 429 to a user after 1000 requests in an hour, over all keys and both paths, and to no other', async () => {
    const { key } = await openOrganization(bench.gateway, null);
    const second = await makeKey(key, 'management');
    const { key: stranger } = await openOrganization(bench.gateway, null);
    const left: number[] = [];
    for (let count = 0; count < 1000; count += 50) {
      const by = count % 100 === 0 ? key : second;
      const answers = await askOften(['/v1/projects?limit=1', '/api/v1/projects?limit=1'], by);
      expect(answers.every(({ status, limit }) => status === 200 && limit === 1000)).toBe(true);
      left.push(...answers.map(({ remaining }) => remaining));
    }
    expect(left.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 1000 }, (_, index) => index));
    for (const spent of [key, second, await makeKey(key, 'management')]) {
      const refused = await ask('/v1/projects', spent, '10.0.1.1');
      expect(refused).toMatchObject({ status: 429, limit: 1000, remaining: 0 });
      expect(refused.body.error.code).toBe('RATE_LIMITED');
      expect(Number(refused.retryAfter)).toBeGreaterThan(3000);
    }
    expect((await ask('/v1/models', key)).status).toBe(200);
    expect(await ask('/v1/projects', stranger, '10.0.1.1')).toMatchObject({ status: 200, remaining: 999 });
  });

  it("counts the requests of a user's pages, and shows the limit when it is used up", async () => {
    const { gateway } = bench;
    const visitor = await signInVisitor(gateway);
    const { remaining: before } = await ask('/v1/projects', gateway.key);
    // It lists projects.
    expect((await visitor.get('/portal/keys/new')).status).toBe(200);
    expect((await ask('/v1/projects', gateway.key)).remaining).toBe(before - 2);
    // A page that is left open, such as that of a run, asks for itself every two seconds.
    expect((await visitor.get('/portal/keys/new', { 'x-poll': '1' })).status).toBe(200);
    expect((await ask('/v1/projects', gateway.key)).remaining).toBe(before - 3);
    let last = before;
    while (last > 0)
      last = Math.min(...(await askOften(['/v1/projects?limit=1'], gateway.key)).map((hour) => hour.remaining));
    expect((await ask('/v1/projects', gateway.key)).status).toBe(429);
    const shown = await visitor.get('/portal/keys/new');
    expect([shown.status, shown.text.includes('name="project_id"')]).toEqual([200, true]);
  });

  it("counts requests outside a key's scope separately from the user's other keys", async () => {
    const { key } = await openOrganization(bench.gateway, null);
    const inference = await makeKey(key, 'inference');
    const seen: number[] = [];
    for (let count = 0; count < 1000; count += 50) {
      for (const { status, limit, remaining } of await askOften(['/v1/projects'], inference, 'POST')) {
        expect([status, limit]).toEqual([403, 1000]);
        seen.push(remaining);
      }
    }
    expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 1000 }, (_, index) => index));
    const refused = await ask('/v1/projects', inference, '10.0.1.1', 'POST');
    expect(refused).toMatchObject({ status: 429, limit: 1000, remaining: 0 });
    expect(Number(refused.retryAfter)).toBeGreaterThan(3000);
    expect(await ask('/v1/users/none', inference, '10.0.1.1', 'DELETE')).toMatchObject({ limit: 1000, remaining: 0 });
    expect(await ask('/v1/projects', key)).toMatchObject({ status: 200, limit: 1000, remaining: 999 });
    expect(await ask('/api/v1/nothing', inference)).toMatchObject({ status: 404, limit: 1000, remaining: 998 });
  });

  it('is shown on errors of every kind', async () => {
    const { key } = await openOrganization(bench.gateway, null);
    for (const [path, method, status] of [
      ['/v1/projects/proj_1', 'GET', 404],
      ['/v1/projects', 'PUT', 405],
      ['/v1/projects?limit=x', 'GET', 400],
      ['/v1/projects', 'POST', 415],
    ] as const) {
      const answer = await ask(path, key, '10.0.2.1', method);
      expect([path, answer.limit]).toEqual([path, 1000]);
      expect(answer.status === status || answer.status === 400, `${path} ${answer.status}`).toBe(true);
      expect(Number.isInteger(answer.reset)).toBe(true);
    }
  });
});
