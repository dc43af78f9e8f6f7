import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { type Author, createAudit } from '#core/audit/audit.ts';
import { createWallet } from '#core/wallet/wallet.ts';
import { bookingOf, chargeOf, nothingHeld, useWallet } from '#test/wallet/test-wallet.ts';

const usd = 10n ** 12n;

describe('a credit', () => {
  const bench = useWallet();

  it('is rejected for an organization without a wallet', async () => {
    const result = await bench.wallet.credit(bookingOf(uuidv7(), usd, 'invoice 1'));
    expect(result).toEqual({ kind: 'unknown_organization' });
  });

  it('of zero or less throws a RangeError', async () => {
    const organizationId = await bench.openWallet();
    await expect(bench.wallet.credit(bookingOf(organizationId, 0n, 'nothing'))).rejects.toThrow(RangeError);
    await expect(bench.wallet.credit(bookingOf(organizationId, -1n, 'less'))).rejects.toThrow(RangeError);
    expect(await bench.wallet.balance(organizationId)).toBe(0n);
  });

  it('conflicts with another amount, and with an adjustment, under its reference', async () => {
    const organizationId = await bench.openWallet();
    const first = await bench.wallet.credit(bookingOf(organizationId, usd, 'invoice 1'));
    const other = await bench.wallet.credit(bookingOf(organizationId, usd + 1n, 'invoice 1'));
    const adjustment = await bench.wallet.adjust(bookingOf(organizationId, usd, 'invoice 1'), nothingHeld);
    expect([first.kind, other.kind, adjustment.kind]).toEqual(['created', 'conflict', 'conflict']);
    expect(await bench.wallet.balance(organizationId)).toBe(usd);
  });

  it('posts one double entry, the balance and an audit row', async () => {
    const organizationId = await bench.openWallet();
    const key = { id: uuidv7(), userId: uuidv7(), serviceAccountId: null };
    const author: Author = { actor: { kind: 'key', key }, requestId: uuidv7() };
    const result = await bench.wallet.credit({
      ...bookingOf(organizationId, 5n * usd, 'invoice 1'),
      note: 'May',
      author,
    });
    if (result.kind !== 'created') throw new Error(result.kind);
    expect(result.entry).toMatchObject({ type: 'credit', amountPicoUsd: 5n * usd, balanceAfterPicoUsd: 5n * usd });
    const rows = await bench.db.sql`
      SELECT debit_account, credit_account, amount, currency, note FROM ledger_entries
      WHERE organization_id = ${organizationId}`;
    expect([...rows]).toEqual([
      { debit_account: 'funding', credit_account: 'wallet', amount: '5000000000000', currency: 'USD', note: 'May' },
    ]);
    const audited = await bench.db.sql`SELECT * FROM audit_log WHERE organization_id = ${organizationId}`;
    expect(audited).toMatchObject([
      {
        actor_user_id: key.userId,
        actor_key_id: key.id,
        action: 'wallet.credited',
        target_type: 'wallet',
        before: { balance: '0' },
        after: { balance: '5', amount: '5', reference: 'invoice 1', note: 'May' },
        request_id: author.requestId,
      },
    ]);
  });

  it('is posted once by forty parallel calls of two gateways under one reference', async () => {
    const organizationId = await bench.openWallet();
    const wallets = [bench.wallet, bench.otherWallet];
    const results = await Promise.all(
      Array.from({ length: 20 }, () =>
        wallets.map((wallet) => wallet.credit(bookingOf(organizationId, usd, 'once'))),
      ).flat(),
    );
    const kinds = results.map((result) => result.kind);
    expect(kinds.filter((kind) => kind === 'created')).toHaveLength(1);
    expect(kinds.filter((kind) => kind === 'repeated')).toHaveLength(39);
    expect(await bench.wallet.balance(organizationId)).toBe(usd);
  });

  it('applies to each organization separately under the same reference', async () => {
    const [one, two] = [await bench.openWallet(), await bench.openWallet()];
    await bench.wallet.credit(bookingOf(one, usd, 'opening'));
    const result = await bench.wallet.credit(bookingOf(two, 2n * usd, 'opening'));
    expect(result.kind).toBe('created');
  });

  it('can exceed the range of a bigint column', async () => {
    const organizationId = await bench.openWallet(10n ** 24n);
    expect(await bench.wallet.balance(organizationId)).toBe(10n ** 24n);
  });

  it('notifies listeners after its commit, and not when it is repeated', async () => {
    const organizationId = await bench.openWallet();
    const told: [string, bigint][] = [];
    const stop = bench.wallet.onCredit((id, deltaPicoUsd) => void told.push([id, deltaPicoUsd]));
    await bench.wallet.credit(bookingOf(organizationId, usd, 'a'));
    await bench.wallet.credit(bookingOf(organizationId, usd, 'a'));
    await bench.wallet.adjust(bookingOf(organizationId, -usd, 'b'), nothingHeld);
    stop();
    await bench.wallet.credit(bookingOf(organizationId, usd, 'c'));
    expect(told).toEqual([
      [organizationId, usd],
      [organizationId, -usd],
    ]);
  });

  it('notifies listeners before a balance that includes it is returned', async () => {
    const organizationId = await bench.openWallet();
    const committed = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    const orm = Object.create(bench.db.orm) as typeof bench.db.orm;
    // A commit whose answer is long on its way.
    orm.transaction = async (work, config) => {
      const result = await bench.db.orm.transaction(work, config);
      committed.resolve();
      await answered.promise;
      return result;
    };
    const audit = createAudit({ clock: systemClock });
    const wallet = createWallet({ db: { ...bench.db, orm }, clock: systemClock, audit });
    let toldPicoUsd = 0n;
    wallet.onCredit((_id, deltaPicoUsd) => {
      toldPicoUsd += deltaPicoUsd;
    });
    const credit = wallet.credit(bookingOf(organizationId, usd, 'meanwhile'));
    await committed.promise;
    const read = wallet.balance(organizationId).then((balancePicoUsd) => ({ balancePicoUsd, toldPicoUsd }));
    // As many round trips as a balance that did not wait would need and more.
    for (let turn = 0; turn < 5; turn += 1) await bench.db.sql`SELECT 1`;
    answered.resolve();
    expect(await read).toEqual({ balancePicoUsd: usd, toldPicoUsd: usd });
    await credit;
  });

  it('in a rolled-back transaction leaves nothing', async () => {
    const organizationId = await bench.openWallet();
    const undone = bench.db.orm.transaction(async (tx) => {
      await bench.wallet.creditIn(tx, bookingOf(organizationId, usd, 'undone'));
      throw new Error('undone');
    });
    await expect(undone).rejects.toThrow('undone');
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: true, balancePicoUsd: 0n, entries: 0 });
  });
});

