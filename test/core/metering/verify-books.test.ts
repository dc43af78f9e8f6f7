import { afterEach, describe, expect, it } from 'vitest';
import { uuidLowerBound, uuidv7 } from '#base/id.ts';
import { type BooksProof, type UsageRecord, verifyBooks } from '#core/metering/metering.ts';
import { bookingOf, chargeOf, nothingHeld, useWallet } from '#test/wallet/test-wallet.ts';

describe('the proof of all books', () => {
  const bench = useWallet();

  /** Everything of a test goes with it: the proof is of the whole database. */
  afterEach(() =>
    asSuperuser('TRUNCATE ledger_entries, wallets, usage_requests, usage_hourly, usage_daily, usage_refusals'),
  );

  async function asSuperuser(statements: string): Promise<void> {
    await bench.db.sql.begin(async (tx) => {
      await tx.unsafe('SET LOCAL session_replication_role = replica');
      await tx.unsafe(statements);
    });
  }

  interface Booked {
    readonly organizationId: string;
    /** One request with an entry of its own, one that cost nothing, and three in a group, over two days. */
    readonly records: readonly UsageRecord[];
  }

  async function openBooks(): Promise<Booked> {
    const organizationId = await bench.openWallet(1_000n);
    const yesterday = Date.now() - 86_400_000;
    const records = [
      chargeOf(organizationId, 7n),
      chargeOf(organizationId, 0n),
      ...[1n, 2n, 3n].map((cost, i) =>
        chargeOf(organizationId, cost, { id: uuidv7(yesterday + i), outcome: 'aborted' }),
      ),
    ].toSorted((a, b) => (a.id < b.id ? -1 : 1));
    for (const isAlone of [true, false]) {
      await bench.writer.write(records.filter(({ costPicoUsd }) => (costPicoUsd === 7n) === isAlone));
    }
    await bench.wallet.adjust(bookingOf(organizationId, -20n, 'correction'), nothingHeld);
    return { organizationId, records };
  }

  const kindsOf = (proof: BooksProof): string[] => proof.findings.map(({ kind }) => kind).toSorted();

  it('passes for empty books, and for single, grouped and free requests', async () => {
    expect(await verifyBooks(bench.db)).toMatchObject({ organizations: 0, entries: 0, findings: [] });
    for (let i = 0; i < 3; i += 1) await openBooks();
    expect(await verifyBooks(bench.db)).toEqual({
      organizations: 3,
      entries: 12,
      entriesBeforeRetention: 0,
      ledgers: expect.any(Array),
      takenMs: expect.any(Number),
      findings: [],
      findingsTotal: 0,
      differingTotal: 0,
    });
  });

  it('passes while requests are written', async () => {
    const books = await openBooks();
    let isWriting = true;
    const writing = Promise.all(
      [bench.writer, bench.otherWriter].map(async (writer) => {
        while (isWriting) await writer.write([1n, 0n, 0n].map((cost) => chargeOf(books.organizationId, cost)));
      }),
    );
    for (let i = 0; i < 5; i += 1) expect((await verifyBooks(bench.otherDb)).findings).toEqual([]);
    isWriting = false;
    await writing;
  });

  it('names the altered entry among many', async () => {
    const books = [await openBooks(), await openBooks()];
    const [altered] = await bench.db.sql<{ id: string }[]>`
      SELECT id::text FROM ledger_entries WHERE organization_id = ${books[1]?.organizationId ?? ''} AND type = 'adjustment'`;
    await asSuperuser(`UPDATE ledger_entries SET note = 'x' WHERE id = '${altered?.id}'`);
    expect((await verifyBooks(bench.db)).findings).toEqual([
      { kind: 'entry', organizationId: books[1]?.organizationId, id: altered?.id, problem: 'head' },
    ]);
  });

  it('reports a balance changed by hand', async () => {
    const { organizationId } = await openBooks();
    await asSuperuser(`UPDATE wallets SET balance = balance + 1 WHERE organization_id = '${organizationId}'`);
    expect((await verifyBooks(bench.db)).findings).toEqual([
      { kind: 'wallet', organizationId, id: null, problem: 'balance' },
    ]);
  });

  it('reports a record whose requested model has no name', async () => {
    const { organizationId, records } = await openBooks();
    const fallback = chargeOf(organizationId, 1n, { fallbackFor: 'asked' });
    await bench.writer.write([fallback]);
    expect((await verifyBooks(bench.db)).findings).toEqual([]);
    const id = records[0]?.id ?? null;
    await asSuperuser(`UPDATE usage_requests SET fallback_for = 2000000000 WHERE id = '${id}'`);
    expect((await verifyBooks(bench.db)).findings).toEqual([
      { kind: 'unknown_code', organizationId, id, problem: 'model 2000000000' },
    ]);
  });

  it('reports records whose cost differs from the charge', async () => {
    const { organizationId, records } = await openBooks();
    const [first, second] = records;
    // Sums stay as they are.
    await asSuperuser(`
      UPDATE usage_requests SET cost = cost + 1 WHERE id = '${first?.id}';
      UPDATE usage_requests SET cost = cost - 1 WHERE id = '${second?.id}';
      UPDATE usage_requests SET cost = cost + 5 WHERE group_id IS NULL AND cost > 0`);
    const proof = await verifyBooks(bench.db);
    expect(kindsOf(proof)).toEqual(['entry_differs', 'entry_differs', 'hour_differs']);
    expect(proof.findings.find(({ id }) => id === first?.id)).toMatchObject({ kind: 'entry_differs', organizationId });
  });

  it('reports deleted records, from a group and single ones', async () => {
    const { records } = await openBooks();
    await asSuperuser(`DELETE FROM usage_requests WHERE id = '${records[1]?.id}' OR (group_id IS NULL AND cost > 0)`);
    const proof = await verifyBooks(bench.db);
    expect(kindsOf(proof)).toEqual(['entry_without_records', 'entry_without_records', 'hour_differs', 'hour_differs']);
    expect(proof.findings.find(({ id }) => id === records[0]?.id)?.problem).toBe('2 of 3 requests');
  });

  it('reports charged records without an entry', async () => {
    const { organizationId, records } = await openBooks();
    const forged = `INSERT INTO usage_requests SELECT (r).* FROM (
      SELECT jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(), 'group_id', %)) AS r
      FROM usage_requests r WHERE id = '${records[0]?.id}') AS made`;
    await asSuperuser(`${forged.replace('%', '999')}; ${forged.replace('%', 'null')}`);
    const proof = await verifyBooks(bench.db);
    const without = proof.findings.filter(({ kind }) => kind === 'record_without_entry');
    expect(without).toMatchObject([{ organizationId }, { organizationId }]);
  });

  it.each([
    ['hour', 'UPDATE usage_hourly SET output_tokens = output_tokens + 1', ['day_differs', 'hour_differs']],
    ['day', 'UPDATE usage_daily SET requests = requests + 1', ['day_differs']],
    ['hour that is deleted', 'DELETE FROM usage_hourly', ['day_differs', 'hour_differs']],
    ['charge', 'UPDATE usage_daily SET cost = cost + 1', ['charges_differ', 'day_differs']],
  ])('reports a %s that differs from the sum', async (_what, statement, kinds) => {
    await openBooks();
    await asSuperuser(statement);
    expect([...new Set(kindsOf(await verifyBooks(bench.db)))]).toEqual(kinds);
  });

  it('limits the findings it returns, and counts all of them', async () => {
    const { organizationId } = await openBooks();
    await bench.writer.write(Array.from({ length: 30 }, () => chargeOf(organizationId, 0n, { keyId: uuidv7() })));
    await asSuperuser('DELETE FROM usage_requests WHERE cost = 0');
    const proof = await verifyBooks(bench.db, { findingsMax: 10 });
    expect(proof.findings).toHaveLength(10);
    expect(proof.findingsTotal).toBe(31);
  });

  it('covers times outside every partition', async () => {
    const organizationId = await bench.openWallet(100n);
    const far = [0, Date.UTC(2150, 0), 253_402_300_799_000].map((ms) => uuidLowerBound(ms));
    await bench.writer.write(far.map((id) => chargeOf(organizationId, 1n, { id })));
    expect((await verifyBooks(bench.db)).findings).toEqual([]);
    await asSuperuser('UPDATE usage_requests SET output_tokens = 0');
    expect(kindsOf(await verifyBooks(bench.db))).toEqual(['hour_differs', 'hour_differs', 'hour_differs']);
  });
});
