import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { type UsageRecord, verifyBooks } from '#core/metering/metering.ts';
import { createIdempotency, type IdempotentRun } from '#core/stored-requests/stored-requests.ts';
import { costPicoUsd, type Organization, useBooksBehindProxy } from './books-behind-proxy.ts';
import { recordOf } from '#test/metering/recorded-usage.ts';

/** Requests of batches, by their Idempotency-Keys: what is charged of them has its answer until the batch is ended. */

const hourMs = 3_600_000;
const line = '§batch_x/0';
const bench = useBooksBehindProxy();

/** A gateway's knowledge of Idempotency-Keys; each is another one. */
const gateway = () =>
  createIdempotency({
    db: bench.db,
    clock: systemClock,
    log: createLog('silent'),
    gatewayId: uuidv7(),
    leaseMs: 1000,
    formerIds: () => [],
    isReplayed: () => true,
  });

interface Asked {
  readonly requestId: string;
  readonly turn: IdempotentRun;
}

/** A gateway begins with the line. */
async function ask({ id, keyId }: Organization, by = gateway(), idempotencyKey = line): Promise<Asked> {
  const requestId = uuidv7();
  const claim = { organizationId: id, keyId, idempotencyKey, requestId, bodyHash: Buffer.alloc(32, 1) };
  const result = await by.claim(claim, { signal: new AbortController().signal, onWait: () => undefined });
  if (result.kind !== 'run') throw new Error(`it does not run: ${result.kind}`);
  return { requestId, turn: result.run };
}

/** The record of what was answered. @param hours as `pass` */
function recordFor(
  organization: Organization,
  { requestId, turn }: Asked,
  answer: Buffer | null,
  hours = 0,
): UsageRecord {
  const expiresAt = new Date(Date.parse(turn.claim.expiresAt) - hours * hourMs).toISOString();
  const claim = { ...turn.claim, expiresAt, keeps: true, answer };
  return recordOf(organization, Date.now(), { id: requestId, claim });
}

/** As if so many hours had passed since. */
const pass = ({ keyId }: Organization, hours: number) =>
  bench.db
    .sql`update idempotency_keys set expires_at = expires_at - make_interval(hours => ${hours}) where key_id = ${keyId}`;

/** As where the gateway is known to be gone that runs it. */
const lapse = ({ keyId }: Organization) =>
  bench.db.sql`update idempotency_keys set lease_until = '-infinity' where key_id = ${keyId} and state = 'running'`;

async function rowOf({ keyId }: Organization) {
  const [row] = await bench.db.sql<{ request_id: string; state: string; answer: Buffer | null }[]>`
    select request_id::text, state, answer from idempotency_keys where key_id = ${keyId}`;
  return row;
}

/** Charges of records, in their order, by books that are right; null where there is none. */
async function chargedOf({ id: organizationId }: Organization, records: readonly UsageRecord[]) {
  const all = await Promise.all(
    records.map(({ id }) => bench.books.metering.reports.readRecord({ organizationId, keyId: null, id })),
  );
  expect((await verifyBooks(bench.db)).findings).toEqual([]);
  return all.map((found) => found?.record.costPicoUsd ?? null);
}

const kept = ({ keyId }: Organization) => gateway().kept(keyId, line);
const conclude = ({ keyId }: Organization) => gateway().conclude(keyId, [line]);

describe('the answer to a charged batch line', () => {
  it('is stored for two days after the day of its batch, and its charge for another week', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    const record = recordFor(organization, asked, Buffer.from('answer'));
    await bench.books.metering.settle(record);
    await pass(organization, 71);
    await gateway().deleteOld();
    expect(await conclude(organization)).toEqual([line]);
    expect(await kept(organization)).toEqual({ requestId: record.id, answer: Buffer.from('answer') });
    await pass(organization, 2);
    await gateway().deleteOld();
    expect(await rowOf(organization)).toEqual({ request_id: record.id, state: 'done', answer: null });
    expect(await conclude(organization)).toEqual([]);
    await pass(organization, 7 * 24);
    await gateway().deleteOld();
    expect(await rowOf(organization)).toBeUndefined();
  });

  it('is stored when it is booked from the spool late', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await pass(organization, 47);
    await gateway().deleteOld();
    await bench.books.metering.settle(recordFor(organization, asked, Buffer.from('answer'), 47));
    expect(await conclude(organization)).toEqual([line]);
    expect(await kept(organization)).toEqual({ requestId: asked.requestId, answer: Buffer.from('answer') });
  });

  it('is found at any age until it is swept, as in a restored database', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await bench.books.metering.settle(recordFor(organization, asked, Buffer.from('answer')));
    await pass(organization, 100);
    expect(await conclude(organization)).toEqual([line]);
    expect(await kept(organization)).toEqual({ requestId: asked.requestId, answer: Buffer.from('answer') });
  });

  it('is deleted when it is no longer needed, and its line is not charged again', async () => {
    const organization = await bench.openOrganization();
    const [former, next] = [await ask(organization), uuidv7()];
    const record = recordFor(organization, former, Buffer.from('answer'));
    await bench.books.metering.settle(record);
    await gateway().forget(organization.keyId, [line, '§batch_x/1']);
    expect(await rowOf(organization)).toEqual({ request_id: record.id, state: 'done', answer: null });
    const late = recordFor(organization, { ...former, requestId: next }, Buffer.from('late'), -23);
    await bench.books.metering.settle(late);
    expect(await chargedOf(organization, [record, late])).toEqual([costPicoUsd, 0n]);
    expect(await rowOf(organization)).toMatchObject({ request_id: record.id, answer: null });
  });

  it('is not deleted while its request runs, nor with another line', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await asked.turn.keep(Buffer.from('kept'));
    await gateway().forget(organization.keyId, [line]);
    expect(await rowOf(organization)).toMatchObject({ state: 'running', answer: Buffer.from('kept') });
    await bench.books.metering.settle(recordFor(organization, asked, null));
    await gateway().forget(organization.keyId, ['§batch_x/1']);
    expect(await rowOf(organization)).toMatchObject({ state: 'done', answer: Buffer.from('kept') });
  });

  it('is deleted after a day for a key set by a client', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization, gateway(), 'batch_x/0');
    await bench.books.metering.settle(recordFor(organization, asked, Buffer.from('answer')));
    await pass(organization, 25);
    await gateway().deleteOld();
    expect(await rowOf(organization)).toEqual({ request_id: asked.requestId, state: 'done', answer: null });
  });
});

