import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { createWriter, type UsageRecord, verifyBooks } from '#core/metering/metering.ts';
import { createIdempotency } from '#core/stored-requests/stored-requests.ts';
import { costPicoUsd, creditPicoUsd, type Organization, useBooksBehindProxy } from './books-behind-proxy.ts';
import { recordOf } from '#test/metering/recorded-usage.ts';
import { openTestBooks, type TestBooks } from '#test/metering/test-books.ts';

/** Requests with an Idempotency-Key: the books charge one of each key, whoever runs them and however they come. */

const bench = useBooksBehindProxy();
/** Books of another gateway, past the proxy. */
let other: TestBooks;
beforeAll(async () => {
  other = await openTestBooks({ db: bench.db, databaseUrl: bench.database.url });
});
afterAll(() => other.close());

/** A completed request of an Idempotency-Key. */
function claiming(
  organization: Organization,
  idempotencyKey: string,
  answer: Buffer | null,
  fields: Partial<UsageRecord> = {},
) {
  const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
  const { keyId } = organization;
  const claim = { keyId, idempotencyKey, bodyHash: Buffer.alloc(32, 1), expiresAt, keeps: true, answer };
  return recordOf(organization, Date.now(), { claim, ...fields });
}

async function rowOf({ keyId }: Organization, idempotencyKey: string) {
  const [row] = await bench.db.sql`select request_id::text, state, encode(answer, 'hex') as answer from idempotency_keys
    where key_id = ${keyId} and idempotency_key = ${idempotencyKey}`;
  return row;
}

/** Charges of records, in their order; null where there is none. */
async function chargedOf(organization: Organization, records: readonly UsageRecord[]) {
  const all = await Promise.all(
    records.map(({ id }) =>
      bench.books.metering.reports.readRecord({ organizationId: organization.id, keyId: null, id }),
    ),
  );
  return all.map((found) =>
    found === null ? null : [found.record.costPicoUsd, found.record.writtenOffPicoUsd, found.record.reason],
  );
}

const charged = [costPicoUsd, 0n, null];
const repeated = [0n, costPicoUsd, 'repeated_idempotency_key'];

async function expectCharged(organization: Organization, requests: number): Promise<void> {
  expect(await bench.books.wallet.balance(organization.id)).toBe(creditPicoUsd - BigInt(requests) * costPicoUsd);
  expect(await bench.books.wallet.verify(organization.id)).toMatchObject({ balanced: true, entriesBroken: 0 });
  const proof = await verifyBooks(bench.db);
  expect(proof.findings).toEqual([]);
}

