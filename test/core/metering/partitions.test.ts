import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import type { Clock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { createWriter, isBeforeRetention, verifyBooks, type Writer } from '#core/metering/metering.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { chargeOf } from '#test/wallet/test-wallet.ts';
import { openTestBooks, type TestBooks } from '#test/metering/test-books.ts';

const dayMs = 86_400_000;

/** Books with a clock of their own. */
interface Books extends TestBooks {
  readonly database: TestDatabase;
  readonly db: Db;
  readonly writer: Writer;
  nowMs: number;
}

const opened: Books[] = [];
let books: Books;

beforeEach(async () => {
  const database = await createTestDatabase();
  const db = connectDb(database.url);
  const nowMs = Date.now();
  const clock: Clock = { now: () => books.nowMs, monotonicMs: () => performance.now() };
  const own = await openTestBooks({ db, databaseUrl: database.url, clock, isStarted: false });
  books = { ...own, database, db, writer: createWriter({ db, clock, wallet: own.wallet }), nowMs };
  opened.push(books);
});

afterAll(async () => {
  for (const { db, database, close } of opened) {
    await close();
    await db.close();
    await database.drop();
  }
});

async function openWallet(): Promise<string> {
  const organizationId = uuidv7();
  const booking = { organizationId, amountPicoUsd: 10n ** 9n, reference: 'opening', note: null, author: systemAuthor };
  await books.db.orm.transaction((tx) => books.wallet.open(tx, organizationId));
  await books.wallet.credit(booking);
  return organizationId;
}

/** How many records each partition has. */
async function countByPartition(): Promise<Record<string, number>> {
  const rows = await books.db.sql<{ name: string; n: number }[]>`
    SELECT tableoid::regclass::text AS name, count(*)::int AS n FROM usage_requests GROUP BY 1`;
  return Object.fromEntries(rows.map(({ name, n }) => [name, n]));
}

const nameOf = (timeMs: number): string =>
  `usage_requests_${new Date(timeMs).toISOString().slice(0, 7).replace('-', '_')}`;

describe('partitions of the records', () => {
  it('are created once for this month and the next two by several gateways at the same time', async () => {
    await Promise.all(Array.from({ length: 5 }, () => books.metering.ensurePartitions()));
    const rows = await books.db
      .sql`SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'usage_requests'::regclass`;
    expect(rows).toHaveLength(4);
    const organizationId = await openWallet();
    await books.writer.write([chargeOf(organizationId, 1n)]);
    expect(await countByPartition()).toEqual({ [nameOf(Date.now())]: 1 });
  });

  it('are created for three consecutive months, also when a month ends meanwhile', async () => {
    const [year, month] = [2027, 10];
    let nowMs = Date.UTC(year, month + 1) - 3;
    const clock: Clock = { now: () => (nowMs += 1), monotonicMs: () => performance.now() };
    const own = await openTestBooks({ db: books.db, databaseUrl: books.database.url, clock, isStarted: false });
    await own.metering.ensurePartitions();
    await own.close();
    const rows = await books.db.sql<{ name: string }[]>`
      SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'usage_requests'::regclass ORDER BY 1`;
    const months = [0, 1, 2].map((later) => nameOf(Date.UTC(year, month + later)));
    expect(rows.map(({ name }) => name)).toEqual([...months, 'usage_requests_default']);
  });

  it('include records written with a clock a year ahead, once that month comes', async () => {
    const organizationId = await openWallet();
    const farMs = Date.now() + 366 * dayMs;
    const charge = chargeOf(organizationId, 5n, { id: uuidv7(farMs) });
    await books.writer.write([charge, chargeOf(organizationId, 3n, { id: uuidv7(Date.now() - 400 * dayMs) })]);
    await books.metering.ensurePartitions();
    expect(await countByPartition()).toEqual({ usage_requests_default: 1, [nameOf(Date.now() - 400 * dayMs)]: 1 });
    books.nowMs = farMs;
    await books.metering.ensurePartitions();
    expect(await countByPartition()).toEqual({ [nameOf(farMs)]: 1, [nameOf(Date.now() - 400 * dayMs)]: 1 });
    await books.writer.write([charge]);
    expect(await books.wallet.balance(organizationId)).toBe(10n ** 9n - 8n);
    expect((await verifyBooks(books.db)).findings).toEqual([]);
  });

  it('are created while records of their month are written, without losing or rejecting any', async () => {
    const organizationId = await openWallet();
    let isWriting = true;
    let written = 0;
    const writing = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (isWriting) {
          await books.writer.write([1n, 1n].map((cost) => chargeOf(organizationId, cost)));
          written += 2;
        }
      }),
    );
    await expect.poll(() => written).toBeGreaterThan(20);
    // A later call makes the partitions that are locked at one moment.
    await expect
      .poll(async () => {
        await books.metering.ensurePartitions();
        return Object.keys(await countByPartition());
      })
      .toEqual([nameOf(Date.now())]);
    isWriting = false;
    await writing;
    expect(await countByPartition()).toEqual({ [nameOf(Date.now())]: written });
    expect(await books.wallet.verify(organizationId)).toMatchObject({ balanced: true, usagePicoUsd: BigInt(written) });
  });

  it('do not fail the start when their creation is slow, and are created later', async () => {
    const organizationId = await openWallet();
    await books.writer.write([chargeOf(organizationId, 1n)]);
    await books.db.sql.unsafe(`
      CREATE FUNCTION wait_a_moment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN old; END $$;
      CREATE TRIGGER slow BEFORE DELETE ON usage_requests_default FOR EACH ROW EXECUTE FUNCTION wait_a_moment()`);
    const limits = { lockTimeoutMs: null, statementTimeoutMs: 200, idleInTransactionTimeoutMs: 1000 };
    const hasty = connectDb(books.database.url, { limits });
    const own = await openTestBooks({ db: hasty, databaseUrl: books.database.url });
    expect(await countByPartition()).toEqual({ usage_requests_default: 1 });
    await own.metering.ensurePartitions();
    expect(await countByPartition()).toEqual({ [nameOf(Date.now())]: 1 });
    await own.close();
    await hasty.close();
  });

  it('delay no writer while a reader has the records open', async () => {
    const organizationId = await openWallet();
    await books.writer.write([chargeOf(organizationId, 1n)]);
    await books.db.sql.begin(async (tx) => {
      await tx`SELECT count(*) FROM usage_records`;
      await books.metering.ensurePartitions();
      await books.metering.dropOldPartitions(1);
      await books.writer.write([chargeOf(organizationId, 1n)]);
    });
    expect(await countByPartition()).toEqual({ usage_requests_default: 2 });
  });
});

