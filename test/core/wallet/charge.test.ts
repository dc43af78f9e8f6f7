import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isUniqueViolation } from '#base/db.ts';
import { uuidv7 } from '#base/id.ts';
import { type Charge } from '#core/wallet/wallet.ts';
import { bookingOf, sumAccounts, useWallet } from './test-wallet.ts';

const chargeOf = (organizationId: string, amountPicoUsd: bigint): Charge => ({
  requestId: uuidv7(),
  organizationId,
  amountPicoUsd,
});

describe('a batch of charges', () => {
  const bench = useWallet();

  it('with an amount that is not above zero is a broken invariant', async () => {
    const organizationId = await bench.openWallet(10n);
    const charge = (amountPicoUsd: bigint) => () =>
      bench.wallet.chargeStatement(bench.db.sql, [chargeOf(organizationId, amountPicoUsd)]);
    expect(charge(0n)).toThrow(RangeError);
    expect(charge(-1n)).toThrow(RangeError);
    expect(await bench.wallet.balance(organizationId)).toBe(10n);
  });

  it('of nothing changes nothing', async () => {
    const organizationId = await bench.openWallet(10n);
    await bench.wallet.chargeStatement(bench.db.sql, []);
    expect(await bench.wallet.balance(organizationId)).toBe(10n);
  });

  it('books an entry per request with a running balance, and each balance once', async () => {
    const [one, two] = [await bench.openWallet(100n), await bench.openWallet(100n)];
    const charges = [chargeOf(one, 1n), chargeOf(two, 5n), chargeOf(one, 10n), chargeOf(one, 20n)];
    await bench.wallet.chargeStatement(bench.db.sql, charges);
    const page = await bench.wallet.ledger(one, { limit: 3, cursor: null });
    expect(page.entries.map((entry) => [entry.amountPicoUsd, entry.balanceAfterPicoUsd])).toEqual([
      [-20n, 69n],
      [-10n, 89n],
      [-1n, 99n],
    ]);
    expect(page.entries[0]).toMatchObject({ type: 'usage', requestId: charges[3]?.requestId, reference: null });
    expect(await bench.wallet.balance(two)).toBe(95n);
  });

  it('that is repeated, whole or in part, charges only what is new', async () => {
    const organizationId = await bench.openWallet(100n);
    const charges = [chargeOf(organizationId, 1n), chargeOf(organizationId, 2n)];
    await bench.wallet.chargeStatement(bench.db.sql, charges);
    await bench.wallet.chargeStatement(bench.db.sql, charges);
    const more = [...charges, chargeOf(organizationId, 4n)];
    await bench.otherWallet.chargeStatement(bench.otherDb.sql, [...more, ...more]);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({
      balanced: true,
      balancePicoUsd: 93n,
      entries: 4,
    });
  });

  it('whose transaction is rolled back leaves nothing', async () => {
    const organizationId = await bench.openWallet(100n);
    const undone = bench.db.sql.begin(async (sql) => {
      await bench.wallet.chargeStatement(sql, [chargeOf(organizationId, 1n)]);
      throw new Error('undone');
    });
    await expect(undone).rejects.toThrow('undone');
    expect(await bench.wallet.verify(organizationId)).toMatchObject({
      balanced: true,
      balancePicoUsd: 100n,
      entries: 1,
    });
  });

  it('keeps the books of an organization that never had a wallet', async () => {
    const organizationId = uuidv7();
    await bench.wallet.chargeStatement(bench.db.sql, [chargeOf(organizationId, 7n)]);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({
      balanced: true,
      balancePicoUsd: -7n,
      entries: 1,
    });
  });

  it('charged by two gateways in the same moment counts once: the loser of the race repeats it', async () => {
    const organizationIds = await Promise.all([1, 2, 3].map(() => bench.openWallet(10_000n)));
    const charges = Array.from({ length: 60 }, (_, i) => chargeOf(organizationIds[i % 3] ?? '', 10n));
    const parties = [
      { db: bench.db, wallet: bench.wallet },
      { db: bench.otherDb, wallet: bench.otherWallet },
    ];
    const settle = async ({ db, wallet }: (typeof parties)[number], batch: Charge[]): Promise<void> => {
      for (let attempt = 0; attempt < 20; attempt += 1) {
        try {
          await db.sql.begin((sql) => [wallet.chargeStatement(sql, batch)]);
          return;
        } catch (error) {
          if (!isUniqueViolation(error, 'ledger_entries_request_key')) throw error;
        }
      }
      throw new Error('the race did not end');
    };
    const batches = Array.from({ length: 20 }, (_, i) => charges.slice(i * 3, i * 3 + 6));
    await Promise.all(batches.flatMap((batch) => parties.map((party) => settle(party, batch))));
    for (const organizationId of organizationIds) {
      expect(await bench.wallet.verify(organizationId)).toMatchObject({
        balanced: true,
        balancePicoUsd: 9_800n,
        entries: 21,
      });
    }
  });

  it('in parallel with others and with credits keeps every running balance without a gap', async () => {
    const organizationIds = await Promise.all(Array.from({ length: 5 }, () => bench.openWallet(1_000_000n)));
    const party = (i: number) =>
      i % 2 === 0 ? { db: bench.db, wallet: bench.wallet } : { db: bench.otherDb, wallet: bench.otherWallet };
    const work = Array.from({ length: 200 }, async (_, i) => {
      const { db, wallet } = party(i);
      const organizationId = organizationIds[i % 5] ?? '';
      if (i % 7 === 0) return wallet.credit(bookingOf(organizationId, 1_000n, `credit ${i}`));
      if (i % 11 === 0) return wallet.adjust(bookingOf(organizationId, -5n, `adjustment ${i}`));
      // Organizations in an order that differs by batch: locks taken in that order would block in a circle.
      const order = i % 2 === 0 ? organizationIds : organizationIds.toReversed();
      const charges = order.flatMap((id) => [chargeOf(id, BigInt(i + 1)), chargeOf(id, 3n)]);
      return db.sql.begin((sql) => [sql`SELECT 1`, wallet.chargeStatement(sql, charges)]);
    });
    await Promise.all(work);
    for (const organizationId of organizationIds) {
      const proof = await bench.wallet.verify(organizationId);
      expect(proof).toMatchObject({ balanced: true, entriesBroken: 0 });
      expect(proof.entries).toBeGreaterThan(300);
    }
    const accounts = await sumAccounts(bench.db);
    expect(Object.values(accounts).reduce((sum, total) => sum + total, 0n)).toBe(0n);
  });

  it('reads no table from end to end, also by a plan made while the ledger is empty', async () => {
    const organizationId = uuidv7();
    const statement = bench.wallet.chargeStatement(bench.db.sql, [chargeOf(organizationId, 1n)]);
    const { string: text } = await statement.describe();
    const plan = await bench.db.sql.begin(async (sql) => {
      await sql`SET LOCAL plan_cache_mode = force_generic_plan`;
      await sql.unsafe(`PREPARE charge AS ${text}`);
      return sql.unsafe(`EXPLAIN EXECUTE charge('{}', '{}', '{}', '{}', now())`);
    });
    const lines = plan.map((row) => String(Object.values(row)[0])).join('\n');
    expect(lines).toContain('Index Only Scan using ledger_entries_request_key');
    expect(lines).not.toContain('Seq Scan');
  });
});

