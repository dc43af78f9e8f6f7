import { readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findPostmaster } from '#base/postgres/postmaster.ts';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import { expectBooked } from '#test/inference/booked-load.ts';
import { errorOf, eventually } from '#test/inference/inference-gateway.ts';
import {
  clientOf,
  type GatewayProcess,
  givenKey,
  type Home,
  isAlive,
  postgresPid,
  useProcesses,
} from '#test/programs/gateway-process.ts';
import { clusterOf, killPostgresUnderLoad, timesSaid } from '#test/programs/postgres-load.ts';

const processes = useProcesses();
const env = {
  HEADGATE_BOOTSTRAP_KEY: givenKey,
  HEADGATE_SETTLE_SECONDS: '2',
  HEADGATE_SPOOL_AFTER_MS: '60000',
  HEADGATE_AUTH_STALE_SECONDS: '1',
};

function run(home: Home): GatewayProcess {
  return processes.run({ home, databaseUrl: null, env });
}

async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
}

describe('a built-in PostgreSQL that cannot restart', () => {
  it('is retried and reported once, keeps its folder locked, and the gateway still stops cleanly', async () => {
    const home = processes.home();
    await addPostgres(home);
    const gateway = run(home);
    const url = await gateway.url();
    const client = clientOf(url);
    await (await client.chat({})).text();
    const tries = (): number =>
      readFileSync(join(home.dataDir, 'postgres', 'postgres.log'), 'utf8').split('could not access directory').length -
      1;
    const aside = join(home.dir, 'aside');
    const pid = await postgresPid(home.dataDir);
    renameSync(clusterOf(home), aside);
    process.kill(pid, 'SIGKILL');
    await eventually(async () => tries() >= 4);
    expect(timesSaid(gateway, 'PostgreSQL exited unexpectedly')).toBe(1);
    expect(timesSaid(gateway, 'PostgreSQL did not restart')).toBe(1);
    await eventually(async () => (await errorOf(await client.chat({}))).code === 'billing_unavailable');
    expect(await (await fetch(new URL('/readyz', url))).text()).toContain('database');
    const other = run(home);
    expect(await other.exited).toMatchObject({ code: 1 });
    expect(other.output.stderr).toContain('is in use by a gateway');

    renameSync(aside, clusterOf(home));
    await eventually(async () => (await client.chat({})).status === 200);
    expect(timesSaid(gateway, 'PostgreSQL runs again')).toBe(1);

    const second = await postgresPid(home.dataDir);
    renameSync(clusterOf(home), aside);
    process.kill(second, 'SIGKILL');
    const triesBefore = tries();
    await eventually(async () => tries() > triesBefore);
    await stop(gateway);
    renameSync(aside, clusterOf(home));
    expect(await findPostmaster(clusterOf(home))).toBe(null);
  });
});

describe('a built-in PostgreSQL that is killed under load', () => {
  it('restarts, and every completed request is in the books once', async () => {
    const home = processes.home();
    await addPostgres(home);
    const gateway = run(home);
    const { asked, complete } = await killPostgresUnderLoad(home, gateway);
    await expectBooked(asked, complete);
    const last = await postgresPid(home.dataDir);
    await stop(gateway);
    expect(isAlive(last)).toBe(false);
  });

  it('restarts also after it was adopted from a killed gateway', async () => {
    const home = processes.home();
    await addPostgres(home);
    const former = run(home);
    await former.url();
    former.signal('SIGKILL');
    await former.exited;
    const pid = await postgresPid(home.dataDir);
    const gateway = run(home);
    await gateway.url();
    expect(await postgresPid(home.dataDir)).toBe(pid);
    const { asked, complete } = await killPostgresUnderLoad(home, gateway);
    await expectBooked(asked, complete);
    const last = await postgresPid(home.dataDir);
    await stop(gateway);
    expect([pid, last].map(isAlive)).toEqual([false, false]);
  });
});
