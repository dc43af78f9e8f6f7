import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, isDatabaseUnavailable, sqlStateOf } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createAudit } from '#core/audit/audit.ts';
import { createWriter, type UsageRecord } from '#core/metering/metering.ts';
import { createWallet } from '#core/wallet/wallet.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { bookingOf, chargeOf, nothingHeld, sumAccounts, useWallet } from '#test/wallet/test-wallet.ts';

/** A charged request as the books have it. */
interface Charged {
  readonly id: string;
  readonly cost: bigint;
  readonly writtenOff: bigint;
}

describe('a batch of charges', () => {
  const bench = useWallet();

  async function chargedOf(organizationId: string): Promise<Charged[]> {
    const rows = await bench.db.sql<{ id: string; cost: string; written_off: string | null }[]>`
      SELECT id::text, cost::text, written_off::text FROM usage_records WHERE organization_id = ${organizationId} ORDER BY id`;
    return rows.map((row) => ({ id: row.id, cost: BigInt(row.cost), writtenOff: BigInt(row.written_off ?? 0) }));
  }

  it('without requests or costs changes nothing', async () => {
    const organizationId = await bench.openWallet(10n);
    await bench.writer.write([]);
    await bench.writer.write([chargeOf(organizationId, 0n)]);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({
      balanced: true,
      entries: 1,
      balancePicoUsd: 10n,
    });
  });

  it('posts one entry per organization, and updates each balance once', async () => {
    const [one, two] = [await bench.openWallet(100n), await bench.openWallet(100n)];
    const charges = [chargeOf(one, 1n), chargeOf(two, 5n), chargeOf(one, 10n), chargeOf(one, 20n)];
    await bench.writer.write(charges);
    const grouped = await bench.wallet.ledger(one, { limit: 1, before: null });
    expect(grouped.entries).toMatchObject([
      {
        id: charges[0]?.id,
        type: 'usage',
        amountPicoUsd: -31n,
        balanceAfterPicoUsd: 69n,
        requests: 3,
        requestId: null,
      },
    ]);
    expect(grouped.entries[0]?.groupId).toBeGreaterThan(0);
    const alone = await bench.wallet.ledger(two, { limit: 1, before: null });
    expect(alone.entries).toMatchObject([
      { id: charges[1]?.id, requestId: charges[1]?.id, requests: 1, groupId: null, balanceAfterPicoUsd: 95n },
    ]);
    for (const id of [one, two]) expect(await bench.wallet.verify(id)).toMatchObject({ balanced: true, entries: 2 });
  });

  it('that is repeated, in full or in part, charges only new requests', async () => {
    const organizationId = await bench.openWallet(100n);
    const charges = [chargeOf(organizationId, 1n), chargeOf(organizationId, 2n)];
    await bench.writer.write(charges);
    await bench.writer.write(charges);
    const more = [...charges, chargeOf(organizationId, 4n)];
    await bench.otherWriter.write([...more, ...more]);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({
      balanced: true,
      balancePicoUsd: 93n,
      entries: 3,
    });
  });

  it('that is repeated with another amount keeps the first', async () => {
    const organizationId = await bench.openWallet(100n);
    const charge = chargeOf(organizationId, 1n);
    await bench.writer.write([charge, { ...charge, costPicoUsd: 2n }]);
    await bench.writer.write([{ ...charge, costPicoUsd: 3n }]);
    expect(await bench.wallet.balance(organizationId)).toBe(99n);
  });

  it('whose commit answer is lost charges once when it is repeated', async () => {
    const organizationId = await bench.openWallet(1_000n);
    const proxy = await startDatabaseProxy(bench.url);
    const db = connectDb(proxy.url, { poolMax: 1 });
    try {
      const wallet = createWallet({ db, clock: systemClock, audit: createAudit({ clock: systemClock }) });
      const writer = createWriter({ db, clock: systemClock, wallet });
      for (const size of [1, 7]) {
        const batch = Array.from({ length: size }, () => chargeOf(organizationId, 10n));
        proxy.loseNextAnswer();
        await untilWritten(() => writer.write(batch));
      }
      expect(proxy.lost).toBe(2);
    } finally {
      await db.close();
      await proxy.close();
    }
    expect(await bench.wallet.verify(organizationId)).toMatchObject({
      balanced: true,
      balancePicoUsd: 920n,
      entries: 3,
    });
  });

  it('in parallel with others and with credits keeps every running balance without a gap', async () => {
    const organizationIds = await Promise.all(Array.from({ length: 5 }, () => bench.openWallet(1_000_000n)));
    const work = Array.from({ length: 200 }, async (_, i) => {
      const [wallet, writer] = i % 2 === 0 ? [bench.wallet, bench.writer] : [bench.otherWallet, bench.otherWriter];
      const organizationId = organizationIds[i % 5] ?? '';
      if (i % 7 === 0) return wallet.credit(bookingOf(organizationId, 1_000n, `credit ${i}`));
      if (i % 11 === 0) return wallet.adjust(bookingOf(organizationId, -5n, `adjustment ${i}`), nothingHeld);
      // Organizations in an order that differs per batch: locks in that order would block in a circle.
      const order = i % 2 === 0 ? organizationIds : organizationIds.toReversed();
      return writer.write(order.flatMap((id) => [chargeOf(id, BigInt(i + 1)), chargeOf(id, 3n)]));
    });
    await Promise.all(work);
    for (const organizationId of organizationIds) {
      const proof = await bench.wallet.verify(organizationId);
      expect(proof).toMatchObject({ balanced: true, altered: null, entriesBroken: 0 });
      expect(proof.entries).toBeGreaterThan(150);
    }
    const accounts = await sumAccounts(bench.db);
    expect(Object.values(accounts).reduce((sum, total) => sum + total, 0n)).toBe(0n);
  });

  it('from four writers with overlapping batches in any order charges every request once', async () => {
    const organizationIds = await Promise.all(Array.from({ length: 6 }, () => bench.openWallet(10n ** 9n)));
    const records = Array.from({ length: 400 }, (_, i) => chargeOf(organizationIds[i % 6] ?? '', BigInt(i + 1)));
    const writers = [bench.writer, bench.otherWriter, bench.writer, bench.otherWriter];
    const shuffled = (seed: number): UsageRecord[] =>
      records
        .map((record, i) => ({ record, rank: Math.sin(seed * 7919 + i * 104_729) }))
        .toSorted((a, b) => a.rank - b.rank)
        .map(({ record }) => record);
    await Promise.all(
      writers.map(async (writer, lane) => {
        const own = shuffled(lane);
        for (let from = 0; from < own.length; from += 17)
          await untilWritten(() => writer.write(own.slice(from, from + 25)));
      }),
    );
    for (const [at, organizationId] of organizationIds.entries()) {
      const expected = records.filter((_, i) => i % 6 === at).reduce((sum, { costPicoUsd }) => sum + costPicoUsd, 0n);
      expect(await bench.wallet.verify(organizationId)).toMatchObject({
        balanced: true,
        altered: null,
        balancePicoUsd: 10n ** 9n - expected,
        usagePicoUsd: expected,
      });
      const charged = await chargedOf(organizationId);
      expect(charged.reduce((sum, { cost }) => sum + cost, 0n)).toBe(expected);
    }
  });

  it('scans no table in full, also with a plan made while the books were empty', async () => {
    const texts: string[] = [];
    const sql = new Proxy(bench.db.sql, {
      get(target, name, receiver) {
        if (name !== 'unsafe') return Reflect.get(target, name, receiver);
        return (text: string, ...rest: []) => {
          texts.push(text);
          return target.unsafe(text, ...rest);
        };
      },
    });
    const writer = createWriter({ db: { ...bench.db, sql }, clock: systemClock, wallet: bench.wallet });
    await writer.write([chargeOf(await bench.openWallet(10n), 1n)]);
    const plan = await bench.db.sql.begin(async (tx) => {
      await tx`SET LOCAL plan_cache_mode = force_generic_plan`;
      await tx.unsafe(`PREPARE charge AS ${texts.find((text) => text.includes('ledger_entries')) ?? ''}`);
      return tx.unsafe(`EXPLAIN EXECUTE charge('[]', '[]', '[]', '[]', '{}', '{}', now(), '0')`);
    });
    const lines = plan.map((row) => String(Object.values(row)[0])).join('\n');
    expect(lines).toContain('Conflict Arbiter Indexes: usage_requests_organization_id_pk');
    expect(lines).toContain('Conflict Arbiter Indexes: idempotency_keys_key_id_idempotency_key_pk');
    // The two dictionaries of codes are small here; a plan is made anew once ANALYZE finds that they have grown.
    expect(lines.replaceAll(/Seq Scan on usage_(?:ids|names) /g, '')).not.toContain('Seq Scan');
  });
});

