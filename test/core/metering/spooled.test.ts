import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openBillingStore } from '#app/books.ts';
import { systemClock } from '#base/clock.ts';
import { connectDb } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { createQuarantineReview, type UsageRecord } from '#core/metering/metering.ts';
import { recordJson } from '#core/metering/records/spooled-record.ts';
import {
  costPicoUsd,
  creditPicoUsd,
  spoolAfterMs,
  type Organization,
  useBooksBehindProxy,
} from './books-behind-proxy.ts';
import { recordOf } from '#test/metering/recorded-usage.ts';
import { openTestBooks } from '#test/metering/test-books.ts';

const bench = useBooksBehindProxy();

const settle = (organization: Organization) => bench.books.metering.settle(recordOf(organization, Date.now()));

/** Until nothing is in the spool any more. */
async function replayed(): Promise<void> {
  await expect.poll(() => bench.books.metering.spooled).toBe(0);
}

async function expectBooked({ id: organizationId }: Organization, requests: number): Promise<void> {
  const { history } = bench.books;
  const search = { keyId: null, projectId: null, model: null, outcome: null, endUser: null, status: null, error: null };
  const all = { organizationId, ...search, fromMs: null, toMs: null };
  const { records } = await history.listRecords({ ...all, before: null, limit: 100 });
  const day = { organizationId, keyId: null, fromMs: Date.now() - 86_400_000, toMs: Date.now() + 3_600_000 };
  const summary = await history.summarize({ ...day, groupBy: [], groupsMax: 10 });
  expect(records).toHaveLength(requests);
  expect(summary).toMatchObject({ totals: { requests } });
  expect(await bench.books.wallet.balance(organizationId)).toBe(creditPicoUsd - BigInt(requests) * costPicoUsd);
  expect(await bench.books.wallet.verify(organizationId)).toMatchObject({ balanced: true, entriesBroken: 0 });
}

describe('usage while the database is unavailable', () => {
  it.each(['refuse', 'reset', 'close', 'silence'] as const)(
    'by %s is kept in the spool, and booked once when the database is back',
    async (way) => {
      const organization = await bench.openOrganization();
      expect(await settle(organization)).toBe('booked');
      if (way === 'refuse') bench.proxy.refuse();
      else bench.proxy.answerWith(way);
      const settled = await Promise.all(Array.from({ length: 20 }, () => settle(organization)));
      expect(settled.every((durable) => durable === 'spooled')).toBe(true);
      expect(bench.books.metering.healthy).toBe(true);
      await expectBooked(organization, 1);
      bench.proxy.restore();
      await replayed();
      await expectBooked(organization, 21);
      // A file of the spool whose entries are all booked may still be on its way out: until then what comes goes there.
      await expect.poll(() => settle(organization)).toBe('booked');
    },
  );

  it('keeps the requested model of a fallback', async () => {
    const organization = await bench.openOrganization();
    bench.proxy.refuse();
    const record = recordOf(organization, Date.now(), { fallbackFor: 'asked' });
    expect(await bench.books.metering.settle(record)).toBe('spooled');
    bench.proxy.restore();
    await replayed();
    const ref = { organizationId: organization.id, id: record.id, keyId: null };
    const found = await bench.books.metering.reports.readRecord(ref);
    expect(found?.record).toMatchObject({ model: 'small', fallbackFor: 'asked' });
  });

  it('is booked by the next gateway on the data folder after the gateway was killed', async () => {
    const organization = await bench.openOrganization();
    const folder = await mkdtemp(join(tmpdir(), 'hg-'));
    const first = await openTestBooks({ db: bench.db, databaseUrl: bench.proxy.url, dataDir: folder, spoolAfterMs });
    bench.proxy.refuse();
    for (let index = 0; index < 5; index += 1) await first.metering.settle(recordOf(organization, Date.now()));
    await first.metering.close(0);
    bench.proxy.restore();
    const told: string[] = [];
    const second = await openTestBooks({
      db: bench.db,
      databaseUrl: bench.proxy.url,
      dataDir: folder,
      onUnspooled: (records) => void told.push(...records.map(({ id }) => id)),
    });
    await expectBooked(organization, 5);
    expect(told).toHaveLength(5);
    await second.close();
    await first.books.close();
    await rm(folder, { recursive: true });
  });
});

