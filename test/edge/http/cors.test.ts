import { describe, expect, it } from 'vitest';
import { standinFile, useInference } from '#test/inference/inference-gateway.ts';

const [app, stranger] = ['https://app.example.org', 'https://stranger.example'];
const engines = { chat: standinFile('chat') };
const closed = useInference(() => ({ engines }));
const named = useInference(() => ({ engines, env: { HEADGATE_CORS_ORIGINS: `${app}, http://localhost:5173` } }));
const any = useInference(() => ({ engines, env: { HEADGATE_CORS_ORIGINS: '*' } }));

const asksFor = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization,x-own' };

/** Sends the preflight of a browser for a request with a key. */
const preflight = (bench: typeof named, origin: string, path = '/v1/chat/completions'): Promise<Response> =>
  fetch(new URL(path, bench.gateway.url), { method: 'OPTIONS', headers: { origin, ...asksFor } });

const corsHeaders = ({ headers }: Response): string[] =>
  [...headers.keys()].filter((name) => name.startsWith('access-control-'));

describe('a page of another origin', () => {
  it('gets no CORS headers when no origin is configured', async () => {
    const asked = await preflight(closed, app);
    expect([asked.status, corsHeaders(asked), asked.headers.get('vary')]).toEqual([405, [], null]);
    const read = await closed.gateway.request('/v1/models', { headers: { origin: app } });
    expect([read.status, corsHeaders(read)]).toEqual([200, []]);
  });

  it.each([stranger, 'null', `${app}.evil.example`, 'http://app.example.org', `${app}:8443`])(
    'gets no CORS headers when its origin is not configured: %s',
    async (origin) => {
      const asked = await preflight(named, origin);
      expect([asked.status, corsHeaders(asked)]).toEqual([405, []]);
      const read = await named.gateway.request('/v1/models', { headers: { origin } });
      expect([corsHeaders(read), read.headers.get('vary')]).toEqual([[], 'Origin']);
    },
  );

  it.each(['/', '/sign-in', '/portal', '/docs', '/health/live', '/v1x'])(
    'gets no CORS headers for %s',
    async (path) => {
      const asked = await preflight(any, app, path);
      expect(corsHeaders(asked)).toEqual([]);
      const read = await fetch(new URL(path, any.gateway.url), { headers: { origin: app }, redirect: 'manual' });
      expect(corsHeaders(read)).toEqual([]);
    },
  );

  it('may send every request with every header after a preflight, without a key', async () => {
    for (const path of ['/v1/chat/completions', '/v1/models', '/api/v1/users', '/v1/clusters', '/v1/nothing']) {
      const asked = await preflight(named, app, path);
      expect([asked.status, await asked.text()]).toEqual([204, '']);
      expect(Object.fromEntries(asked.headers)).toMatchObject({
        'access-control-allow-origin': app,
        'access-control-allow-headers': 'authorization,x-own',
        'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
        'access-control-max-age': '7200',
        vary: 'Origin, Access-Control-Request-Headers',
      });
      // Cookies of the portal are nothing that another page may use.
      expect(asked.headers.has('access-control-allow-credentials')).toBe(false);
    }
  });

  it('can read answers, errors and streams', async () => {
    const { key } = named.gateway;
    const headers = { origin: app };
    const answers = [
      await named.gateway.request('/v1/models', { headers }),
      await named.chat({}, { key, headers }),
      await named.chat({ stream: true }, { key, headers }),
      await named.chat({ temperature: 'x' }, { key, headers }),
      await named.chat({}, { key: 'wrong', headers }),
      await named.gateway.request('/v1/clusters', { headers }),
      await named.gateway.request('/v1/nothing', { headers }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 400, 401, 200, 404]);
    for (const answer of answers) {
      expect(answer.headers.get('access-control-allow-origin')).toBe(app);
      expect(answer.headers.get('access-control-expose-headers')).toBe('*');
      expect(answer.headers.get('vary')).toBe('Origin');
      await answer.text();
    }
  });

  it('is always allowed with the setting "*", and answers then do not vary by origin', async () => {
    const answer = await any.gateway.request('/v1/models', { headers: { origin: stranger } });
    expect([answer.headers.get('access-control-allow-origin'), answer.headers.get('vary')]).toEqual(['*', null]);
    expect((await preflight(any, 'null')).status).toBe(204);
  });
});
