import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { migrateDb, readMigrations } from '#base/database/migrations.ts';
import { createGateways, type Gateways } from '#core/gateways/gateways.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { restoreOlder } from '#test/gateways/older-database.ts';

let database: TestDatabase;
let db: Db;
const folders: string[] = [];
beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterAll(async () => {
  await db.close();
  await database.drop();
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

function openGateways(log = createLog('silent')): Gateways {
  const dataDir = mkdtempSync(join(tmpdir(), 'hg-place-'));
  folders.push(dataDir);
  return createGateways({
    db,
    clock: systemClock,
    log,
    gatewayDir: dataDir,
    store: null,
    prefix: '',
  });
}

const count = async (): Promise<number> => (await db.sql`select 1 from gateways`).length;

it('a gateway writes no heartbeat before it has started or after it has stopped', async () => {
  const gateways = openGateways();
  await gateways.beat();
  expect(await count()).toBe(0);
  expect(await gateways.start()).toEqual([]);
  await gateways.beat();
  expect(await count()).toBe(1);
  await gateways.stop();
  await gateways.beat();
  expect(await count()).toBe(0);
});

interface Run {
  readonly ended: 'clean' | 'unclean' | null;
  readonly slot: number;
  readonly version: string;
}

const runOf = async ({ id }: Gateways): Promise<Run | undefined> =>
  (await db.sql<Run[]>`select ended, slot, version from gateway_runs where id = ${id}`)[0];

it('a run of a gateway begins with its start and ends clean with its stop', async () => {
  const gateways = openGateways();
  expect(await runOf(gateways)).toBeUndefined();
  await gateways.start();
  expect(await runOf(gateways)).toMatchObject({ ended: null, slot: 0, version: expect.stringMatching(/^\d+\./) });
  await gateways.stop();
  expect(await runOf(gateways)).toMatchObject({ ended: 'clean' });
});

it('an unfinished run is marked unclean by the next start with the same data folder', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'hg-place-'));
  folders.push(dataDir);
  const inPlace = () =>
    createGateways({ db, clock: systemClock, log: createLog('silent'), gatewayDir: dataDir, store: null, prefix: '' });
  const killed = inPlace();
  await killed.start();
  const next = inPlace();
  expect(await next.start()).toEqual([killed.id]);
  expect(await runOf(killed)).toMatchObject({ ended: 'unclean' });
  const found = await next.uncleanRuns(Date.now() - 3_600_000, Date.now() + 3_600_000);
  expect(found.map(({ id }) => id)).toContain(killed.id);
  await next.stop();
});

it('a silent run is marked unclean by another gateway, and continues when it sends a heartbeat', async () => {
  const sleeper = openGateways();
  await sleeper.start();
  await db.sql`update gateways set last_seen_at = now() - interval '1 minute' where id = ${sleeper.id}`;
  await db.sql`update gateway_runs set last_seen_at = now() - interval '1 minute' where id = ${sleeper.id}`;
  const other = openGateways();
  await other.start();
  await other.beat();
  expect(await runOf(sleeper)).toMatchObject({ ended: 'unclean' });
  await sleeper.beat();
  expect(await runOf(sleeper)).toMatchObject({ ended: null });
  await sleeper.stop();
  await other.stop();
});

