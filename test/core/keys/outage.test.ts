import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDatabaseUnavailable } from '#base/database/connect-database.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { startApi, type TestApi } from '#test/api/test-api.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

/** A line to PostgreSQL that the test can cut. */
interface Line {
  readonly url: string;
  cut(): void;
  mend(): Promise<void>;
  close(): Promise<void>;
}

async function createLine(databaseUrl: string): Promise<Line> {
  const target = new URL(databaseUrl);
  const sockets = new Set<Socket>();
  const open = (port: number): Promise<Server> =>
    new Promise((resolve) => {
      const server = createServer((near) => {
        const far = connect(Number(target.port), target.hostname);
        for (const [from, to] of [
          [near, far],
          [far, near],
        ] as const) {
          sockets.add(from);
          from.on('error', () => to.destroy());
          from.on('close', () => to.destroy());
          from.pipe(to);
        }
      });
      server.listen({ host: '127.0.0.1', port }, () => resolve(server));
    });
  let server = await open(0);
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const url = new URL(databaseUrl);
  url.host = `127.0.0.1:${port}`;
  const cut = (): void => {
    server.close();
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  };
  return {
    url: url.href,
    cut,
    async mend() {
      server = await open(port);
    },
    async close() {
      cut();
    },
  };
}

describe('without PostgreSQL', () => {
  let [database, line, api]: [TestDatabase | null, Line | null, TestApi | null] = [null, null, null];
  const parts = (): { line: Line; api: TestApi } => {
    if (line === null || api === null) throw new Error('not started');
    return { line, api };
  };

  beforeAll(async () => {
    database = await createTestDatabase();
    line = await createLine(database.url);
    api = await startApi({ databaseUrl: line.url });
  });

  afterAll(async () => {
    await api?.stop();
    await line?.close();
    await database?.drop();
  });

  it('accepts a known key for five minutes; then and for unknown keys returns 503, for mistyped ones 401', async () => {
    const { line, api } = parts();
    const { key } = await api.organization();
    const { body: known } = await api.ask('/v1/keys', { key, body: { scope: 'management', expiry: '7d' } });
    const { body: unknown } = await api.ask('/v1/keys', { key, body: { scope: 'management' } });
    expect((await api.ask('/v1/keys', { key: known.secret })).status).toBe(200);
    line.cut();
    for (let minute = 0; minute <= 5; minute += 1) {
      // Looked up again behind the answer, in vain.
      expect(api.keys.verify(known.secret)).toMatchObject({ name: 'API key' });
      const answer = await api.ask('/v1/keys', { key: known.secret });
      expect([answer.status, answer.body.error.code, answer.body.error.type]).toEqual([
        503,
        'database_unavailable',
        'server_error',
      ]);
      api.turnClock(60_000);
    }
    // The first look-up in vain was at most a minute after the cut.
    api.turnClock(60_000);
    for (const { secret } of [known, unknown]) {
      const refused = await api.ask('/v1/keys', { key: secret });
      expect([refused.status, refused.body.error.code]).toEqual([503, 'database_unavailable']);
      expect(refused.headers.get('retry-after')).toBe('1');
      expect(refused.body.error.message).not.toMatch(/ECONN|CONNECT|127\.0\.0\.1|select/);
    }
    expect(() => api.keys.verify(known.secret)).toThrow('The database is unreachable');
    const projects = await api.ask('/v1/projects', { key: known.secret });
    expect([projects.status, projects.body.error.code]).toEqual([503, 'UNAVAILABLE']);
    expect((await api.ask('/v1/keys', { key: `${known.secret.slice(0, -1)}!` })).status).toBe(401);
    await expect(api.keys.flush()).rejects.toSatisfy(isDatabaseUnavailable);

    await line.mend();
    // The driver waits between attempts, the longer the more of them failed.
    await expect.poll(async () => (await api.ask('/v1/keys', { key: unknown.secret })).status).toBe(200);
    expect((await api.ask('/v1/keys', { key: known.secret })).status).toBe(200);
    await api.keys.flush();
    api.turnClock(7 * 86_400_000);
    await expect.poll(() => api.keys.verify(known.secret)).toBeNull();
    const { body } = await api.ask(`/v1/keys/${known.id}`, { key });
    expect(body.last_used_at).toBeGreaterThanOrEqual(known.created_at);
  });

  it('returns 403 for a suspended organization, which can be activated again afterwards', async () => {
    const { line, api } = parts();
    const { id, key } = await api.organization();
    expect((await api.ask('/v1/wallet', { key })).status).toBe(200);
    const set = (status: string) => api.ask(`/v1/organizations/${id}`, { method: 'PATCH', body: { status } });
    expect((await set('suspended')).status).toBe(200);
    line.cut();
    for (let minute = 0; minute < 4; minute += 1) {
      const { status, body } = await api.ask('/v1/wallet', { key });
      expect([status, body.error.code]).toEqual([403, 'organization_suspended']);
      api.turnClock(60_000);
    }
    await line.mend();
    await expect.poll(async () => (await set('active')).status).toBe(200);
    expect((await api.ask('/v1/wallet', { key })).status).toBe(200);
  });
});

describe('two gateways', () => {
  let api: TestApi | null = null;

  beforeAll(async () => {
    api = await startApi();
  });

  afterAll(() => api?.stop());

  it('reject a key that the other one revoked after 30 seconds and one use', async () => {
    if (api === null) throw new Error('not started');
    const { key } = await api.organization();
    const { body } = await api.ask('/v1/keys', { key, body: {} });
    const other = api.secondRooms();
    const ref = await other.keys.verify(body.secret);
    expect(await api.keys.verify(body.secret)).not.toBeNull();
    await other.keys.revoke({ organizationId: ref?.organizationId ?? '', keyId: ref?.id ?? '' }, systemAuthor);
    expect(other.keys.verify(body.secret)).toBeNull();
    api.turnClock(30_000);
    const { keys } = api;
    await expect.poll(() => keys.verify(body.secret)).toBeNull();
  });
});