describe('a request with an Idempotency-Key', () => {
  it('is charged and stores its answer in one write, and a repeated write changes neither', async () => {
    const organization = await bench.openOrganization();
    const record = claiming(organization, 'a', Buffer.from('answer'));
    for (let round = 0; round < 2; round += 1) expect(await bench.books.metering.settle(record)).toBe('booked');
    const answer = Buffer.from('answer').toString('hex');
    expect(await rowOf(organization, 'a')).toEqual({ request_id: record.id, state: 'done', answer });
    expect(await chargedOf(organization, [record])).toEqual([charged]);
    await expectCharged(organization, 1);
  });

  it('is not charged when another request of its key was, on any gateway, and records the reason', async () => {
    const organization = await bench.openOrganization();
    const [first, second, third] = ['1', '2', '3'].map((text) => claiming(organization, 'a', Buffer.from(text)));
    if (first === undefined || second === undefined || third === undefined) throw new Error('there are three');
    await other.metering.settle(first);
    await Promise.all([bench.books.metering.settle(second), bench.books.metering.settle(third)]);
    expect(await chargedOf(organization, [first, second, third])).toEqual([charged, repeated, repeated]);
    expect(await rowOf(organization, 'a')).toMatchObject({ request_id: first.id, answer: '31' });
    expect(bench.books.metering.booked(second)).toMatchObject({ chargedPicoUsd: 0n });
    expect(other.metering.booked(first)).toMatchObject({ chargedPicoUsd: costPicoUsd });
    await expectCharged(organization, 1);
  });

  it('is charged once when many of its key settle at the same time on two gateways', async () => {
    const organization = await bench.openOrganization();
    const records = Array.from({ length: 40 }, (_, index) =>
      claiming(organization, String(index % 4), Buffer.from(String(index))),
    );
    await Promise.all(records.map((record, index) => (index % 3 === 0 ? other : bench.books).metering.settle(record)));
    const amounts = await chargedOf(organization, records);
    expect(amounts.filter((amount) => amount?.[0] === costPicoUsd)).toHaveLength(4);
    for (const index of [0, 1, 2, 3]) {
      const won = records.find((_, at) => at % 4 === index && amounts[at]?.[0] === costPicoUsd);
      expect(await rowOf(organization, String(index))).toMatchObject({ request_id: won?.id, state: 'done' });
    }
    await expectCharged(organization, 4);
  });

  it('is written off when it failed midway and another request of its key was answered', async () => {
    const organization = await bench.openOrganization();
    const [done, failed, alone] = ['a', 'a', 'b'].map((key) => claiming(organization, key, null));
    if (done?.claim === undefined || failed?.claim === undefined || alone?.claim === undefined) throw new Error('none');
    await bench.books.metering.settle(done);
    const how = { outcome: 'failed', reason: 'upstream_error' } as const;
    await bench.books.metering.settle({ ...failed, ...how, claim: { ...failed.claim, keeps: false } });
    await bench.books.metering.settle({ ...alone, ...how, claim: { ...alone.claim, keeps: false } });
    const [, loser, own] = await chargedOf(organization, [done, failed, alone]);
    expect([loser, own]).toEqual([
      [0n, costPicoUsd, 'upstream_error'],
      [costPicoUsd, 0n, 'upstream_error'],
    ]);
    expect(await rowOf(organization, 'b')).toBeUndefined();
    await expectCharged(organization, 2);
  });

  it('is charged when its key has expired, and does not replace the stored answer', async () => {
    const organization = await bench.openOrganization();
    const [first, late] = ['1', '2'].map((text) => claiming(organization, 'a', Buffer.from(text)));
    if (first?.claim === undefined || late?.claim === undefined) throw new Error('there are two');
    await bench.books.metering.settle(first);
    await bench.books.metering.settle({ ...late, claim: { ...late.claim, expiresAt: new Date(0).toISOString() } });
    expect(await rowOf(organization, 'a')).toMatchObject({ request_id: first.id, answer: '31' });
    await expectCharged(organization, 2);
  });

  it('is charged at most the balance, and stores its answer', async () => {
    const organization = await bench.openOrganization();
    const record = claiming(organization, 'a', Buffer.from('x'), { costPicoUsd: creditPicoUsd + 5n });
    await bench.books.metering.settle(record);
    expect(await chargedOf(organization, [record])).toEqual([[creditPicoUsd, 5n, null]]);
    expect(await rowOf(organization, 'a')).toMatchObject({ request_id: record.id, state: 'done' });
  });
});

