import { afterAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import {
  errorOf,
  eventually,
  externalFile,
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

const secrets = {
  engineKey: 'engine-key-that-nobody-may-see',
  hidden: 'value-of-a-variable-that-an-engine-gets',
  prompt: 'the quick brown prompt that nobody may see',
  answer: 'the lazy answer that nobody may see',
  idempotency: 'idempotency-key-that-nobody-may-see',
  wrongKey: 'sk-hg-wrong-key-that-nobody-may-see-0123456789',
  password: 'database-password-that-nobody-may-see',
};

/** With a password that is asked for nowhere and shown nowhere. */
function withPassword(url: string): string {
  const parsed = new URL(url);
  if (parsed.password === '') parsed.password = secrets.password;
  else secrets.password = parsed.password;
  return parsed.href;
}

const bench = useInference(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  return {
    engines: {
      chat: standinFile('chat'),
      broken: standinFile('broken', { flags: ['--fail-start', 'oom'] }),
      gone: externalFile('gone', 'http://127.0.0.1:9', { lines: ['api_key_env: ENGINE_KEY'] }),
    },
    databaseUrl: withPassword(proxy.url),
    env: { ENGINE_KEY: secrets.engineKey, HEADGATE_SETTLE_SECONDS: '1', LOG_LEVEL: 'debug' },
  };
});

/** Log lines of a request, once there are any. */
function linesOf(requestId: string): Promise<Body[]> {
  return eventually(() => {
    const lines = bench.gateway.logLines.map((line): Body => JSON.parse(line));
    const found = lines.filter((line) => line.requestId === requestId && /^(?:api )?request/.test(line.msg));
    return Promise.resolve(found.length > 0 && found);
  });
}

const idOf = (answer: Response): string => answer.headers.get('x-request-id') ?? '';

describe('the log of a whole run at the most verbose level', () => {
  it('contains no key, password, prompt or answer', async () => {
    const { gateway } = bench;
    const messages = [{ role: 'user', content: secrets.prompt }];
    const standin = { text: secrets.answer };
    for (const stream of [true, false]) {
      const answer = await bench.chat({ stream, messages, standin, max_tokens: 64 });
      expect(await answer.text()).toContain('lazy');
    }
    const made: Body = await (
      await gateway.request('/v1/keys', { body: { name: 'made', scope: 'inference', store_requests: true } })
    ).json();
    const kept = await bench.chat(
      { messages, standin },
      { key: made.secret, headers: { 'idempotency-key': secrets.idempotency } },
    );
    await kept.text();
    expect((await bench.chat({ messages }, { key: secrets.wrongKey })).status).toBe(401);
    expect(
      (await errorOf(await bench.chat({ messages, standin: { status: 500, status_message: secrets.answer } }))).status,
    ).toBe(502);
    expect((await bench.chat({ model: 'broken', messages })).status).toBe(503);
    expect((await bench.chat({ model: 'gone', messages })).status).toBeGreaterThanOrEqual(502);
    expect((await bench.chat({ messages: secrets.prompt, model: secrets.prompt })).status).toBe(400);
    // Errors of the database's driver carry statements and their values.
    proxy?.cut();
    const refused = await bench.chat(
      { messages },
      { key: made.secret, headers: { 'idempotency-key': `${secrets.idempotency}-2` } },
    );
    expect(refused.status).toBeGreaterThanOrEqual(500);
    await gateway.request('/v1/keys', { body: { name: secrets.prompt, scope: 'inference' } });
    proxy?.restore();
    await eventually(async () => (await bench.chat({ messages })).status === 200);
    await gateway.request(`/v1/keys/${made.id}`, { method: 'DELETE' });
    const log = bench.gateway.logLines.join('');
    // It has seen all of it: successes, rejections, and why the database could not be asked.
    for (const said of ['"status":200', '"code":"model_not_found"', 'Failed query']) expect(log).toContain(said);
    const all = { ...secrets, first: gateway.key, made: made.secret, secretPart: made.secret.slice(-20) };
    for (const [name, secret] of Object.entries(all)) expect([name, log.includes(secret)]).toEqual([name, false]);
    expect(log).not.toMatch(/bearer/i);
  });
});

describe('a request log line', () => {
  it('is one per request and has all fields', async () => {
    const headers = { 'x-client-request-id': 'mine-1' };
    const answer = await bench.chat({ stream: true, standin: { output_tokens: 3 } }, { headers });
    await answer.text();
    const record = await bench.recordOf(answer);
    const lines = await linesOf(idOf(answer));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({
      level: 30,
      msg: 'request',
      clientRequestId: 'mine-1',
      route: '/v1/chat/completions',
      model: 'chat',
      keyId: record.key_id,
      organizationId: expect.stringMatching(/^org_[0-9a-f]{32}$/),
      projectId: expect.stringMatching(/^proj_[0-9a-f]{32}$/),
      status: 200,
      code: null,
      outcome: 'completed',
      stream: true,
      inputTokens: record.input_tokens,
      outputTokens: 3,
      costUsd: record.cost,
      cache: 'off',
      cold: expect.any(Boolean),
      queuedMs: expect.any(Number),
      firstByteMs: expect.any(Number),
      totalMs: expect.any(Number),
      addedMs: expect.any(Number),
      replicaId: expect.any(String),
      retries: 0,
      abortedByClient: false,
    });
  });

  it('omits an unknown model name when the request is rejected', async () => {
    const answer = await bench.chat({ model: 'made-up' });
    const lines = await linesOf(idOf(answer));
    expect(lines).toHaveLength(1);
    const refused = { status: 400, code: 'model_not_found', param: 'model', reason: null };
    expect(lines[0]).toMatchObject({ level: 30, ...refused, model: null, addedMs: null });
  });

  it('names the limit that rejected the request', async () => {
    const body = { name: 'limited', scope: 'inference', requests_per_minute: 1 };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body })).json();
    await (await bench.chat({}, { key: made.secret })).text();
    const refused = await bench.chat({}, { key: made.secret });
    expect(await linesOf(idOf(refused))).toMatchObject([
      { status: 429, code: 'rate_limit_exceeded', param: null, reason: 'requests_per_minute' },
    ]);
  });

  it('has the reason why a key was rejected, while all clients get the same text', async () => {
    const create = async (fields: object): Promise<Body> =>
      (await bench.gateway.request('/v1/keys', { body: { name: 'rejected', scope: 'inference', ...fields } })).json();
    // Rounded down, one second more might be over before the key is created.
    const [revoked, expired] = [await create({}), await create({ expires_at: Math.floor(Date.now() / 1000) + 3 })];
    expect((await bench.gateway.request(`/v1/keys/${revoked.id}`, { method: 'DELETE' })).ok).toBe(true);
    const unknown = `${revoked.secret.slice(0, -4)}AAAA`;
    await expect.poll(async () => (await bench.chat({}, { key: expired.secret })).status).toBe(401);
    const seen = [];
    for (const key of [unknown, revoked.secret, expired.secret]) {
      const answer = await bench.chat({}, { key });
      const [line] = await linesOf(idOf(answer));
      seen.push({
        reason: line?.reason,
        status: answer.status,
        message: ((await answer.json()) as Body).error.message,
      });
    }
    expect(seen.map(({ reason }) => reason)).toEqual(['key_unknown', 'key_revoked', 'key_expired']);
    expect(new Set(seen.map(({ status, message }) => `${status} ${message}`)).size).toBe(1);
  });

  it.for([
    ['key_revoked', (id: string) => bench.gateway.request(`/v1/keys/${id}`, { method: 'DELETE' })],
    [
      'former_secret_expired',
      (id: string) => bench.gateway.request(`/v1/keys/${id}/rotate`, { body: { grace_seconds: 0 } }),
    ],
  ] as const)(
    'has the same reason %s for a request that runs at that time as for later requests',
    async ([reason, end]) => {
      const body = { name: 'ended', scope: 'inference' };
      const made: Body = await (await bench.gateway.request('/v1/keys', { body })).json();
      const standin = { output_tokens: 8000, tpot_ms: 5 };
      const running = await bench.chat({ stream: true, max_tokens: 8000, standin }, { key: made.secret });
      expect((await end(made.id)).ok).toBe(true);
      await running.text();
      expect(await linesOf(idOf(running))).toMatchObject([{ outcome: 'ended', code: 'unauthorized', reason }]);
      const later = await bench.chat({}, { key: made.secret });
      expect(await linesOf(idOf(later))).toMatchObject([{ status: 401, code: 'unauthorized', reason }]);
    },
  );

  it('has the reason organization_closed when the organization of a running request is closed', async () => {
    const { id, key } = await openOrganization(bench.gateway, '5');
    const standin = { output_tokens: 8000, tpot_ms: 5 };
    const running = await bench.chat({ stream: true, max_tokens: 8000, standin }, { key });
    expect((await bench.gateway.request(`/v1/organizations/${id}`, { method: 'DELETE' })).ok).toBe(true);
    await running.text();
    const [line] = await linesOf(idOf(running));
    expect(line).toMatchObject({ outcome: 'ended', code: 'unauthorized', reason: 'organization_closed' });
  });

  it('has the name of a rejected field, cut and escaped, and not its value', async () => {
    const name = `fi\neld"${'/x'.repeat(150)}`;
    const twice = `{"model":"chat","messages":[],${JSON.stringify(name)}:"the value","${'x'.repeat(10)}":1,${JSON.stringify(name)}:2}`;
    const answer = await fetch(`${bench.gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${bench.gateway.key}`, 'content-type': 'application/json' },
      body: twice,
    });
    expect(answer.status).toBe(400);
    const [line] = await linesOf(idOf(answer));
    expect(line?.param).toMatch(/^fi%0Aeld%22[/x]+…?$/);
    expect(line?.param.length).toBeLessThan(140);
    expect(JSON.stringify(line)).not.toContain('the value');
  });

  it('shows that the client left', async () => {
    const leaving = new AbortController();
    const answer = await bench.chat({ stream: true, standin: { tpot_ms: 200 } }, { signal: leaving.signal });
    leaving.abort();
    await answer.text().catch(() => undefined);
    expect(await linesOf(idOf(answer))).toMatchObject([{ outcome: 'aborted', abortedByClient: true }]);
  });

  it('has the level warn when the engine failed', async () => {
    const answer = await bench.chat({ standin: { status: 500 } });
    expect(await linesOf(idOf(answer))).toMatchObject([{ level: 40, status: 502, code: 'upstream_error' }]);
  });

  it('has the route instead of the path for other routes', async () => {
    const answer = await bench.gateway.request('/v1/keys/key_made_up');
    const lines = await linesOf(idOf(answer));
    expect(lines).toMatchObject([{ route: '/v1/keys/:id', method: 'GET', status: 404, code: 'not_found' }]);
    const nowhere = await bench.gateway.request('/no/where');
    const line = { route: 'other', path: '/no/where', status: 404, code: 'not_found' };
    expect(await linesOf(idOf(nowhere))).toMatchObject([line]);
  });

  it("has the level debug for a page's static file", async () => {
    const [, style = ''] =
      /href="([^"]*\.css)"/.exec(await (await fetch(bench.gateway.url, { headers: { accept: 'text/html' } })).text()) ??
      [];
    expect(await linesOf(idOf(await fetch(new URL(style, bench.gateway.url))))).toMatchObject([
      { level: 20, status: 200 },
    ]);
    const gone = await fetch(new URL('/portal/assets/none/none.css', bench.gateway.url));
    expect(await linesOf(idOf(gone))).toMatchObject([{ level: 30, status: 404 }]);
  });

  it('has the path of an unknown address, cut and escaped, without query and keys', async () => {
    const key = `sk-${'a'.repeat(40)}`;
    for (const [path, shown] of [
      ['/v1/chat/completion?api_key=secret-in-a-query', '/v1/chat/completion'],
      [`/v1/keys/${key}/no/where`, '/v1/keys/***/no/where'],
      [`/v1/x%2F${key}`, '/v1/x/***'],
      [`/v1/keys,acme-${key.slice(3)}`, '/v1/***'],
      ['/long'.repeat(200), '/long'.repeat(200).slice(0, 128)],
      ['/caf%C3%A9/%0A%1B[2J', '/caf%C3%A9/%0A%1B'],
    ] as const) {
      const lines = await linesOf(idOf(await bench.gateway.request(path)));
      expect(lines[0]).toMatchObject({ route: 'other', status: 404 });
      expect(lines[0]?.path.startsWith(shown), lines[0]?.path).toBe(true);
      expect(lines[0]?.path.length).toBeLessThanOrEqual(130);
      expect(JSON.stringify(lines)).not.toMatch(/secret-in-a-query|a{40}/);
    }
  });
});

describe('the log', () => {
  it('removes secrets anywhere, and values and passwords from errors', () => {
    const lines: string[] = [];
    const log = createLog('info', { write: (line: string) => void lines.push(line) });
    const leaf = { password: 'p-1', kept: 1, apiKey: 'p-2' };
    log.info({ ...leaf, one: { ...leaf, two: [leaf] }, headers: { authorization: 'p-3' } }, 'nested');
    const cause = Object.assign(new Error('connect postgres://user:p-4@host/db'), { command: { args: ['p-5'] } });
    const error = Object.assign(new Error('Failed query: insert into t values ($1)\nparams: p-6', { cause }), {
      code: '23505',
      params: ['p-7'],
    });
    log.error({ err: error }, 'failed');
    expect(lines.join('')).not.toMatch(/p-\d/);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ kept: 1, one: { kept: 1, two: [{ kept: 1 }] }, headers: {} });
    expect(JSON.parse(lines[1] ?? '').err).toMatchObject({
      type: 'Error',
      message: 'Failed query: insert into t values ($1)',
      code: '23505',
      stack: expect.stringContaining('    at '),
      cause: { message: 'connect postgres://user:***@host/db' },
    });
  });
});
