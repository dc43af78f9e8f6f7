import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import type { Published } from '#core/gateways/gateways.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { createTestDatabase } from '#test/database.ts';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import { useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const folders = useFolders();

interface Finding {
  readonly name: string;
  readonly state: string;
  readonly message: string;
}

async function findings(name: string, env: Readonly<Record<string, string>>): Promise<Finding[]> {
  const { stdout } = await runCli(['doctor', '--json'], { env: { HEADGATE_ENGINES_DIR: folders(), ...env } });
  const { checks } = JSON.parse(stdout) as { checks: Finding[] };
  return checks.filter((one) => one.name === name);
}

it('finds the gateway of HEADGATE_URL and the gateway of the data folder, with any PORT', async () => {
  const home = processes.home();
  await addPostgres(home);
  const url = await processes.run({ home, databaseUrl: null }).url();
  const running = [{ state: 'ok', message: `runs at ${url}` }];
  expect(await findings('gateway', { HEADGATE_DATA_DIR: home.dataDir, PORT: '1' })).toMatchObject(running);
  const elsewhere = { HEADGATE_DATA_DIR: folders(), PORT: '1' };
  expect(await findings('gateway', { ...elsewhere, HEADGATE_URL: `${url}/` })).toMatchObject(running);
  // One that is named and does not answer is not replaced by another one.
  const none = { HEADGATE_DATA_DIR: home.dataDir, HEADGATE_URL: 'http://127.0.0.1:1' };
  expect(await findings('gateway', none)).toMatchObject([
    { state: 'note', message: 'no gateway answers at http://127.0.0.1:1 (HEADGATE_URL)' },
  ]);
  expect(await findings('gateways', { HEADGATE_DATA_DIR: home.dataDir })).toMatchObject([
    { state: 'ok', message: 'one is running' },
  ]);
});

it('lists the differences between live gateways', async () => {
  const database = await createTestDatabase();
  const db = connectDb(database.url);
  const env = { DATABASE_URL: database.url, HEADGATE_DATA_DIR: folders() };
  const add = async (host: string, published: Published, seconds: number): Promise<void> => {
    const [id, place] = [randomUUID(), randomUUID()];
    await db.sql`insert into gateway_runs (id, place_id, host, slot, version, started_at, last_seen_at)
      values (${id}, ${place}, ${host}, 0, '1.0.0', now(), now())`;
    await db.sql`insert into gateways (id, place_id, started_at, last_seen_at, shares, published)
      values (${id}, ${place}, now(), now() + ${seconds}::int * interval '1 s', true,
        ${JSON.stringify(published)}::text::jsonb)`;
  };
  try {
    expect(await findings('gateways', env)).toMatchObject([
      { state: 'note', message: 'none is running on this database' },
    ]);
    await add('here', { price: { chat: 'input 1' }, setting: { HEADGATE_USAGE_DAYS: '30' } }, 3600);
    await add('gone', { price: { chat: 'input 3' } }, -60);
    expect(await findings('gateways', env)).toMatchObject([{ state: 'ok', message: 'one is running' }]);
    await add('there', { price: { chat: 'input 1' }, setting: { HEADGATE_USAGE_DAYS: '30' } }, 3600);
    expect(await findings('gateways', env)).toMatchObject([{ state: 'ok', message: '2 are running, and agree' }]);
    await add('odd', { price: { chat: 'input 2' }, setting: { HEADGATE_USAGE_DAYS: '30' } }, 3600);
    expect(await findings('gateways', env)).toMatchObject([
      {
        state: 'wrong',
        message: expect.stringMatching(
          /^price chat: input 1 on here \(.{8}\), there \(.{8}\); input 2 on odd \(.{8}\)$/,
        ),
      },
    ]);
  } finally {
    await db.close();
    await database.drop();
  }
});