describe('a wallet balance', () => {
  const own = () => createWriter({ db: bench.db, clock: systemClock, wallet: bench.books.wallet });
  /** One after the other in the order of their ids. */
  const at = (index: number, picoUsd: bigint) => ({ id: uuidv7(Date.now() + index), costPicoUsd: picoUsd });

  it('stays available to others when a request is not charged because its Idempotency-Key was used', async () => {
    const organization = await bench.openOrganization();
    const done = claiming(organization, 'a', null);
    await bench.books.metering.settle(done);
    const left = creditPicoUsd - costPicoUsd;
    const batch = [
      claiming(organization, 'a', null, at(1, left)),
      claiming(organization, 'b', null, at(2, left - 3n)),
      claiming(organization, 'b', null, at(3, 2n)),
      recordOf(organization, Date.now(), at(4, 3n)),
      recordOf(organization, Date.now(), at(5, 5n)),
    ];
    const { writtenOff } = await own().write(batch);
    const amounts = await chargedOf(organization, batch);
    expect(amounts.map((amount) => amount?.slice(0, 2))).toEqual([
      [0n, left],
      [left - 3n, 0n],
      [0n, 2n],
      [3n, 0n],
      [0n, 5n],
    ]);
    expect(new Set(writtenOff.values())).toEqual(new Set([2n, 5n, left]));
    expect(await bench.books.wallet.balance(organization.id)).toBe(0n);
    expect((await verifyBooks(bench.db)).findings).toEqual([]);
  });

  it('stays available to others when a request fails and its key is answered in the same batch', async () => {
    const organization = await bench.openOrganization();
    const failed = claiming(organization, 'a', null, { ...at(1, creditPicoUsd), outcome: 'failed', reason: 'timeout' });
    if (failed.claim === undefined) throw new Error('it has one');
    const batch = [
      { ...failed, claim: { ...failed.claim, keeps: false } },
      claiming(organization, 'a', null, at(2, creditPicoUsd)),
      recordOf(organization, Date.now(), at(3, 1n)),
    ];
    await own().write(batch);
    const amounts = await chargedOf(organization, batch);
    expect(amounts.map((amount) => amount?.slice(0, 2))).toEqual([
      [0n, creditPicoUsd],
      [creditPicoUsd, 0n],
      [0n, 1n],
    ]);
    expect((await verifyBooks(bench.db)).findings).toEqual([]);
  });
});

describe('a request settled after its Idempotency-Key has expired', () => {
  const hourMs = 3_600_000;
  /** As `claiming`, of a key that stands for it until so many hours from now. */
  function claimingUntil(organization: Organization, hours: number, fields: Partial<UsageRecord> = {}) {
    const record = claiming(organization, 'a', Buffer.from('answer'), fields);
    if (record.claim === undefined) throw new Error('it has one');
    const expiresAt = new Date(Date.now() + hours * hourMs).toISOString();
    return { ...record, claim: { ...record.claim, expiresAt } };
  }

  /** As if so many hours had passed since the key was written. */
  const pass = ({ keyId }: Organization, hours: number) =>
    bench.db
      .sql`update idempotency_keys set expires_at = expires_at - make_interval(hours => ${hours}) where key_id = ${keyId}`;

  const sweep = () =>
    createIdempotency({
      db: bench.db,
      clock: systemClock,
      log: createLog('silent'),
      gatewayId: uuidv7(),
      leaseMs: 1000,
      formerIds: () => [],
      isReplayed: () => true,
    }).deleteOld();

  it.each([
    ['whole', true, repeated],
    ['broken off', false, [0n, costPicoUsd, 'upstream_error']],
  ])('is not charged when another one of the same time was (%s)', async (_what, keeps, expected) => {
    const organization = await bench.openOrganization();
    const done = claimingUntil(organization, 24);
    await bench.books.metering.settle(done);
    await pass(organization, 25);
    await sweep();
    const late = claimingUntil(organization, -1.5);
    const ending = keeps ? {} : ({ outcome: 'failed', reason: 'upstream_error' } as const);
    await bench.books.metering.settle({ ...late, ...ending, claim: { ...late.claim, keeps } });
    expect(await chargedOf(organization, [done, late])).toEqual([charged, expected]);
    expect(await rowOf(organization, 'a')).toEqual({ request_id: done.id, state: 'done', answer: null });
    await expectCharged(organization, 1);
  });

  it('is not charged beside another late one', async () => {
    const organization = await bench.openOrganization();
    const records = [-30, -29, -28].map((hours) => claimingUntil(organization, hours));
    await Promise.all(records.map((record, index) => (index === 0 ? other : bench.books).metering.settle(record)));
    await sweep();
    const later = claimingUntil(organization, -27);
    await bench.books.metering.settle(later);
    const amounts = await chargedOf(organization, [...records, later]);
    expect(amounts.filter((amount) => amount?.[0] === costPicoUsd)).toHaveLength(1);
    expect(await rowOf(organization, 'a')).toMatchObject({ state: 'done', answer: null });
    await expectCharged(organization, 1);
  });

  it('is charged when a later request uses the key, and leaves the key to a running one', async () => {
    const organization = await bench.openOrganization();
    const running = uuidv7();
    await bench.db.sql`insert into idempotency_keys
      (key_id, idempotency_key, body_hash, request_id, gateway_id, state, lease_until, expires_at)
      values (${organization.keyId}, 'a', ${Buffer.alloc(32, 1)}, ${running}, ${uuidv7()}, 'running', now(),
        now() + interval '23.5 hours')`;
    await bench.books.metering.settle(claimingUntil(organization, -1));
    expect(await rowOf(organization, 'a')).toEqual({ request_id: running, state: 'running', answer: null });
    await expectCharged(organization, 1);
  });

  it('is charged beside one of another time in the same batch, which keeps its answer', async () => {
    const organization = await bench.openOrganization();
    const records = [-1, 23.5, -1.5, -50].map((hours, i) =>
      claimingUntil(organization, hours, { id: uuidv7(Date.now() + i) }),
    );
    await createWriter({ db: bench.db, clock: systemClock, wallet: bench.books.wallet }).write(records);
    expect(await chargedOf(organization, records)).toEqual([charged, charged, repeated, charged]);
    const answer = Buffer.from('answer').toString('hex');
    expect(await rowOf(organization, 'a')).toEqual({ request_id: records[1]?.id, state: 'done', answer });
    await expectCharged(organization, 3);
  });

  it('is compared with earlier ones for a week, after which the row is deleted', async () => {
    const organization = await bench.openOrganization();
    await bench.books.metering.settle(claimingUntil(organization, 24));
    await sweep();
    expect(await rowOf(organization, 'a')).toMatchObject({ answer: Buffer.from('answer').toString('hex') });
    await pass(organization, 24 * 8 - 1);
    await sweep();
    expect(await rowOf(organization, 'a')).toMatchObject({ state: 'done', answer: null });
    await pass(organization, 1);
    await sweep();
    expect(await rowOf(organization, 'a')).toBeUndefined();
    await bench.books.metering.settle(claimingUntil(organization, 24));
    await bench.db.sql`update idempotency_keys set state = 'running' where key_id = ${organization.keyId}`;
    await pass(organization, 25);
    await sweep();
    expect(await rowOf(organization, 'a')).toBeUndefined();
  });
});

