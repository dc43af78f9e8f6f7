import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { type DatabaseProxy, startDatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { openTestBooks, type TestBooks } from '#test/metering/test-books.ts';

export const creditPicoUsd = 1_000_000_000n;
/** Cost of a record that `recordOf` makes. */
export const costPicoUsd = 3_000_000n;
/** More than a commit takes on a busy machine, so that none is spooled by chance. */
export const spoolAfterMs = 2000;

export interface Organization {
  readonly id: string;
  readonly keyId: string;
  readonly projectId: string;
}

interface Opened {
  readonly database: TestDatabase;
  /** A connection that no outage touches. */
  readonly db: Db;
  readonly proxy: DatabaseProxy;
  readonly books: TestBooks;
}

/** Books that reach their database through a proxy, and spool where they do not; whole again after each test. */
export function useBooksBehindProxy() {
  let opened: Opened | null = null;
  let dataDir = '';
  const open = (): Opened => {
    if (opened === null) throw new Error('no test runs');
    return opened;
  };
  beforeAll(async () => {
    const database = await createTestDatabase();
    const db = connectDb(database.url);
    const proxy = await startDatabaseProxy(database.url);
    dataDir = await mkdtemp(join(tmpdir(), 'hg-'));
    const books = await openTestBooks({ db, databaseUrl: proxy.url, dataDir, spoolAfterMs });
    opened = { database, db, proxy, books };
  });
  afterEach(() => open().proxy.restore());
  afterAll(async () => {
    const { database, db, proxy, books } = open();
    await books.close();
    await proxy.close();
    await db.close();
    await database.drop();
    await rm(dataDir, { recursive: true });
  });
  return {
    get database() {
      return open().database;
    },
    get db() {
      return open().db;
    },
    get proxy() {
      return open().proxy;
    },
    get books() {
      return open().books;
    },
    /** With a credit of `creditPicoUsd`. */
    async openOrganization(): Promise<Organization> {
      const { db, books } = open();
      const id = uuidv7();
      await db.orm.transaction((tx) => books.wallet.open(tx, id));
      const booking = { organizationId: id, amountPicoUsd: creditPicoUsd, reference: 'opening', note: null };
      await books.wallet.credit({ ...booking, author: systemAuthor });
      return { id, keyId: uuidv7(), projectId: uuidv7() };
    },
  };
}