describe('indexes of past months', () => {
  const sizeOf = async (name: string): Promise<number> => {
    const [row] = await books.db.sql<{ bytes: string }[]>`SELECT pg_indexes_size(${name}::regclass) AS bytes`;
    return Number(row?.bytes);
  };

  it('are rebuilt once, while records are read and written', async () => {
    const organizationIds = await Promise.all(Array.from({ length: 5 }, openWallet));
    await books.metering.ensurePartitions();
    const writeSome = async (): Promise<void> => {
      for (let i = 0; i < 12; i += 1) {
        await books.writer.write(
          Array.from({ length: 500 }, (_, n) =>
            chargeOf(organizationIds[n % 5] ?? '', 1n, { keyId: organizationIds[n % 3] ?? '' }),
          ),
        );
      }
    };
    await writeSome();
    const name = nameOf(Date.now());
    const before = await sizeOf(name);
    books.nowMs = Date.now() + 40 * dayMs;
    await Promise.all([books.metering.packPartitions(), books.metering.packPartitions(), writeSome()]);
    await books.metering.packPartitions();
    expect(await sizeOf(name)).toBeLessThan(2 * before);
    expect(await countByPartition()).toEqual({ [name]: 12_000 });
    const invalid = await books.db.sql`SELECT 1 FROM pg_index WHERE indrelid = ${name}::regclass AND NOT indisvalid`;
    expect(invalid).toHaveLength(0);
    const [found] = await books.db.sql<
      { file: string }[]
    >`SELECT pg_relation_filenode('usage_requests_key_idx'::regclass) AS file`;
    await books.metering.packPartitions();
    expect(await books.db.sql`SELECT pg_relation_filenode('usage_requests_key_idx'::regclass) AS file`).toEqual([
      found,
    ]);
    expect((await verifyBooks(books.db)).findings).toEqual([]);
  });

  it('are rebuilt after an interrupted attempt', async () => {
    const organizationId = await openWallet();
    await books.metering.ensurePartitions();
    await books.writer.write([chargeOf(organizationId, 1n)]);
    const name = nameOf(Date.now());
    // A unique index that cannot be built stays behind as an invalid one.
    await books.writer.write([chargeOf(organizationId, 1n)]);
    const broken = books.db.sql.unsafe(
      `CREATE UNIQUE INDEX CONCURRENTLY ${name}_key_id_idx_ccnew ON ${name} (organization)`,
    );
    await expect(broken).rejects.toThrow('could not create unique index');
    books.nowMs = Date.now() + 40 * dayMs;
    await books.metering.packPartitions();
    expect(await books.db.sql`SELECT indexrelid FROM pg_index WHERE indrelid = ${name}::regclass`).toHaveLength(4);
    expect(await books.db.sql`SELECT obj_description(${name}::regclass) AS note`).toEqual([{ note: 'packed' }]);
  });
});

