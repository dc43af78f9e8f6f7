import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/db.ts';
import { createLog } from '#base/log.ts';
import { createGateways, type Gateways } from '#core/gateways/gateways.ts';
import { createTestDatabase, type TestDatabase } from '../../support/database.ts';

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

function openGateways(): Gateways {
  const dataDir = mkdtempSync(join(tmpdir(), 'hg-place-'));
  folders.push(dataDir);
  return createGateways({
    db,
    clock: systemClock,
    log: createLog('silent'),
    gatewayDir: dataDir,
    store: null,
    prefix: '',
  });
}

const count = async (): Promise<number> => (await db.sql`select 1 from gateways`).length;

it('a gateway that has no place among the others yet, or has left it, does not say that it lives', async () => {
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

it('a run that nobody ended is marked unclean by the next start in its place', async () => {
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

it('a run is marked unclean by any other gateway once it was silent for long, and goes on when it wakes', async () => {
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

it('a gateway notices once that heartbeats are gone which PostgreSQL had taken, and until it has read all anew', async () => {
  const gateways = openGateways();
  const noticed: string[] = [];
  let isAway = true;
  gateways.onDatabaseChange(async (change) => {
    noticed.push(change);
    if (isAway) throw new Error('no connection');
  });
  const renewed = () => vi.waitFor(() => expect(noticed.splice(0)).toEqual(['rewound']));
  const ofThis = () => db.sql`select change from database_changes where gateway_id = ${gateways.id}`;
  await gateways.start();
  for (let beats = 0; beats < 3; beats += 1) await gateways.beat();
  expect(noticed).toEqual([]);
  await db.sql`update gateway_runs set beats = 1 where id = ${gateways.id}`;
  await gateways.beat();
  await renewed();
  isAway = false;
  await vi.waitFor(async () => {
    await gateways.beat();
    expect(await ofThis()).toEqual([{ change: 'rewound' }]);
  });
  noticed.length = 0;
  await gateways.beat();
  // As a database of before its start has it.
  await db.sql`delete from gateway_runs where id = ${gateways.id}`;
  expect(noticed).toEqual([]);
  await gateways.beat();
  await renewed();
  await vi.waitFor(async () => expect(await ofThis()).toHaveLength(2));
  await gateways.stop();
});
