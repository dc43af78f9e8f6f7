import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db, isConnectionError } from '#base/db.ts';
import { startDatabaseProxy, type DatabaseProxy } from '../support/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

let database: TestDatabase;
let proxy: DatabaseProxy;
let db: Db;
beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  db = connectDb(proxy.url, { poolMax: 1 });
});
afterAll(async () => {
  await db.close();
  await proxy.close();
  await database.drop();
});

/** The error of a statement, null when it was done. */
async function failureOf(): Promise<unknown> {
  return db.sql`select 1`.then(
    () => null,
    (error: unknown) => error,
  );
}

describe('a pool whose database was away for long', () => {
  it('finds it again within seconds, however often it has failed', async () => {
    expect(await failureOf()).toBeNull();
    proxy.refuse();
    // By postgres.js' own rule the next try would be 10 to 20 seconds away after seven.
    for (let failures = 0; failures < 8; failures += 1) expect(isConnectionError(await failureOf())).toBe(true);
    proxy.restore();
    const beganMs = performance.now();
    expect(await failureOf()).toBeNull();
    expect(performance.now() - beganMs).toBeLessThan(10_000);
  });
});

describe('a connection on which nothing comes back any more', () => {
  it('is given up, and the next statement has a new one', async () => {
    const limits = { lockTimeoutMs: null, statementTimeoutMs: 100, idleInTransactionTimeoutMs: 1000 };
    const own = connectDb(proxy.url, { poolMax: 1, limits });
    await own.sql`create table silent (id integer)`;
    // Never let go: the answer is on its way for ever.
    proxy.holdAnswers();
    const failure = await own.sql`insert into silent values (1)`.catch((error: unknown) => error);
    expect(isConnectionError(failure)).toBe(true);
    await expect.poll(() => own.sql`select id from silent`).toEqual([{ id: 1 }]);
    await own.close();
  });

  it('is kept while a statement takes its time, within its limit', async () => {
    const limits = { lockTimeoutMs: null, statementTimeoutMs: 4000, idleInTransactionTimeoutMs: 1000 };
    const own = connectDb(proxy.url, { poolMax: 1, limits });
    expect(await own.sql`select 1 as done from pg_sleep(3)`).toEqual([{ done: 1 }]);
    await expect(own.sql`select pg_sleep(10)`).rejects.toMatchObject({ code: '57014' });
    await own.close();
  });
});