describe('retention', () => {
  const writeMonths = async (organizationId: string, months: number): Promise<string[]> => {
    const ids = Array.from({ length: months }, (_, i) => uuidv7(Date.now() - i * 31 * dayMs));
    for (const id of ids) {
      await books.writer.write([chargeOf(organizationId, 1n, { id })]);
      await books.writer.write(
        [2n, 3n].map((cost, n) =>
          chargeOf(organizationId, cost, { id: uuidv7(Date.now() - ids.indexOf(id) * 31 * dayMs + n) }),
        ),
      );
    }
    return ids;
  };

  it('drops whole months, keeps sums and ledger, and leaves books that verify', async () => {
    const organizationId = await openWallet();
    await writeMonths(organizationId, 6);
    await books.metering.ensurePartitions();
    const before = await books.db.sql`SELECT * FROM usage_hourly ORDER BY hour`;
    const floorMs = await books.metering.dropOldPartitions(70);
    const date = new Date(Date.now() - 70 * dayMs);
    expect(floorMs).toBe(Date.UTC(date.getUTCFullYear(), date.getUTCMonth()));
    const [oldest] = await books.db.sql<{ id: string }[]>`SELECT id::text FROM usage_records ORDER BY id LIMIT 1`;
    expect(Number.parseInt((oldest?.id ?? '').replace('-', '').slice(0, 12), 16)).toBeGreaterThanOrEqual(floorMs);
    expect(await books.db.sql`SELECT * FROM usage_hourly ORDER BY hour`).toEqual(before);
    const proof = await verifyBooks(books.db);
    expect(proof.findings).toEqual([]);
    expect(proof.entriesBeforeRetention).toBeGreaterThanOrEqual(4);
    expect(proof.entriesBeforeRetention % 2).toBe(0);
    expect(await books.wallet.verify(organizationId)).toMatchObject({ balanced: true, usagePicoUsd: 36n });
  });

  it('rejects a record of a dropped month with its own error', async () => {
    const organizationId = await openWallet();
    const ids = await writeMonths(organizationId, 6);
    await books.metering.ensurePartitions();
    await books.metering.dropOldPartitions(70);
    const again = chargeOf(organizationId, 1n, { id: ids[5] ?? '' });
    const error: unknown = await books.writer
      .write([again, chargeOf(organizationId, 1n)])
      .catch((caught: unknown) => caught);
    expect(isBeforeRetention(error)).toBe(true);
    expect(await books.wallet.verify(organizationId)).toMatchObject({ balanced: true, usagePicoUsd: 36n });
    // An existing record is repeated as ever.
    await books.writer.write([chargeOf(organizationId, 1n, { id: ids[0] ?? '' })]);
    expect(await books.wallet.balance(organizationId)).toBe(10n ** 9n - 36n);
  });

  it('keeps a month while a proof runs, and drops it afterwards', async () => {
    const organizationId = await openWallet();
    await writeMonths(organizationId, 6);
    await books.metering.ensurePartitions();
    const session = await books.db.sql.reserve();
    await session`BEGIN`;
    await session`LOCK TABLE ledger_entries IN ACCESS EXCLUSIVE MODE`;
    const proving = verifyBooks(books.db);
    await expect
      .poll(() => books.db.sql`SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'ledger_entries'::regclass`)
      .toHaveLength(1);
    const during = await books.metering.dropOldPartitions(70);
    await session`ROLLBACK`;
    session.release();
    expect((await proving).findings).toEqual([]);
    expect(during).toBe(0);
    expect(await books.metering.dropOldPartitions(70)).toBeGreaterThan(0);
    expect((await verifyBooks(books.db)).findings).toEqual([]);
  });

  it('continues from its last month, and drops no more than needed', async () => {
    const organizationId = await openWallet();
    await writeMonths(organizationId, 6);
    await books.metering.ensurePartitions();
    const first = await books.metering.dropOldPartitions(100);
    const counts = await countByPartition();
    expect(await books.metering.dropOldPartitions(100)).toBe(first);
    expect(await books.metering.dropOldPartitions(130)).toBe(first);
    expect(await countByPartition()).toEqual(counts);
    expect(await books.metering.dropOldPartitions(40)).toBeGreaterThan(first);
    await books.metering.ensurePartitions();
    expect((await verifyBooks(books.db)).findings).toEqual([]);
  });

  it('drops nothing for a clock far ahead', async () => {
    const organizationId = await openWallet();
    await writeMonths(organizationId, 2);
    books.nowMs = Date.now() + 3650 * dayMs;
    await books.metering.dropOldPartitions(60);
    expect(Object.values(await countByPartition()).reduce((sum, n) => sum + n, 0)).toBe(6);
  });
});