describe('an answer', () => {
  it('of 8 MB is stored with its charge, and is not replaced by a later request of its key', async () => {
    const organization = await bench.openOrganization();
    const large = randomBytes(8_000_000);
    const [first, second] = [large, randomBytes(1_000_000)].map((answer) => claiming(organization, 'a', answer));
    if (first === undefined || second === undefined) throw new Error('there are two');
    await Promise.all([first, claiming(organization, 'b', null)].map((record) => bench.books.metering.settle(record)));
    await other.metering.settle(second);
    const row = await rowOf(organization, 'a');
    expect(row).toMatchObject({ request_id: first.id, state: 'done' });
    expect(row?.['answer'] === large.toString('hex')).toBe(true);
    expect(await chargedOf(organization, [first, second])).toEqual([charged, repeated]);
    await expectCharged(organization, 2);
  });

  it.each([
    ['is booked from the spool with its charge, once', 100_000, true],
    ['that is too large for the spool is left out, and billed once all the same', 5_000_000, false],
  ])('%s', async (_what, bytes, isKept) => {
    const organization = await bench.openOrganization();
    const answer = randomBytes(bytes);
    const record = claiming(organization, 'a', answer);
    const loser = claiming(organization, 'b', answer);
    bench.proxy.refuse();
    for (const one of [record, loser]) expect(await bench.books.metering.settle(one)).toBe('spooled');
    const winner = claiming(organization, 'b', Buffer.from('w'));
    await other.metering.settle(winner);
    bench.proxy.restore();
    await expect.poll(() => bench.books.metering.spooled).toBe(0);
    const row = await rowOf(organization, 'a');
    expect(row).toMatchObject({ request_id: record.id, state: 'done' });
    expect(row?.['answer'] === (isKept ? answer.toString('hex') : null)).toBe(true);
    expect(await chargedOf(organization, [record, loser, winner])).toEqual([charged, repeated, charged]);
    await expectCharged(organization, 2);
  });
});