describe('a commit whose answer is lost or slow', () => {
  it('is booked once when the answer is lost', async () => {
    const organization = await bench.openOrganization();
    bench.proxy.loseNextAnswer();
    expect(await settle(organization)).toBe('spooled');
    await replayed();
    expect(bench.proxy.lost).toBe(1);
    await expectBooked(organization, 1);
  });

  it('delays no request when the answer is slow', async () => {
    const organization = await bench.openOrganization();
    const release = bench.proxy.holdAnswers();
    const settled = await Promise.all(Array.from({ length: 10 }, () => settle(organization)));
    expect(settled).toEqual(Array.from({ length: 10 }, () => 'spooled'));
    release();
    await replayed();
    await expectBooked(organization, 10);
  });
});

describe('a locked wallet', () => {
  it('delays only the booking of its own organization, whose requests are still answered', async () => {
    const [locked, free] = [await bench.openOrganization(), await bench.openOrganization()];
    const blocker = connectDb(bench.database.url, { poolMax: 1 });
    try {
      await blocker.sql.begin(async (sql) => {
        await sql`select 1 from wallets where organization_id = ${locked.id} for update`;
        await Promise.all([settle(locked), settle(free), settle(locked), settle(free)]);
        await expect.poll(() => bench.books.wallet.balance(free.id)).toBe(creditPicoUsd - 2n * costPicoUsd);
        await expectBooked(free, 2);
        await settle(free);
        await expect.poll(() => bench.books.wallet.balance(free.id)).toBe(creditPicoUsd - 3n * costPicoUsd);
        // One that is free is spooled too where its commit is slow, and leaves the spool a moment after it is booked.
        await expect.poll(() => bench.books.metering.spooled).toBe(2);
        expect(bench.books.metering.healthy).toBe(true);
      });
    } finally {
      await blocker.close();
    }
    await replayed();
    await expectBooked(locked, 2);
  });
});

describe('a record that an operator discarded while it was in the spool', () => {
  interface Told {
    readonly id: string;
    readonly isBooked: boolean;
  }

  /** Books of their own, whose spool has two records: one that is in quarantine as well, and another one. */
  async function spoolTwo(more: Partial<UsageRecord> = {}) {
    const organization = await bench.openOrganization();
    const folder = await mkdtemp(join(tmpdir(), 'hg-'));
    const told: Told[] = [];
    const own = await openTestBooks({
      db: bench.db,
      databaseUrl: bench.proxy.url,
      dataDir: folder,
      spoolAfterMs,
      onUnspooled: (records, isBooked) => void told.push(...records.map(({ id }) => ({ id, isBooked }))),
    });
    bench.proxy.refuse();
    const [given, other] = [recordOf(organization, Date.now(), more), recordOf(organization, Date.now())];
    for (const record of [given, other]) expect(await own.metering.settle(record)).toBe('spooled');
    await bench.db.sql`insert into usage_quarantine (id, organization_id, record, error, created_at)
      values (${given.id}, ${organization.id}, ${recordJson(given)}, 'a test of ours', now())`;
    const replayed = async (): Promise<void> => {
      await expect.poll(() => own.metering.spooled).toBe(0);
      await own.close();
      await rm(folder, { recursive: true });
    };
    return { organization, given, other, told, replayed };
  }

  async function discard({ id, organizationId }: UsageRecord): Promise<void> {
    const clock = systemClock;
    const review = createQuarantineReview({
      db: bench.db,
      clock,
      wallet: bench.books.wallet,
      audit: createAudit({ clock }),
    });
    expect(await review.discard({ id, author: systemAuthor, organizationId }, 'a test of ours')).toBe('discarded');
    expect(await review.read(id)).toBeNull();
    expect((await review.list(100, null)).map((listed) => listed.id)).not.toContain(id);
    const decision = { id, author: systemAuthor, organizationId };
    expect(await review.retry(decision)).toEqual({ kind: 'not_found' });
    expect(await review.discard(decision, 'again')).toBe('not_found');
  }

  it('is not booked, and is reported as not booked', async () => {
    const { organization, given, other, told, replayed: ownReplayed } = await spoolTwo();
    await discard(given);
    bench.proxy.restore();
    await ownReplayed();
    await expectBooked(organization, 1);
    expect(told).toContainEqual({ id: given.id, isBooked: false });
    expect(told).toContainEqual({ id: other.id, isBooked: true });
    expect(told).toHaveLength(2);
  });

  it.each([20, 200_000])(
    'leaves its Idempotency-Key to the next request, with an answer of %d bytes',
    async (bytes) => {
      const keyId = uuidv7();
      const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
      const kept = { bodyHash: Buffer.alloc(32, 1), expiresAt, keeps: true, answer: randomBytes(bytes) };
      const {
        organization,
        given,
        replayed: ownReplayed,
      } = await spoolTwo({
        claim: { keyId, idempotencyKey: 'given-up', ...kept },
      });
      await discard(given);
      bench.proxy.restore();
      await ownReplayed();
      await expectBooked(organization, 1);
      expect(await bench.db.sql`select request_id from idempotency_keys where key_id = ${keyId}`).toEqual([]);
    },
  );

  it('has used nothing in reports for its hold, waiting or discarded, until it is booked', async () => {
    const { organization, given, other, replayed: ownReplayed } = await spoolTwo();
    const { reports } = bench.books.metering;
    const nothing = new Map([[given.id, { chargedPicoUsd: 0n, tokens: 0 }]]);
    expect(await reports.findSettled(organization.id, [given.id])).toEqual(nothing);
    await discard(given);
    expect(await reports.findSettled(organization.id, [given.id])).toEqual(nothing);
    expect(await reports.findSettled(uuidv7(), [given.id])).toEqual(new Map());
    bench.proxy.restore();
    await ownReplayed();
    expect(await reports.findSettled(organization.id, [given.id, other.id])).toEqual(
      new Map([...nothing, [other.id, { chargedPicoUsd: costPicoUsd, tokens: 15 }]]),
    );
  });

  it('is not booked by a gateway that was waiting for its row', async () => {
    const { organization, given, replayed: ownReplayed } = await spoolTwo();
    await bench.db.sql.begin(async (sql) => {
      await sql`select 1 from usage_quarantine where id = ${given.id} for update`;
      await sql`update usage_quarantine set discarded_at = now() where id = ${given.id}`;
      bench.proxy.restore();
      const waiting = async () =>
        (
          await bench.db
            .sql`select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
          and query like '%charge_groups%'`
        ).length;
      await expect.poll(waiting, { interval: 20 }).toBeGreaterThan(0);
    });
    await ownReplayed();
    await expectBooked(organization, 1);
  });
});

