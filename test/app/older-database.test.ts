import { afterAll, expect, it } from 'vitest';
import { migrateDb } from '#base/database/migrations.ts';
import { restoreOlder } from '#test/gateways/older-database.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { type Body, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

/** A gateway whose database becomes that of a backup from before an upgrade. */

const folders = useFolders();
let database: TestDatabase | null = null;
// Before the gateway's own: hooks run from the last to the first, and it stops with a database.
afterAll(() => database?.drop());
const bench = useInference(async () => {
  database = await createTestDatabase();
  return { engines: { chat: standinFile('chat') }, databaseUrl: database.url };
});

interface Ready {
  readonly status: number;
  readonly body: Body;
}

async function readyz(): Promise<Ready> {
  const answer = await bench.gateway.request('/readyz', { key: null });
  return { status: answer.status, body: await answer.json() };
}

async function doctor(): Promise<Body> {
  const env = { HEADGATE_ENGINES_DIR: folders(), HEADGATE_DATA_DIR: folders(), HEADGATE_URL: bench.gateway.url };
  const { stdout } = await runCli(['doctor', '--json'], { env });
  return JSON.parse(stdout).checks.find(({ name }: { name: string }) => name === 'gateway');
}

it('serves models with an older database, warns in /readyz, and applies all records after the migration', async () => {
  const { db, databaseUrl, logLines } = bench.gateway;
  expect((await bench.chat({})).status).toBe(200);
  await eventually(async () => ((await readyz()).status === 200 ? true : null));
  await restoreOlder(db);
  await db.sql`alter table usage_ids rename to usage_ids_of_later`;
  const older = await eventually(async () => {
    const ready = await readyz();
    return ready.body.warnings === undefined ? null : ready;
  });
  expect(older).toEqual({ status: 200, body: { status: 'ready', warnings: ['database_older'] } });
  expect(await doctor()).toMatchObject({
    state: 'wrong',
    message: expect.stringContaining('the database is older than the gateway'),
    next: expect.stringContaining('restart one gateway'),
  });
  expect(logLines.filter((line) => line.includes('0032_database_changes'))).toHaveLength(1);
  const served = await bench.chat({});
  expect(served.status).toBe(200);
  const read = await bench.gateway.request('/v1/usage/requests');
  const { error }: Body = await read.json();
  expect([read.status, error.code]).toEqual([503, 'database_unavailable']);
  await db.sql`alter table usage_ids_of_later rename to usage_ids`;
  await migrateDb(databaseUrl);
  await eventually(async () => ((await readyz()).body.warnings === undefined ? true : null));
  expect(await bench.recordOf(served)).toMatchObject({ status: 200 });
  expect(await doctor()).toMatchObject({ state: 'ok' });
});
