import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createCatalog } from '#core/catalog/catalog.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

let database: TestDatabase;
let db: Db;
beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

const at = (input: bigint) => ({
  inputPerMTokMicroUsd: input,
  cachedInputPerMTokMicroUsd: input,
  outputPerMTokMicroUsd: input,
});
const of = (id: string, input: bigint) => [engineDefinition({}, { id, pricing: at(input) })];

it('a lost price version that requests used is restored, also after an earlier refresh of the prices', async () => {
  const catalog = createCatalog({ db, clock: systemClock, engines: of('rw', 1n) });
  await catalog.sync();
  await catalog.refresh();
  (await catalog.prepare(of('rw', 2n)))();
  await catalog.settle();
  await catalog.refresh();
  const used = catalog.price('rw');
  expect(used?.inputPerMTokMicroUsd).toBe(2n);
  // PostgreSQL goes back to before the second price.
  await db.sql`delete from price_versions where id = ${used?.id ?? ''}`;
  // Its job runs each second, the heartbeat every two.
  await catalog.refresh();
  await catalog.recover();
  expect(await catalog.priceVersion(used?.id ?? '')).not.toBeNull();
  expect(catalog.price('rw')?.id).toBe(used?.id);
});

it('a model whose only price version was lost has a price after a refresh', async () => {
  const catalog = createCatalog({ db, clock: systemClock, engines: of('rw2', 1n) });
  await catalog.sync();
  await catalog.refresh();
  await db.sql`delete from price_versions where model_id = 'rw2'`;
  await catalog.refresh();
  expect(catalog.price('rw2')).toBeDefined();
});
