import { readFileSync } from 'node:fs';
import postgres from 'postgres';
import { expect, it } from 'vitest';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import { expectBooked } from '#test/inference/booked-load.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { type GatewayProcess, givenKey, isAlive, postgresPid, useProcesses } from '#test/programs/gateway-process.ts';
import { killPostgresUnderLoad } from '#test/programs/postgres-load.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { startRedis } from '#test/redis.ts';

const processes = useProcesses();

/** The lines of a log that say so. */
const count = ({ output }: GatewayProcess, words: string): number => output.stdout.split(words).length - 1;

it('restarts a gateway that died with PostgreSQL, without counting the failed attempts as crashes', async () => {
  const redis = await startRedis();
  const databaseUrl = await processes.database();
  const proxy = await startDatabaseProxy(databaseUrl);
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
  try {
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_METRICS_PORT: '0' };
    const gateway = processes.run({
      home: processes.home(),
      databaseUrl: proxy.url,
      env: { ...env, REDIS_URL: redis.url, HEADGATE_WORKERS: '2', HEADGATE_START_WAIT_SECONDS: '0' },
    });
    await gateway.url();
    const pids = readFileSync(`/proc/${gateway.pid}/task/${gateway.pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .map(Number);
    proxy.refuse();
    process.kill(pids.at(-1) ?? 0, 'SIGKILL');
    await eventually(() =>
      Promise.resolve(count(gateway, 'a gateway cannot start while PostgreSQL or Redis is unavailable') >= 3),
    );
    expect(count(gateway, 'a gateway crashed; a new one starts')).toBe(1);
    proxy.restore();
    const bothLive = async (): Promise<boolean> =>
      (await sql`select from gateways where last_seen_at > now() - interval '5 s'`).length === 2;
    await eventually(bothLive);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
  } finally {
    await sql.end();
    await proxy.close();
    await redis.stop();
  }
});

it('restarts the built-in PostgreSQL of several workers once when it is killed under load', async () => {
  const redis = await startRedis();
  try {
    const home = processes.home();
    await addPostgres(home);
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_SETTLE_SECONDS: '2', HEADGATE_METRICS_PORT: '0' };
    const gateway = processes.run({
      home,
      databaseUrl: null,
      env: { ...env, REDIS_URL: redis.url, HEADGATE_WORKERS: '2' },
    });
    const { asked, complete } = await killPostgresUnderLoad(home, gateway);
    await expectBooked(asked, complete);
    const last = await postgresPid(home.dataDir);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
    expect(isAlive(last)).toBe(false);
  } finally {
    await redis.stop();
  }
});