/** Two batches that wait for one another end when one gets an error; a lost connection is reported once more. */
async function untilWritten<T>(write: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await write();
    } catch (error) {
      if (sqlStateOf(error) !== '40P01' && !isDatabaseUnavailable(error)) throw error;
    }
  }
}

describe('charges beyond the balance of a wallet', () => {
  const bench = useWallet();

  async function recordsOf(organizationId: string) {
    const rows = await bench.db.sql<{ cost: string; written_off: string | null; reason: string | null }[]>`
      SELECT cost::text, written_off::text, reason FROM usage_records WHERE organization_id = ${organizationId} ORDER BY id`;
    return rows.map((row) => [row.cost, row.written_off, row.reason]);
  }

  it('take the rest in the order of the requests, and write off what is missing', async () => {
    const [poor, rich] = [await bench.openWallet(25n), await bench.openWallet(1_000n)];
    const charges = [10n, 10n, 10n, 10n].map((cost) => chargeOf(poor, cost, { reason: 'timeout' }));
    const { writtenOff } = await bench.writer.write([...charges.toReversed(), chargeOf(rich, 7n)]);
    expect(writtenOff).toEqual(
      new Map([
        [charges[2]?.id, 5n],
        [charges[3]?.id, 10n],
      ]),
    );
    expect(await recordsOf(poor)).toEqual([
      ['10', '0', 'timeout'],
      ['10', '0', 'timeout'],
      ['5', '5', 'timeout'],
      ['0', '10', 'timeout'],
    ]);
    expect(await bench.wallet.verify(poor)).toMatchObject({ balanced: true, balancePicoUsd: 0n, usagePicoUsd: 25n });
    expect(await bench.wallet.balance(rich)).toBe(993n);
  });

  it('are posted once when they are repeated, also after a credit', async () => {
    const organizationId = await bench.openWallet(5n);
    const charges = [chargeOf(organizationId, 4n), chargeOf(organizationId, 4n)];
    await bench.writer.write(charges);
    await bench.wallet.credit(bookingOf(organizationId, 100n, 'more'));
    const { writtenOff } = await bench.writer.write(charges);
    expect(writtenOff.size).toBe(0);
    expect(await recordsOf(organizationId)).toEqual([
      ['4', '0', null],
      ['1', '3', null],
    ]);
    expect(await bench.wallet.balance(organizationId)).toBe(100n);
  });

  it('add to the write-off of the record itself', async () => {
    const organizationId = await bench.openWallet(1n);
    await bench.writer.write([chargeOf(organizationId, 4n, { writtenOffPicoUsd: 2n })]);
    expect(await recordsOf(organizationId)).toEqual([['1', '5', null]]);
  });

  it('are written off in full for an organization without a wallet', async () => {
    const organizationId = uuidv7();
    const charge = chargeOf(organizationId, 7n);
    expect((await bench.writer.write([charge])).writtenOff).toEqual(new Map([[charge.id, 7n]]));
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: true, balancePicoUsd: 0n, entries: 0 });
    expect(await recordsOf(organizationId)).toEqual([['0', '7', null]]);
  });

  it('by several writers at once never take a balance below zero', async () => {
    const organizationIds = await Promise.all(Array.from({ length: 3 }, () => bench.openWallet(5_000n)));
    const batches = Array.from({ length: 40 }, () =>
      organizationIds.flatMap((id) => [chargeOf(id, 70n), chargeOf(id, 90n)]),
    );
    const results = await Promise.all(
      batches.map((batch, i) => untilWritten(() => (i % 2 === 0 ? bench.writer : bench.otherWriter).write(batch))),
    );
    const missing = results.flatMap(({ writtenOff }) => [...writtenOff.values()]).reduce((sum, n) => sum + n, 0n);
    expect(missing).toBe(3n * (40n * 160n - 5_000n));
    for (const organizationId of organizationIds) {
      expect(await bench.wallet.verify(organizationId)).toMatchObject({
        balanced: true,
        balancePicoUsd: 0n,
        usagePicoUsd: 5_000n,
      });
    }
  });

  it('by hand are rejected by the database', async () => {
    const organizationId = await bench.openWallet(1n);
    await expect(
      bench.db.sql`UPDATE wallets SET balance = -1 WHERE organization_id = ${organizationId}`,
    ).rejects.toThrow('wallets_balance_not_negative');
  });
});