type Step =
  | { readonly kind: 'credit'; readonly organization: number; readonly amount: bigint; readonly reference: number }
  | { readonly kind: 'adjust'; readonly organization: number; readonly amount: bigint; readonly reference: number }
  | { readonly kind: 'charge'; readonly requests: readonly number[]; readonly rolledBack: boolean };

const organization = fc.nat({ max: 2 });
const reference = fc.nat({ max: 5 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('credit'), organization, amount: fc.bigInt(1n, 10n ** 15n), reference }),
  fc.record({ kind: fc.constant('adjust'), organization, amount: fc.bigInt(-(10n ** 13n), -1n), reference }),
  fc.record({
    kind: fc.constant('charge'),
    requests: fc.array(fc.nat({ max: 30 }), { maxLength: 12 }),
    rolledBack: fc.boolean(),
  }),
);

describe('any interleaving of credits, adjustments and charges', () => {
  const bench = useWallet();

  it('keeps each balance equal to its entries, all accounts at zero, and each request charged once', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(step, { maxLength: 6 }), { minLength: 1, maxLength: 4 }), async (lanes) => {
        const organizationIds = await Promise.all([0, 1, 2].map(() => bench.openWallet(10n ** 13n)));
        const requests = Array.from({ length: 31 }, (_, i) =>
          chargeOf(organizationIds[i % 3] ?? '', BigInt(i + 1) * 1_234_567n),
        );
        const settled = new Set<number>();
        const run = async (one: Step): Promise<void> => {
          if (one.kind !== 'charge') {
            const booking = bookingOf(
              organizationIds[one.organization] ?? '',
              one.amount,
              `reference ${one.reference}`,
            );
            await (one.kind === 'credit' ? bench.wallet.credit(booking) : bench.otherWallet.adjust(booking));
            return;
          }
          const charges = one.requests.map((i) => requests[i]).filter((charge) => charge !== undefined);
          const done = await chargeOrRollBack(charges, one.rolledBack);
          if (done) for (const i of one.requests) settled.add(i);
        };
        const chargeOrRollBack = async (charges: Charge[], rolledBack: boolean): Promise<boolean> => {
          const undo = new Error('rolled back');
          for (let attempt = 0; attempt < 50; attempt += 1) {
            try {
              await bench.db.sql.begin(async (sql) => {
                await bench.wallet.chargeStatement(sql, charges);
                if (rolledBack) throw undo;
              });
              return true;
            } catch (error) {
              if (error === undo) return false;
              if (!isUniqueViolation(error)) throw error;
            }
          }
          throw new Error('the race did not end');
        };
        await Promise.all(
          lanes.map(async (lane) => {
            for (const one of lane) await run(one);
          }),
        );
        const before = await Promise.all(organizationIds.map((id) => bench.wallet.verify(id)));
        expect(before.map((proof) => proof.balanced)).toEqual([true, true, true]);
        const charged = await bench.db.sql<{ request_id: string }[]>`
          SELECT request_id FROM ledger_entries WHERE organization_id IN ${bench.db.sql(organizationIds)}
            AND type = 'usage'`;
        expect(charged).toHaveLength(settled.size);
        expect(new Set(charged.map((row) => row.request_id))).toEqual(
          new Set([...settled].map((i) => requests[i]?.requestId)),
        );
        // Everything settled once more, in one batch: nothing moves.
        await chargeOrRollBack(
          [...settled].map((i) => requests[i]).filter((charge) => charge !== undefined),
          false,
        );
        expect(await Promise.all(organizationIds.map((id) => bench.wallet.verify(id)))).toEqual(before);
        const accounts = await sumAccounts(bench.db);
        expect(Object.values(accounts).reduce((sum, total) => sum + total, 0n)).toBe(0n);
      }),
      { numRuns: 60 },
    );
  });
});