it('a gateway detects a database that lost its heartbeats, and reports it until all listeners succeed', async () => {
  const gateways = openGateways();
  const noticed: string[] = [];
  let isAway = true;
  gateways.onDatabaseChange(async (change) => {
    noticed.push(change);
    if (isAway) throw new Error('no connection');
  });
  const renewed = () => vi.waitFor(() => expect(noticed.splice(0)).toEqual(['rewound']));
  const ofThis = () => db.sql`
    select change, (known_at at time zone 'utc')::text as known from database_changes where gateway_id = ${gateways.id} order by id`;
  await gateways.start();
  for (let beats = 0; beats < 3; beats += 1) await gateways.beat();
  expect(noticed).toEqual([]);
  // The heartbeat that the earlier state of the database has last, and none of those that follow.
  const known = '2026-01-31 12:00:00';
  await db.sql`
    update gateway_runs set beats = 1, last_seen_at = ${known}::timestamp at time zone 'utc' where id = ${gateways.id}`;
  await gateways.beat();
  await renewed();
  // Until there are as many as before.
  for (let beats = 0; beats < 4; beats += 1) await gateways.beat();
  isAway = false;
  await vi.waitFor(async () => {
    await gateways.beat();
    expect(await ofThis()).toEqual([{ change: 'rewound', known }]);
  });
  noticed.length = 0;
  await gateways.beat();
  // As a database without any heartbeat has it.
  await db.sql`delete from gateway_runs`;
  expect(noticed).toEqual([]);
  await gateways.beat();
  await renewed();
  await vi.waitFor(async () =>
    expect(await ofThis()).toEqual([
      { change: 'rewound', known },
      { change: 'rewound', known: '-infinity' },
    ]),
  );
  await gateways.stop();
});

it('a gateway records the newest earlier heartbeat of any gateway when the database lost its own run', async () => {
  const former = openGateways();
  await former.start();
  await former.stop();
  const known = '2026-01-31 12:00:00';
  await db.sql`update gateway_runs set last_seen_at = ${known}::timestamp at time zone 'utc'`;
  const gateways = openGateways();
  await gateways.start();
  await gateways.beat();
  await db.sql`delete from gateway_runs where id = ${gateways.id}`;
  await db.sql`delete from gateways`;
  // In the new history, before the other one looks.
  const next = openGateways();
  await next.start();
  await gateways.beat();
  await vi.waitFor(async () =>
    expect(
      await db.sql`select (known_at at time zone 'utc')::text as known from database_changes where gateway_id = ${gateways.id}`,
    ).toEqual([{ known }]),
  );
  await next.stop();
  await gateways.stop();
});

it('a gateway detects a database older than itself by a failed heartbeat, and reloads after the migration', async () => {
  const lines: string[] = [];
  const gateways = openGateways(createLog('error', { write: (line: string) => void lines.push(line) }));
  const noticed: string[] = [];
  gateways.onDatabaseChange(async (change) => void noticed.push(change));
  await gateways.start();
  await gateways.beat();
  expect(gateways.isDatabaseOlder).toBe(false);
  await restoreOlder(db);
  for (let beats = 0; beats < 3; beats += 1) await expect(gateways.beat()).rejects.toThrow('does not exist');
  expect([gateways.isDatabaseOlder, noticed]).toEqual([true, []]);
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { missing: ['0032_database_changes'], msg: expect.stringContaining('the database is older than this gateway') },
  ]);
  await migrateDb(database.url);
  await vi.waitFor(async () => {
    await gateways.beat();
    expect([gateways.isDatabaseOlder, noticed]).toEqual([false, ['rewound']]);
  });
  await gateways.stop();
});

it('a gateway detects a database older than itself by its migrations when the heartbeat still works', async () => {
  const gateways = openGateways();
  const noticed: string[] = [];
  gateways.onDatabaseChange(async (change) => void noticed.push(change));
  await gateways.start();
  await gateways.beat();
  const newest = readMigrations().at(-1)?.folderMillis ?? 0;
  await db.sql`create table kept as select * from drizzle.__drizzle_migrations where created_at = ${newest}`;
  await db.sql`delete from drizzle.__drizzle_migrations where created_at = ${newest}`;
  await db.sql`delete from gateway_runs where id = ${gateways.id}`;
  await gateways.beat();
  await vi.waitFor(() => expect(gateways.isDatabaseOlder).toBe(true));
  expect(noticed).toEqual([]);
  await db.sql`insert into drizzle.__drizzle_migrations select * from kept`;
  await db.sql`drop table kept`;
  await vi.waitFor(async () => {
    await gateways.beat();
    expect([gateways.isDatabaseOlder, noticed]).toEqual([false, ['rewound']]);
  });
  await gateways.stop();
});