type Step =
  | { readonly kind: 'credit'; readonly organization: number; readonly amount: bigint; readonly reference: number }
  | { readonly kind: 'adjust'; readonly organization: number; readonly amount: bigint; readonly reference: number }
  | { readonly kind: 'charge'; readonly requests: readonly number[] };

const organization = fc.nat({ max: 2 });
const reference = fc.nat({ max: 5 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('credit'), organization, amount: fc.bigInt(1n, 10n ** 15n), reference }),
  fc.record({ kind: fc.constant('adjust'), organization, amount: fc.bigInt(-(10n ** 7n), -1n), reference }),
  fc.record({ kind: fc.constant('charge'), requests: fc.array(fc.nat({ max: 30 }), { maxLength: 12 }) }),
);

describe('any interleaving of credits, adjustments and charges', () => {
  const bench = useWallet();

  it('keeps each balance equal to its entries, all accounts at zero, and each request charged once', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(step, { maxLength: 6 }), { minLength: 1, maxLength: 4 }), async (lanes) => {
        // All requests together cost more than a wallet begins with.
        const organizationIds = await Promise.all([0, 1, 2].map(() => bench.openWallet(10n ** 8n)));
        const requests = Array.from({ length: 31 }, (_, i) =>
          chargeOf(organizationIds[i % 3] ?? '', BigInt(i + 1) * 1_234_567n),
        );
        const settled = new Set<number>();
        const chosen = (indices: Iterable<number>): UsageRecord[] =>
          [...indices].map((i) => requests[i]).filter((charge) => charge !== undefined);
        const run = async (one: Step): Promise<void> => {
          if (one.kind === 'charge') {
            await untilWritten(() => bench.writer.write(chosen(one.requests)));
            for (const i of one.requests) settled.add(i);
            return;
          }
          const booking = bookingOf(organizationIds[one.organization] ?? '', one.amount, `reference ${one.reference}`);
          await (one.kind === 'credit' ? bench.wallet.credit(booking) : bench.otherWallet.adjust(booking, nothingHeld));
        };
        await Promise.all(
          lanes.map(async (lane) => {
            for (const one of lane) await run(one);
          }),
        );
        const before = await Promise.all(organizationIds.map((id) => bench.wallet.verify(id)));
        expect(before.map((proof) => proof.balanced)).toEqual([true, true, true]);
        const booked = await bench.db.sql<{ id: string; total: string }[]>`
          SELECT id::text, (cost + coalesce(written_off, 0))::text AS total FROM usage_records
          WHERE organization_id IN ${bench.db.sql(organizationIds)}`;
        expect(new Map(booked.map((row) => [row.id, BigInt(row.total)]))).toEqual(
          new Map(chosen(settled).map(({ id, costPicoUsd }) => [id, costPicoUsd])),
        );
        // Everything settled once more, in one batch: nothing moves.
        await bench.writer.write(chosen(settled));
        expect(await Promise.all(organizationIds.map((id) => bench.wallet.verify(id)))).toEqual(before);
        const accounts = await sumAccounts(bench.db);
        expect(Object.values(accounts).reduce((sum, total) => sum + total, 0n)).toBe(0n);
      }),
      { numRuns: 40 },
    );
  });
});
