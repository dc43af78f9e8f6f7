import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
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
  return createGateways({ db, clock: systemClock, log: createLog('silent'), dataDir, store: null, prefix: '' });
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
