import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db, isDatabaseUnavailable } from '#base/database/connect-database.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

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

describe('a pool whose database was unavailable for long', () => {
  it('reconnects within seconds, after any number of failures', async () => {
    expect(await failureOf()).toBeNull();
    proxy.refuse();
    // By postgres.js' own rule the next try would be 10 to 20 seconds away after seven.
    for (let failures = 0; failures < 8; failures += 1) expect(isDatabaseUnavailable(await failureOf())).toBe(true);
    proxy.restore();
    const beganMs = performance.now();
    expect(await failureOf()).toBeNull();
    expect(performance.now() - beganMs).toBeLessThan(10_000);
  });
});

describe('a database error', () => {
  /** The error of a statement, as postgres.js says it. */
  const failureOn = async (url: string, statement: string): Promise<unknown> => {
    const own = connectDb(url, { poolMax: 1 });
    const failure = await own.sql.unsafe(statement).then(
      () => null,
      (error: unknown) => error,
    );
    await own.close();
    return failure;
  };
  const elsewhere = (change: (url: URL) => void): string => {
    const url = new URL(database.url);
    change(url);
    return url.href;
  };
  const raised = (state: string): string => `do $$ begin raise 'no' using errcode = '${state}'; end $$`;

  it.each([
    ['a wrong value', `select 'x'::integer`],
    ['a word that is none', 'selec 1'],
    ['a row that is there already', raised('23505')],
    ['a function that raises', `do $$ begin raise 'no'; end $$`],
  ])('is not counted as unavailability for %s', async (_, statement) => {
    const failure = await failureOn(database.url, statement);
    expect(failure).toBeInstanceOf(Error);
    expect(isDatabaseUnavailable(failure)).toBe(false);
  });

  it.each(['select * from nothing_here', 'select nothing_here from pg_class'])(
    'counts as unavailability when the database is older than the program: %s',
    async (statement) => expect(isDatabaseUnavailable(await failureOn(database.url, statement))).toBe(true),
  );

  it.each(['57014', '55P03', '40001', '25006', '42501', '53100', '58030', '0A000', '26000', 'XX000', 'ZZ999'])(
    'counts as unavailability with the code %s',
    async (state) => expect(isDatabaseUnavailable(await failureOn(database.url, raised(state)))).toBe(true),
  );

  it.each([
    ['a unix socket that is not there', (url: URL) => url.searchParams.set('host', '/nowhere')],
    ['a host without an address', (url: URL) => void (url.hostname = 'headgate.invalid')],
    ['a password that is not right', (url: URL) => void (url.password = 'wrong')],
    ['a database that is not there', (url: URL) => void (url.pathname = '/nothing')],
    ['a server that speaks no TLS', (url: URL) => url.searchParams.set('sslmode', 'require')],
  ])('counts as unavailability for %s', async (_, change) => {
    const failure = await failureOn(elsewhere(change), 'select 1');
    expect(failure).toBeInstanceOf(Error);
    expect(isDatabaseUnavailable(failure)).toBe(true);
  });

  it('does not count as unavailability for a missing file or a value without a type', async () => {
    const file = await readFile('/nowhere').catch((error: unknown) => error);
    expect(isDatabaseUnavailable(file)).toBe(false);
    const own = connectDb(database.url, { poolMax: 1 });
    const unsent = await own.sql`select ${undefined as never}`.catch((error: unknown) => error);
    expect(isDatabaseUnavailable(unsent)).toBe(false);
    await own.close();
  });
});

describe('a connection without replies', () => {
  it('is dropped, and the next statement gets a new one', async () => {
    const limits = { lockTimeoutMs: null, statementTimeoutMs: 100, idleInTransactionTimeoutMs: 1000 };
    const own = connectDb(proxy.url, { poolMax: 1, limits });
    await own.sql`create table silent (id integer)`;
    // Never let go: the answer stays on its way indefinitely.
    proxy.holdAnswers();
    const failure = await own.sql`insert into silent values (1)`.catch((error: unknown) => error);
    expect(isDatabaseUnavailable(failure)).toBe(true);
    await expect.poll(() => own.sql`select id from silent`).toEqual([{ id: 1 }]);
    await own.close();
  });

  it('is kept during a slow statement within its limit', async () => {
    const limits = { lockTimeoutMs: null, statementTimeoutMs: 4000, idleInTransactionTimeoutMs: 1000 };
    const own = connectDb(proxy.url, { poolMax: 1, limits });
    expect(await own.sql`select 1 as done from pg_sleep(3)`).toEqual([{ done: 1 }]);
    await expect(own.sql`select pg_sleep(10)`).rejects.toMatchObject({ code: '57014' });
    await own.close();
  });
});