describe('an adjustment', () => {
  const bench = useWallet();

  it('is rejected when it would take the balance below zero', async () => {
    const organizationId = await bench.openWallet(usd);
    const result = await bench.wallet.adjust(bookingOf(organizationId, -usd - 1n, 'too much'), nothingHeld);
    expect(result).toEqual({ kind: 'insufficient', balancePicoUsd: usd, heldPicoUsd: 0n });
    expect(await bench.wallet.balance(organizationId)).toBe(usd);
  });

  it('of zero throws a RangeError', async () => {
    const organizationId = await bench.openWallet();
    await expect(bench.wallet.adjust(bookingOf(organizationId, 0n, 'nothing'), nothingHeld)).rejects.toThrow(
      RangeError,
    );
  });

  it('is positive or negative, and posted once per reference', async () => {
    const organizationId = await bench.openWallet(usd);
    const down = await bench.wallet.adjust(bookingOf(organizationId, -usd, 'down'), nothingHeld);
    const again = await bench.wallet.adjust(bookingOf(organizationId, -usd, 'down'), nothingHeld);
    const up = await bench.wallet.adjust(bookingOf(organizationId, 3n, 'up'), nothingHeld);
    expect([down.kind, again.kind, up.kind]).toEqual(['created', 'repeated', 'created']);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: true, balancePicoUsd: 3n, entries: 3 });
  });

  it('in parallel spends the balance once', async () => {
    const organizationId = await bench.openWallet(5n * usd);
    const results = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        bench.wallet.adjust(bookingOf(organizationId, -usd, `part ${i}`), nothingHeld),
      ),
    );
    expect(results.filter((result) => result.kind === 'created')).toHaveLength(5);
    expect(await bench.wallet.balance(organizationId)).toBe(0n);
  });
});

describe('the ledger', () => {
  const bench = useWallet();

  it('rejects updates and deletes', async () => {
    const organizationId = await bench.openWallet(usd);
    const { sql } = bench.db;
    await expect(sql`UPDATE ledger_entries SET amount = 1 WHERE organization_id = ${organizationId}`).rejects.toThrow(
      'append-only',
    );
    await expect(sql`DELETE FROM ledger_entries WHERE organization_id = ${organizationId}`).rejects.toThrow(
      'append-only',
    );
  });

  it('pages newest first without a gap or a repetition, also while entries are added', async () => {
    const organizationId = await bench.openWallet();
    for (let i = 1; i <= 7; i += 1) await bench.wallet.credit(bookingOf(organizationId, BigInt(i), `credit ${i}`));
    const seen: (string | null)[] = [];
    let before: number | null = null;
    for (;;) {
      const page = await bench.wallet.ledger(organizationId, { limit: 3, before });
      seen.push(...page.entries.map((entry) => entry.reference));
      before = page.entries.at(-1)?.number ?? null;
      await bench.wallet.credit(bookingOf(organizationId, 1n, `late ${before}`));
      if (!page.more) break;
    }
    expect(seen).toEqual([7, 6, 5, 4, 3, 2, 1].map((i) => `credit ${i}`));
  });

  it('lists one type only, and nothing of another organization', async () => {
    const organizationId = await bench.openWallet(10n);
    const other = await bench.openWallet(10n);
    await bench.writer.write([chargeOf(organizationId, 4n)]);
    const usage = await bench.wallet.ledger(organizationId, { limit: 10, before: null, type: 'usage' });
    expect(usage.entries).toMatchObject([{ type: 'usage', amountPicoUsd: -4n, balanceAfterPicoUsd: 6n }]);
    expect(usage.more).toBe(false);
    expect((await bench.wallet.ledger(other, { limit: 10, before: null })).entries).toHaveLength(1);
  });

  it('reports a balance changed by hand', async () => {
    const organizationId = await bench.openWallet(10n);
    await bench.db.sql`UPDATE wallets SET balance = 11 WHERE organization_id = ${organizationId}`;
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: false, sumPicoUsd: 10n });
  });
});
