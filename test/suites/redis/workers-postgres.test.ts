import { expect, it } from 'vitest';
import { expectBooked } from '../../inference/load.ts';
import { givenKey, isAlive, postgresPid, useProcesses } from '../../start/kit.ts';
import { killPostgresUnderLoad } from '../../start/postgres-load.ts';
import { startRedis } from '../../support/redis.ts';

const processes = useProcesses();

it('several gateways of one start have their built-in PostgreSQL back once when it is killed under load', async () => {
  const redis = await startRedis();
  try {
    const home = processes.home();
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
