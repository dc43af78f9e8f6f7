import { describe, expect, it } from 'vitest';
import { bookingOf, chargeOf, nothingHeld, useWallet } from '#test/wallet/test-wallet.ts';

describe('the proof of a ledger', () => {
  const bench = useWallet();

  /** A credit, a single request, a group of three, an adjustment, a group of two. */
  async function openLedger(): Promise<string> {
    const organizationId = await bench.openWallet(1_000n);
    await bench.writer.write([chargeOf(organizationId, 7n)]);
    await bench.writer.write([1n, 2n, 3n].map((cost) => chargeOf(organizationId, cost)));
    await bench.wallet.adjust(
      { ...bookingOf(organizationId, -20n, 'correction'), note: 'a "note"\nof two lines' },
      nothingHeld,
    );
    await bench.writer.write([5n, 5n].map((cost) => chargeOf(organizationId, cost)));
    return organizationId;
  }

  /** Alters the ledger as a superuser could. @returns the id of an entry by its number */
  async function alter(organizationId: string, statements: string): Promise<(number: number) => string> {
    const rows = await bench.db.sql<{ number: string; id: string }[]>`
      SELECT number, id FROM ledger_entries WHERE organization_id = ${organizationId}`;
    await bench.db.sql.begin(async (tx) => {
      await tx.unsafe('SET LOCAL session_replication_role = replica');
      await tx.unsafe(statements.replaceAll('$org', `organization_id = '${organizationId}'`));
    });
    return (number) => rows.find((row) => Number(row.number) === number)?.id ?? '';
  }

  it('passes for credits, adjustments, and charges of one and of many requests', async () => {
    expect(await bench.wallet.verify(await openLedger())).toMatchObject({
      balanced: true,
      entries: 5,
      entriesBroken: 0,
      altered: null,
      wallet: null,
      balancePicoUsd: 957n,
      sumPicoUsd: 957n,
      usagePicoUsd: 23n,
    });
  });

  it.each([
    ['amount', 'UPDATE ledger_entries SET amount = amount + 1 WHERE $org AND number = 3'],
    ['balance', 'UPDATE ledger_entries SET balance_after = balance_after + 1 WHERE $org AND number = 3'],
    [
      'moment',
      "UPDATE ledger_entries SET created_at = created_at - interval '1 microsecond' WHERE $org AND number = 3",
    ],
    ['number of requests', 'UPDATE ledger_entries SET requests = 2 WHERE $org AND number = 3'],
    ['hash of its requests', "UPDATE ledger_entries SET requests_hash = sha256('') WHERE $org AND number = 3"],
    ['group', 'UPDATE ledger_entries SET group_id = group_id + 1 WHERE $org AND number = 3'],
    ['head', "UPDATE ledger_entries SET head = sha256('') WHERE $org AND number = 3"],
  ])('names the entry whose %s was altered', async (_what, statement) => {
    const organizationId = await openLedger();
    const idOf = await alter(organizationId, statement);
    const proof = await bench.wallet.verify(organizationId);
    expect(proof).toMatchObject({ balanced: false, altered: { id: idOf(3), problem: 'head' } });
  });

  it.each([
    ['note', "UPDATE ledger_entries SET note = 'another' WHERE $org AND number = 4"],
    ['reference', "UPDATE ledger_entries SET reference = 'another' WHERE $org AND number = 4"],
    ['type', "UPDATE ledger_entries SET type = 'credit' WHERE $org AND number = 4"],
    ['account', "UPDATE ledger_entries SET credit_account = 'funding' WHERE $org AND number = 4"],
  ])('names the adjustment whose %s was altered', async (_what, statement) => {
    const organizationId = await openLedger();
    const idOf = await alter(organizationId, statement);
    expect((await bench.wallet.verify(organizationId)).altered).toEqual({ id: idOf(4), problem: 'head' });
  });

  it('names the entry after a deleted one, also when sums and numbers were adjusted to hide it', async () => {
    const [plain, mended] = [await openLedger(), await openLedger()];
    const plainIds = await alter(plain, 'DELETE FROM ledger_entries WHERE $org AND number = 2');
    expect((await bench.wallet.verify(plain)).altered).toEqual({ id: plainIds(3), problem: 'number' });
    const mendedIds = await alter(
      mended,
      `DELETE FROM ledger_entries WHERE $org AND number = 2;
      UPDATE ledger_entries SET number = number - 1, balance_after = balance_after + 7 WHERE $org AND number = 3;
      UPDATE ledger_entries SET number = number - 1, balance_after = balance_after + 7 WHERE $org AND number = 4;
      UPDATE ledger_entries SET number = number - 1, balance_after = balance_after + 7 WHERE $org AND number = 5;
      UPDATE wallets SET balance = balance + 7, entries = entries - 1 WHERE $org`,
    );
    expect((await bench.wallet.verify(mended)).altered).toEqual({ id: mendedIds(3), problem: 'head' });
  });

  it('reports entries missing at the end', async () => {
    const organizationId = await openLedger();
    await alter(
      organizationId,
      'DELETE FROM ledger_entries WHERE $org AND number = 5; UPDATE wallets SET balance = balance + 10 WHERE $org',
    );
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: false, wallet: 'entries_missing' });
    await alter(organizationId, 'UPDATE wallets SET entries = 4 WHERE $org');
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: false, wallet: 'head' });
  });

  it('begins after entries from before the chain, and still covers their sums', async () => {
    const organizationId = await openLedger();
    const old = `UPDATE ledger_entries SET head = NULL WHERE $org;
      UPDATE wallets SET head = sha256(convert_to(organization_id || E'\\n5\\n957\\n', 'UTF8')) WHERE $org`;
    const idOf = await alter(organizationId, old);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: true, entries: 5 });
    await bench.writer.write([chargeOf(organizationId, 7n)]);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ balanced: true, entries: 6 });
    await alter(organizationId, 'UPDATE ledger_entries SET amount = amount + 1 WHERE $org AND number = 2');
    expect((await bench.wallet.verify(organizationId)).altered).toEqual({ id: idOf(2), problem: 'balance_after' });
    const mended =
      'UPDATE ledger_entries SET balance_after = balance_after - 1 WHERE $org AND number > 1 AND number < 6';
    await alter(organizationId, mended);
    expect(await bench.wallet.verify(organizationId)).toMatchObject({ altered: { problem: 'before_chain' } });
  });

  it('reports an entry without a head after the chain has begun', async () => {
    const organizationId = await openLedger();
    const idOf = await alter(organizationId, 'UPDATE ledger_entries SET head = NULL WHERE $org AND number = 3');
    expect((await bench.wallet.verify(organizationId)).altered).toEqual({ id: idOf(3), problem: 'chain_broken_off' });
  });
});
