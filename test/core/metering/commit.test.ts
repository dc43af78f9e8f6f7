import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import type { Durable, Metering, UsageRecord } from '#core/metering/metering.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import { createTestDatabase } from '#test/database.ts';
import { recordOf } from '#test/metering/recorded-usage.ts';
import { openTestBooks, type TestBooks } from '#test/metering/test-books.ts';

const creditPicoUsd = 1_000_000_000n;
const costPicoUsd = 3_000_000n;

interface Books {
  readonly records: number;
  readonly hourly: number;
  readonly daily: number;
  /** Requests of ledger entries. */
  readonly charged: number;
}

describe('the commit of a batch', () => {
  let database: Awaited<ReturnType<typeof createTestDatabase>>;
  let db: Db;
  let books: TestBooks;
  let wallet: Wallet;
  let metering: Metering;

  beforeAll(async () => {
    database = await createTestDatabase();
    db = connectDb(database.url);
    books = await openTestBooks({ db, databaseUrl: database.url });
    ({ wallet, metering } = books);
  });
  afterAll(async () => {
    await books.close();
    await db.close();
    await database.drop();
  });

  async function openOrganization(): Promise<{ id: string; keyId: string; projectId: string }> {
    const id = uuidv7();
    await db.orm.transaction((tx) => wallet.open(tx, id));
    await wallet.credit({
      organizationId: id,
      amountPicoUsd: creditPicoUsd,
      reference: 'opening',
      note: null,
      author: systemAuthor,
    });
    return { id, keyId: uuidv7(), projectId: uuidv7() };
  }

  async function booksOf(organizationId: string): Promise<Books> {
    const [row] = await db.sql<Books[]>`
      select (select count(*)::int from usage_records where organization_id = ${organizationId}) as records,
        (select coalesce(sum(requests), 0)::int from usage_hourly where organization = n.code) as hourly,
        (select coalesce(sum(requests), 0)::int from usage_daily where organization = n.code) as daily,
        (select coalesce(sum(requests), 0)::int from ledger_entries where organization_id = ${organizationId}) as charged
      from (select max(code) as code from usage_ids where id = ${organizationId}) as n`;
    if (row === undefined) throw new Error('a select without a table gives one row');
    return row;
  }

  it('writes no record, sum or entry when PostgreSQL rejects a part', async () => {
    const organization = await openOrganization();
    const record: UsageRecord = { ...recordOf(organization, Date.now()), costPicoUsd: 10n ** 60n };
    await expect(metering.settle(record)).rejects.toThrow('numeric field overflow');
    expect(await booksOf(organization.id)).toEqual({ records: 0, hourly: 0, daily: 0, charged: 0 });
    expect(await wallet.balance(organization.id)).toBe(creditPicoUsd);
  });

  it('changes nothing when it is repeated', async () => {
    const organization = await openOrganization();
    const record = recordOf(organization, Date.now());
    await metering.settle(record);
    await metering.settle(record);
    expect(await booksOf(organization.id)).toEqual({ records: 1, hourly: 1, daily: 1, charged: 1 });
    expect(await wallet.balance(organization.id)).toBe(creditPicoUsd - costPicoUsd);
  });

  it('writes records that cost nothing without an entry in the ledger', async () => {
    const organization = await openOrganization();
    await metering.settle({ ...recordOf(organization, Date.now()), costPicoUsd: 0n });
    expect(await booksOf(organization.id)).toEqual({ records: 1, hourly: 1, daily: 1, charged: 0 });
  });

  it('writes records, sums and entries of all concurrent requests', async () => {
    const organization = await openOrganization();
    const records = Array.from({ length: 40 }, (_, index) => ({
      ...recordOf(organization, Date.now()),
      costPicoUsd: index % 4 === 0 ? 0n : costPicoUsd,
    }));
    await Promise.all(records.map((record) => metering.settle(record)));
    expect(await booksOf(organization.id)).toEqual({ records: 40, hourly: 40, daily: 40, charged: 30 });
    expect(await wallet.balance(organization.id)).toBe(creditPicoUsd - 30n * costPicoUsd);
    expect(await wallet.verify(organization.id)).toMatchObject({ balanced: true });
  });

  it('keeps records under their own keys and models when the database assigned their codes to others', async () => {
    const organization = await openOrganization();
    await metering.settle({ ...recordOf(organization, Date.now()), model: 'asked', fallbackFor: 'first' });
    const [strangerKey, strangerOrganization] = [uuidv7(), uuidv7()];
    // As a PostgreSQL has them that went on without the last transactions of the one before.
    await db.sql`delete from usage_requests
      where organization = (select code from usage_ids where id = ${organization.id})`;
    await db.sql`update usage_ids set id = ${strangerKey} where id = ${organization.keyId}`;
    await db.sql`update usage_ids set id = ${strangerOrganization} where id = ${organization.id}`;
    await db.sql`update usage_names set name = name || ' of a stranger' where name in ('asked', 'first')`;
    const record = { ...recordOf(organization, Date.now()), model: 'asked', fallbackFor: 'first' };
    await metering.settle(record);
    expect(await metering.settle({ ...record, id: uuidv7() })).toBe('booked');
    const rows = await db.sql`select organization_id::text, key_id::text, model, fallback_for from usage_records
      where id = ${record.id}`;
    expect(rows).toEqual([
      { organization_id: organization.id, key_id: organization.keyId, model: 'asked', fallback_for: 'first' },
    ]);
    const ofStrangers = await db.sql`select from usage_records where organization_id = ${strangerOrganization}`;
    expect(ofStrangers).toHaveLength(0);
  });

  it('locks no wallet while it waits for the hourly sums', async () => {
    const organization = await openOrganization();
    await metering.settle(recordOf(organization, Date.now()));
    const blocker = connectDb(database.url, { poolMax: 1 });
    const settled: Promise<Durable>[] = [];
    try {
      await blocker.sql.begin(async (sql) => {
        const [self] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
        await sql`select 1 from usage_hourly where organization = (select code from usage_ids where id = ${organization.id}) for update`;
        settled.push(metering.settle(recordOf(organization, Date.now())));
        await waitUntilBlockedBy(db, self?.pid ?? 0);
        const free = await sql`select 1 from wallets where organization_id = ${organization.id} for update skip locked`;
        expect(free).toHaveLength(1);
      });
    } finally {
      await blocker.close();
    }
    await Promise.all(settled);
    expect(await booksOf(organization.id)).toEqual({ records: 2, hourly: 2, daily: 2, charged: 2 });
  });
});

async function waitUntilBlockedBy(db: Db, pid: number): Promise<void> {
  for (;;) {
    const blocked = await db.sql`select 1 from pg_stat_activity where ${pid}::int = any(pg_blocking_pids(pid))`;
    if (blocked.length > 0) return;
  }
}
