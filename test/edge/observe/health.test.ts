import { createServer } from 'node:net';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { freePort } from '#test/free-port.ts';
import { startGateway, type TestGateway, type TestGatewayOptions } from '#test/gateway.ts';
import { startRedis } from '#test/redis.ts';
import {
  chatBody,
  chatPath,
  eventually,
  standinFile,
  useInference,
  writeEngines,
  type Body,
} from '#test/inference/inference-gateway.ts';

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
  return {
    engines: { chat: standinFile('chat') },
    databaseUrl: proxy.url,
    env: { HEADGATE_METRICS_PORT: '0', HEADGATE_AUTH_STALE_SECONDS: '2' },
  };
});

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  proxy?.restore();
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function start(options: TestGatewayOptions = {}): Promise<TestGateway> {
  const enginesDir = writeEngines({ chat: standinFile('chat') });
  cleanups.push(() => rmSync(enginesDir, { recursive: true, force: true }));
  return startGateway({ ...options, enginesDir });
}

async function ask(url: string | null, path: string): Promise<Body> {
  const answer = await fetch(new URL(path, url ?? ''));
  const body: Body = await answer.json();
  return { answered: answer.status, ...body };
}

/** Waits until a gateway says why it is not ready; null when it is. */
async function untilNotReady(url: string | null, notReady: readonly string[] | null): Promise<void> {
  const wanted = JSON.stringify(notReady ?? undefined);
  await eventually(async () => {
    // While it starts it may not listen yet.
    const answer: Body = await ask(url, '/readyz').catch(() => ({ not_ready: 'unreachable' }));
    return JSON.stringify(answer.not_ready) === wanted;
  });
}

describe('GET /readyz', () => {
  it('returns 503 when PostgreSQL is unavailable beyond the cache time, without details; /healthz stays 200', async () => {
    proxy?.cut();
    expect((await bench.gateway.request('/readyz', { key: null })).status).toBe(200);
    await untilNotReady(bench.gateway.url, ['database']);
    const answer = await bench.gateway.request('/readyz', { key: null });
    expect([answer.status, await answer.json()]).toEqual([503, { status: 'not_ready', not_ready: ['database'] }]);
    expect(await ask(bench.gateway.url, '/healthz')).toEqual({ answered: 200, status: 'ok' });
    expect((await bench.gateway.request('/healthz')).status).toBe(200);
    proxy?.restore();
    await untilNotReady(bench.gateway.url, null);
    expect((await bench.gateway.request('/readyz')).status).toBe(200);
  });

  it('stays 200 without Redis, since each gateway enforces its part of the limits', async () => {
    const redis = await startRedis();
    const gateway = await start({ redisUrl: redis.url, env: { HEADGATE_METRICS_PORT: '0' } });
    cleanups.push(() => gateway.stop());
    await untilNotReady(gateway.url, null);
    await redis.stop();
    const metrics = async (): Promise<string> => (await fetch(new URL('/metrics', gateway.metricsUrl ?? ''))).text();
    await eventually(async () => (await metrics()).includes('headgate_store_up{store="redis"} 0'));
    expect((await ask(gateway.url, '/readyz')).answered).toBe(200);
  });

  it('returns 503 until the start has ended, while other requests wait', async () => {
    const own = await createTestDatabase();
    cleanups.push(() => own.drop());

    const db = connectDb(own.url);
    cleanups.push(() => db.close());
    const held = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    // A start makes partitions under this lock.
    const holding = db.sql.begin(async (sql) => {
      await sql`select pg_advisory_xact_lock(hashtext('headgate usage partitions'))`;
      held.resolve();
      await release.promise;
    });
    await held.promise;
    const port = await freePort();
    const starting = start({ databaseUrl: own.url, env: { PORT: String(port) } });
    const url = `http://127.0.0.1:${port}`;
    await untilNotReady(url, ['starting', 'database', 'fleet']);
    expect(await ask(url, '/healthz')).toEqual({ answered: 200, status: 'ok' });
    let answered = false;
    const waiting = fetch(new URL('/v1/pricing', url)).then((answer) => {
      answered = true;
      return answer.status;
    });
    expect((await fetch(new URL('/readyz?because=of-a-query', url))).status).toBe(503);
    expect(answered).toBe(false);
    release.resolve();
    await holding;
    const gateway = await starting;
    cleanups.push(() => gateway.stop());
    expect(await waiting).toBe(200);
    await untilNotReady(url, null);
  });

  it('returns 503 while the gateway stops, on the metrics port until the end', async () => {
    const gateway = await start({ env: { HEADGATE_METRICS_PORT: '0' } });
    const body = chatBody({ stream: true, max_tokens: 400, standin: { tpot_ms: 10, output_tokens: 400 } });
    const answer = await gateway.request(chatPath, { body });
    const stopping = gateway.stop();
    await untilNotReady(gateway.metricsUrl, ['draining']);
    expect(await ask(gateway.metricsUrl, '/healthz')).toEqual({ answered: 200, status: 'ok' });
    expect(await answer.text()).toContain('[DONE]');
    await stopping;
    await expect(fetch(new URL('/readyz', gateway.metricsUrl ?? ''))).rejects.toThrow('fetch failed');
  });
});

describe('a health check', () => {
  it('needs no key, counts against no limit, and accepts only GET and HEAD', async () => {
    for (const path of ['/healthz', '/readyz']) {
      const got = await bench.gateway.request(path, { key: null });
      expect(got.status).toBe(200);
      expect(got.headers.get('x-request-id')).not.toBe(null);
      expect([...got.headers.keys()].filter((name) => name.startsWith('x-ratelimit'))).toEqual([]);
      const head = await bench.gateway.request(path, { method: 'HEAD', key: null });
      expect([head.status, await head.text()]).toEqual([200, '']);
      const posted = await bench.gateway.request(path, { method: 'POST', body: {} });
      expect([posted.status, posted.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
    }
  });

  it('is not logged when it succeeds', () => {
    const lines = bench.gateway.logLines.filter((line) => line.includes('healthz') || line.includes('readyz'));
    // Rejections there have the usual form.
    expect(lines.filter((line) => !line.includes('method_not_allowed'))).toEqual([]);
  });
});

describe('HEADGATE_METRICS_PORT', () => {
  it('fails the start with its name when the port is taken', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    cleanups.push(() => void other.close());
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const env = { HEADGATE_METRICS_PORT: String(port) };
    await expect(start({ env })).rejects.toThrow(`HEADGATE_METRICS_PORT: port ${port} is already in use on 127.0.0.1`);
  });

  it('opens no port when it is not set', async () => {
    const gateway = await start();
    cleanups.push(() => gateway.stop());
    expect(gateway.metricsUrl).toBe(null);
  });
});