describe('a record that the books reject', () => {
  it('is put in quarantine with its error, and charges nothing', async () => {
    const organization = await bench.openOrganization();
    const record = { ...recordOf(organization, Date.now()), clientRequestId: 'a\0b' };
    await expect(bench.books.metering.settle(record)).rejects.toThrow('unsupported Unicode escape sequence');
    const [kept] = await bench.books.metering.listQuarantined(1);
    expect(kept).toMatchObject({ id: record.id, organizationId: organization.id });
    expect(kept?.sqlState).toMatch(/^22/);
    expect(JSON.parse(kept?.record ?? '')).toMatchObject({ id: record.id, costPicoUsd: costPicoUsd.toString() });
    await expectBooked(organization, 0);
  });
});

describe('an entry of the spool that is not a record', () => {
  it('is put in quarantine once, at any number of starts', async () => {
    const data = Buffer.from(`no record ${randomBytes(8).toString('hex')}`);
    const find = () => bench.db.sql<{ id: string }[]>`
      select id::text from usage_quarantine where record = ${data.toString('base64')}`;
    const ids: string[][] = [];
    for (let start = 0; start < 2; start += 1) {
      const ownDir = await mkdtemp(join(tmpdir(), 'hg-'));
      const place = { db: bench.db, databaseUrl: bench.database.url, dataDir: ownDir, gatewayDir: ownDir };
      const left = await openBillingStore({ ...place, slot: 0, slots: 1, log: createLog('silent') });
      await left.spool.append([data]);
      await left.spool.close();
      await left.books.close();
      const own = await openTestBooks(place);
      await expect.poll(() => own.metering.spooled).toBe(0);
      ids.push((await find()).map(({ id }) => id));
      await own.close();
      await rm(ownDir, { recursive: true });
    }
    expect(ids[0]).toHaveLength(1);
    expect(ids[1]).toEqual(ids[0]);
  });
});
