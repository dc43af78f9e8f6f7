import { afterAll, beforeAll, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createRefusals } from '#core/metering/records/refusals.ts';
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

it('counts a rejection in the minute in which it happened, also when that minute ends meanwhile', async () => {
  let nowMs = Date.UTC(2026, 4, 31, 23, 59, 59, 998);
  const clock = { now: () => (nowMs += 1), monotonicMs: () => performance.now() };
  const refusals = createRefusals({ db, clock, log: createLog('silent') });
  const [organizationId, keyId, projectId] = [uuidv7(), uuidv7(), uuidv7()];
  refusals.count({ organizationId, keyId, projectId, model: '', code: 'insufficient_funds' });
  await refusals.flush();
  const rows = await db.sql<{ minute: string }[]>`
    select to_char(minute at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') as minute from usage_refusals`;
  expect(rows).toEqual([{ minute: '2026-05-31 23:59:00.000' }]);
});