describe('a batch line', () => {
  it('is charged once while its answer is stored, also when several requests are written at once', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    const records = [0, 30, 60].map((hours, at) =>
      recordFor(organization, { ...asked, requestId: uuidv7(Date.now() + at) }, Buffer.from(String(at)), hours),
    );
    await Promise.all(records.map((record) => bench.books.metering.settle(record)));
    const amounts = await chargedOf(organization, records);
    expect(amounts.filter((amount) => amount === costPicoUsd)).toHaveLength(1);
    expect(amounts.filter((amount) => amount === 0n)).toHaveLength(2);
  });

  it('is not charged after its batch has ended, however late its gateway books it', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await pass(organization, 60);
    await gateway().deleteOld();
    expect(await conclude(organization)).toEqual([]);
    const late = recordFor(organization, asked, Buffer.from('late'), 60);
    await bench.books.metering.settle(late);
    expect(await chargedOf(organization, [late])).toEqual([0n]);
    expect(await rowOf(organization)).toMatchObject({ state: 'done', answer: null });
  });
});

describe('an answer stored before its charge', () => {
  const large = randomBytes(5_000_000);

  it('is unavailable until its line is charged', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await asked.turn.keep(large);
    expect(await kept(organization)).toBeNull();
    await bench.books.metering.settle(recordFor(organization, asked, null));
    expect((await kept(organization))?.answer.equals(large)).toBe(true);
  });

  it('is available after its charge came through the spool, which does not carry the answer', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await asked.turn.keep(large);
    bench.proxy.refuse();
    expect(await bench.books.metering.settle(recordFor(organization, asked, null))).toBe('spooled');
    bench.proxy.restore();
    await expect.poll(() => bench.books.metering.spooled).toBe(0);
    expect((await kept(organization))?.answer.equals(large)).toBe(true);
  });

  it('stays when another gateway retries the line and fails, and the first request is charged late', async () => {
    const organization = await bench.openOrganization();
    const former = await ask(organization);
    await former.turn.keep(large);
    await lapse(organization);
    const other = gateway();
    const next = await ask(organization, other);
    next.turn.end({ kind: 'none' }, null);
    await other.close();
    const record = recordFor(organization, former, null);
    await bench.books.metering.settle(record);
    expect(await chargedOf(organization, [record])).toEqual([costPicoUsd]);
    expect(await kept(organization)).toMatchObject({ requestId: record.id });
    expect((await kept(organization))?.answer.equals(large)).toBe(true);
  });

  it('is replaced by the next request when nothing was charged', async () => {
    const organization = await bench.openOrganization();
    const one = gateway();
    const former = await ask(organization, one);
    await former.turn.keep(large);
    former.turn.end({ kind: 'none' }, null);
    await one.close();
    const next = await ask(organization);
    const record = recordFor(organization, next, Buffer.from('next'));
    await bench.books.metering.settle(record);
    expect(await kept(organization)).toEqual({ requestId: record.id, answer: Buffer.from('next') });
  });

  it('is rejected when another request of the line was charged meanwhile, which keeps its own answer', async () => {
    const organization = await bench.openOrganization();
    const former = await ask(organization);
    await former.turn.keep(large);
    await lapse(organization);
    const next = await ask(organization);
    const records = [recordFor(organization, former, null), recordFor(organization, next, null)] as const;
    await bench.books.metering.settle(records[0]);
    await expect(next.turn.keep(Buffer.from('next'))).rejects.toMatchObject({ code: 'billing_unavailable' });
    await bench.books.metering.settle(records[1]);
    expect(await chargedOf(organization, records)).toEqual([costPicoUsd, 0n]);
    expect((await kept(organization))?.answer.equals(large)).toBe(true);
  });

  it('is rejected once the batch has ended', async () => {
    const organization = await bench.openOrganization();
    const asked = await ask(organization);
    await asked.turn.keep(large);
    expect(await conclude(organization)).toEqual([]);
    await expect(asked.turn.keep(large)).rejects.toMatchObject({ code: 'billing_unavailable' });
    const record = recordFor(organization, asked, null);
    await bench.books.metering.settle(record);
    expect(await chargedOf(organization, [record])).toEqual([0n]);
    expect(await rowOf(organization)).toMatchObject({ state: 'done', answer: null });
  });
});
