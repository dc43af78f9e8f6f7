import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import type { UsageRecord } from '#core/metering/metering.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { openTestBooks, type TestBooks } from '#test/metering/test-books.ts';

let database: TestDatabase | null = null;
let rooms: (TestBooks & { db: Db }) | null = null;

beforeAll(async () => {
  database = await createTestDatabase();
  const db = connectDb(database.url);
  rooms = { ...(await openTestBooks({ db, databaseUrl: database.url })), db };
});
afterAll(async () => {
  await rooms?.close();
  await rooms?.db.close();
  await database?.drop();
});

function opened(): TestBooks & { db: Db } {
  if (rooms === null) throw new Error('the database is opened before the tests');
  return rooms;
}

async function openWallet(): Promise<string> {
  const { db, wallet } = opened();
  const organizationId = uuidv7();
  await db.orm.transaction((tx) => wallet.open(tx, organizationId));
  const booking = { organizationId, amountPicoUsd: 1_000_000n, reference: 'opening', note: null, author: systemAuthor };
  await wallet.credit(booking);
  return organizationId;
}

function recordOf(organizationId: string, more: Partial<UsageRecord> = {}): UsageRecord {
  return {
    id: uuidv7(),
    organizationId,
    projectId: organizationId,
    keyId: organizationId,
    model: 'm',
    endpoint: '/v1/chat/completions',
    stream: false,
    status: 200,
    outcome: 'completed',
    reason: null,
    cacheHit: false,
    serviceTier: 'default',
    usage: { inputTokens: 1, cachedTokens: 0, cacheWriteTokens: 0, outputTokens: 1, reasoningTokens: 0 },
    usageSource: 'engine',
    costPicoUsd: 10n,
    writtenOffPicoUsd: 0n,
    priceVersionId: uuidv7(),
    queuedMs: 0,
    firstByteMs: 1,
    totalMs: 2,
    clientRequestId: null,
    ...more,
  };
}

async function countRecords(organizationId: string): Promise<number> {
  const [row] = await opened().db
    .sql`select count(*)::int as n from usage_records where organization_id = ${organizationId}`;
  return Number(row?.['n']);
}

describe('a record that PostgreSQL rejects', () => {
  it('does not delay the others of its batch, and charges nothing', async () => {
    const organizationId = await openWallet();
    const { metering, wallet } = opened();
    const records = Array.from({ length: 40 }, (_, index) =>
      // A NUL is no character that Postgres' text can hold.
      recordOf(organizationId, index === 17 ? { clientRequestId: 'a\0b' } : {}),
    );
    const results = await Promise.allSettled(records.map((record) => metering.settle(record)));
    expect(results.flatMap(({ status }, index) => (status === 'rejected' ? [index] : []))).toEqual([17]);
    expect(await countRecords(organizationId)).toBe(39);
    expect(await wallet.balance(organizationId)).toBe(1_000_000n - 390n);
    expect(await wallet.verify(organizationId)).toMatchObject({ balanced: true, entriesBroken: 0 });
  });
});

describe('a record that is settled twice', () => {
  it('is counted and charged once', async () => {
    const organizationId = await openWallet();
    const { metering, wallet, db } = opened();
    const record = recordOf(organizationId);
    await metering.settle(record);
    await metering.settle(record);
    expect(await countRecords(organizationId)).toBe(1);
    expect(await wallet.balance(organizationId)).toBe(1_000_000n - 10n);
    const [hour] =
      await db.sql`select sum(requests)::int as n from usage_hourly join usage_ids on code = organization where id = ${organizationId}`;
    expect(hour?.['n']).toBe(1);
  });
});
