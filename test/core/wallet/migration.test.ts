import { readdirSync, readFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { afterAll, describe, expect, inject, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidLowerBound, uuidv7 } from '#base/id.ts';
import { createAudit } from '#core/audit/audit.ts';
import { verifyBooks } from '#core/metering/metering.ts';
import { createWallet } from '#core/wallet/wallet.ts';
import { databaseUrl, withServer } from '#test/database.ts';
import { openTestBooks } from '#test/metering/test-books.ts';

const folder = new URL('../../../drizzle/', import.meta.url);
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.sql'))
  .toSorted();
const chain = files.findIndex((name) => name.startsWith('0007_'));
const usd = 10n ** 12n;

const databases: string[] = [];
const opened: Db[] = [];

/** A database as the gateway before the chain left it. */
async function openOldBooks(): Promise<{ db: Db; url: string }> {
  const { url } = inject('testServer');
  const name = `headgate_test_${randomBytes(8).toString('hex')}`;
  databases.push(name);
  await withServer(url, (sql) => sql`create database ${sql(name)}`);
  const own = databaseUrl(url, name);
  const db = connectDb(own, { poolMax: 2 });
  opened.push(db);
  await migrate(db, files.slice(0, chain));
  return { db, url: own };
}

/** The statements of migrations, in one transaction as at a start. */
async function migrate(db: Db, names: readonly string[]): Promise<void> {
  const texts = names.map((name) => readFileSync(new URL(name, folder), 'utf8'));
  await db.sql.begin(async (tx) => {
    for (const statement of texts.flatMap((text) => text.split('--> statement-breakpoint'))) await tx.unsafe(statement);
  });
}

interface OldEntry {
  readonly organizationId: string;
  readonly amount: bigint;
  readonly balanceAfter: bigint;
  readonly requestId: string | null;
}

async function insertEntry(db: Db, entry: OldEntry): Promise<string> {
  const id = uuidv7();
  const isCredit = entry.amount > 0n;
  const amount = isCredit ? entry.amount : -entry.amount;
  await db.sql`INSERT INTO ledger_entries (id, organization_id, type, debit_account, credit_account, amount, currency,
      balance_after, request_id, reference, created_at)
    VALUES (${id}, ${entry.organizationId}, ${isCredit ? 'credit' : 'usage'}, ${isCredit ? 'funding' : 'wallet'},
      ${isCredit ? 'wallet' : 'revenue'}, ${amount.toString()}, 'USD', ${entry.balanceAfter.toString()},
      ${entry.requestId}, ${isCredit ? 'opening' : null}, '2026-11-01T00:00:00Z')`;
  return id;
}

async function insertRecord(db: Db, organizationId: string, id: string, tokens: string): Promise<void> {
  await db.sql`INSERT INTO usage_records (id, organization_id, project_id, key_id, model, endpoint, stream, service_tier,
      status, outcome, reason, cache_hit, input_tokens, input_cached_tokens, output_tokens, output_reasoning_tokens,
      usage_source, cost, written_off, currency, price_version_id, queued_ms, first_byte_ms, total_ms, client_request_id)
    VALUES (${id}, ${organizationId}, ${organizationId}, ${organizationId}, 'small', '/v1/embeddings', false, 'flex', 200,
      'completed', 'why', false, ${tokens}, 0, 5, 0, 'engine', ${usd.toString()}, 0, 'USD', ${organizationId}, 1, 2, 3, 'mine')`;
  await db.sql`INSERT INTO usage_hourly VALUES (${organizationId},
    date_trunc('hour', to_timestamp(${Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) / 1000}), 'UTC'),
    ${organizationId}, ${organizationId}, 'small', 1, 1, 0, 0, 0, 0, ${tokens}, 0, 5, 0, ${usd.toString()})`;
}

/** The price of these records, whose id is that of their organization: 10 and 5 tokens come to 1 USD. */
async function insertPrice(db: Db, id: string): Promise<void> {
  await db.sql`INSERT INTO models VALUES ('small', now())`;
  await db.sql`INSERT INTO price_versions (id, model_id, tier, input_per_mtok_micro_usd, cached_input_per_mtok_micro_usd,
      output_per_mtok_micro_usd, currency, effective_from)
    VALUES (${id}, 'small', 'flex', 0, 0, ${(usd / 5n).toString()}, 'USD', now())`;
}

describe('books from before the ledger chain', () => {
  afterAll(async () => {
    for (const db of opened) await db.close();
    const { url } = inject('testServer');
    for (const name of databases) await withServer(url, (sql) => sql`drop database ${sql(name)} with (force)`);
  });

  it('are migrated unchanged, in their order, and verify', async () => {
    const { db, url } = await openOldBooks();
    const organizationId = uuidv7();
    const months = [Date.UTC(2026, 8, 3), Date.UTC(2026, 9, 3)];
    await db.sql.unsafe(`CREATE TABLE usage_records_2026_09 PARTITION OF usage_records
      FOR VALUES FROM ('${uuidLowerBound(Date.UTC(2026, 8))}') TO ('${uuidLowerBound(Date.UTC(2026, 9))}')`);
    const ids = months.map((ms) => uuidLowerBound(ms));
    await insertEntry(db, { organizationId, amount: 5n * usd, balanceAfter: 5n * usd, requestId: null });
    for (const [i, id] of ids.entries()) {
      await insertRecord(db, organizationId, id, '10');
      await insertEntry(db, { organizationId, amount: -usd, balanceAfter: (4n - BigInt(i)) * usd, requestId: id });
    }
    await db.sql`INSERT INTO wallets VALUES (${organizationId}, 'USD', ${(3n * usd).toString()}, now())`;
    await insertPrice(db, organizationId);
    await migrate(db, files.slice(chain));
    const { metering, history, close } = await openTestBooks({ db, databaseUrl: url });
    expect(await verifyBooks(db)).toMatchObject({ organizations: 1, entries: 3, findings: [] });
    const found = await metering.reports.readRecord({ organizationId, id: ids[0] ?? '', keyId: null });
    expect(found?.facts).toBeNull();
    expect(found?.record).toEqual({
      id: ids[0],
      organizationId,
      projectId: organizationId,
      keyId: organizationId,
      model: 'small',
      endpoint: '/v1/embeddings',
      stream: false,
      serviceTier: 'flex',
      status: 200,
      outcome: 'completed',
      reason: 'why',
      cacheHit: false,
      usage: { inputTokens: 10, cachedTokens: 0, cacheWriteTokens: 0, outputTokens: 5, reasoningTokens: 0 },
      usageSource: 'engine',
      costPicoUsd: usd,
      writtenOffPicoUsd: 0n,
      priceVersionId: organizationId,
      queuedMs: 1,
      firstByteMs: 2,
      totalMs: 3,
      clientRequestId: 'mine',
    });
    const page = await history.ledgerLines(organizationId, { limit: 10, after: null });
    expect(page.lines.map(({ requestId, balanceAfterPicoUsd }) => [requestId, balanceAfterPicoUsd])).toEqual([
      [ids[1], 3n * usd],
      [ids[0], 4n * usd],
      [null, 5n * usd],
    ]);
    const summary = await history.summarize({
      organizationId,
      keyId: null,
      fromMs: Date.UTC(2026, 0),
      toMs: Date.UTC(2027, 0),
      groupBy: ['day'],
      groupsMax: 10,
    });
    expect(summary).toMatchObject({ rows: [{ requests: 1 }, { requests: 1 }], totals: { costPicoUsd: 2n * usd } });
    await close();
  });

  it('store a count beyond integer as the largest integer, with its original charge', async () => {
    const { db } = await openOldBooks();
    const organizationId = uuidv7();
    await insertRecord(db, organizationId, uuidv7(), '9000000000000000');
    await migrate(db, files.slice(chain));
    const rows = await db.sql`SELECT input_tokens, cost FROM usage_records`;
    expect([...rows]).toEqual([{ input_tokens: 2_147_483_647, cost: usd.toString() }]);
  });

  it('get an adjustment with a note for a balance below zero', async () => {
    const { db } = await openOldBooks();
    const organizationId = uuidv7();
    await insertEntry(db, { organizationId, amount: usd, balanceAfter: usd, requestId: null });
    await insertEntry(db, { organizationId, amount: -3n * usd, balanceAfter: -2n * usd, requestId: uuidv7() });
    await db.sql`INSERT INTO wallets VALUES (${organizationId}, 'USD', ${(-2n * usd).toString()}, now())`;
    await migrate(db, files.slice(chain));
    const wallet = createWallet({ db, clock: systemClock, audit: createAudit({ clock: systemClock }) });
    expect(await wallet.verify(organizationId)).toMatchObject({ balanced: true, balancePicoUsd: 0n, entries: 3 });
    const { entries } = await wallet.ledger(organizationId, { limit: 1, before: null });
    expect(entries).toMatchObject([
      { type: 'adjustment', amountPicoUsd: 2n * usd, note: 'Written off: the balance was below zero' },
    ]);
  });

  it('are not migrated while a gateway of the previous version runs', async () => {
    const { db, url } = await openOldBooks();
    const [id, place] = [uuidv7(), uuidv7()];
    await db.sql`INSERT INTO gateways VALUES (${id}, ${place}, now(), now(), false)`;
    const other = postgres(url, { max: 1 });
    const beating = setInterval(() => void other`UPDATE gateways SET last_seen_at = clock_timestamp()`.execute(), 300);
    try {
      await expect(migrate(db, files.slice(chain))).rejects.toThrow('stop all gateways, then start this one');
    } finally {
      clearInterval(beating);
      await other.end();
    }
    // One that died says nothing more, and keeps nobody waiting.
    await migrate(db, files.slice(chain));
  });
});
