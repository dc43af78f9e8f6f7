import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lockDataDir } from '#base/config/data-dir.ts';
import { connectDb } from '#base/database/connect-database.ts';
import { migrateDb } from '#base/database/migrations.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres/postgres.ts';
import type { UsageRecord } from '#core/metering/metering.ts';
import { bookingOf, chargeOf, useWallet } from '#test/wallet/test-wallet.ts';
import { type CliResult, runCli, useFolders } from '#test/cli/run-cli.ts';

describe('headgate verify-books', () => {
  const bench = useWallet();
  const folder = useFolders();

  const verify = (...args: string[]): Promise<CliResult> =>
    runCli(['verify-books', ...args], { env: { DATABASE_URL: bench.url } });
  const verifyOf = (organizationId: string, ...args: string[]): Promise<CliResult> =>
    verify('--organization', formatId('org', organizationId), ...args);

  /** As somebody who may do everything in the database would. */
  async function tamper(statements: string): Promise<void> {
    await bench.db.sql.begin(async (tx) => {
      await tx.unsafe('SET LOCAL session_replication_role = replica');
      await tx.unsafe(statements);
    });
  }

  interface Books {
    readonly organizationId: string;
    readonly requests: readonly UsageRecord[];
    /** Ids of the entries: a credit, a group of three requests, one request, a credit. */
    readonly entries: readonly string[];
    readonly where: string;
  }

  async function openBooks(): Promise<Books> {
    const organizationId = await bench.openWallet(1_000_000n);
    const requests = [1n, 2n, 3n, 50n].map((cost) => chargeOf(organizationId, cost));
    await bench.writer.write(requests.slice(0, 3));
    await bench.writer.write(requests.slice(3));
    await bench.wallet.credit(bookingOf(organizationId, 7n, 'more'));
    const rows = await bench.db.sql<{ id: string }[]>`
      SELECT id::text FROM ledger_entries WHERE organization_id = ${organizationId} ORDER BY number`;
    const where = `organization_id = '${organizationId}'`;
    return { organizationId, requests, entries: rows.map(({ id }) => id), where };
  }

  const le = (id: string | undefined): string => formatId('le', id ?? '');

  it('exits with 2 without a database, with a foreign one, and for an unknown organization', async () => {
    const away = await runCli(['verify-books'], { env: { DATABASE_URL: 'postgres://a:b@127.0.0.1:1/none' } });
    expect(away).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('DATABASE_URL: the database cannot be read'),
    });
    const strange = new URL(bench.url);
    strange.pathname = '/postgres';
    const empty = await runCli(['verify-books'], { env: { DATABASE_URL: strange.href } });
    expect(empty).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('the database has no tables of this version'),
    });
    expect(await verifyOf(uuidv7())).toMatchObject({ code: 2, stderr: expect.stringContaining('it has no books') });
    expect(await verify('--organization', 'mine')).toMatchObject({ code: 2 });
    const none = await runCli(['verify-books'], { env: { HEADGATE_DATA_DIR: folder() } });
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('contains no database of a gateway') });
  });

  it('exits with 2 for an --expect file that is not the output of --heads', async () => {
    const path = join(folder(), 'heads.json');
    expect(await verify('--expect', path)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('cannot be read'),
    });
    writeFileSync(path, '{"heads":[{"organization":"x","entries":1,"head":"00"}]}');
    expect(await verify('--expect', path)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is not the output of'),
    });
  });

  it('exits with 0 and prints a line for an organization whose books verify', async () => {
    const { organizationId } = await openBooks();
    const result = await verifyOf(organizationId);
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout.split('\n')).toEqual([
      `${formatId('org', organizationId)}  valid  4 entries, balance 0.000000999951 USD`,
      '1 organizations, 4 entries: all valid',
      '',
    ]);
    const json = JSON.parse((await verifyOf(organizationId, '--json')).stdout) as Record<string, unknown>;
    expect(json).toMatchObject({ valid: true, entries: 4, findings: [] });
  });

  const tamperings: readonly [string, (books: Books) => string, (books: Books) => string][] = [
    [
      'an altered amount',
      ({ entries }) => `UPDATE ledger_entries SET amount = amount + 1 WHERE id = '${entries[0]}'`,
      ({ entries }) => `${le(entries[0])}: this entry was changed after it was posted (head)`,
    ],
    [
      'a deleted entry',
      ({ where }) => `DELETE FROM ledger_entries WHERE ${where} AND number = 1`,
      ({ entries }) => `${le(entries[1])}: this entry was changed after it was posted (number)`,
    ],
    [
      'a deleted last entry',
      ({ where }) => `DELETE FROM ledger_entries WHERE ${where} AND number = 4`,
      () => 'the balance of the wallet is not the sum of the ledger (balance)',
    ],
    [
      'a deleted last entry whose amount was taken off the balance',
      ({ where }) => `DELETE FROM ledger_entries WHERE ${where} AND number = 4;
        UPDATE wallets SET balance = balance - 7 WHERE ${where}`,
      () => 'the balance of the wallet is not the sum of the ledger (entries_missing)',
    ],
    [
      'entries that were swapped',
      ({ where }) => `UPDATE ledger_entries SET number = -number WHERE ${where} AND number IN (2, 3);
        UPDATE ledger_entries SET number = 5 + number WHERE ${where} AND number < 0`,
      ({ entries }) => `${le(entries[2])}: this entry was changed after it was posted (head)`,
    ],
    [
      'an inserted entry, with wallet and running sum',
      ({
        where,
      }) => `INSERT INTO ledger_entries SELECT (m).* FROM (SELECT jsonb_populate_record(e, jsonb_build_object('id',
          gen_random_uuid(), 'number', 5, 'reference', 'x', 'balance_after', balance_after + 7)) AS m
          FROM ledger_entries e WHERE ${where} AND number = 4) AS made;
        UPDATE wallets w SET balance = e.balance_after, entries = 5, head = e.head
          FROM ledger_entries e WHERE e.${where} AND e.number = 5 AND w.${where}`,
      () => 'this entry was changed after it was posted (head)',
    ],
    [
      'an amount that is no number',
      ({ entries }) => `UPDATE ledger_entries SET amount = 'NaN' WHERE id = '${entries[0]}'`,
      ({ entries }) => `${le(entries[0])}: this entry was changed after it was posted (no_number)`,
    ],
    [
      'a moment that is none',
      ({ entries }) => `UPDATE ledger_entries SET created_at = 'infinity' WHERE id = '${entries[0]}'`,
      ({ entries }) => `${le(entries[0])}: this entry was changed after it was posted (no_number)`,
    ],
    [
      'a balance that is no number',
      ({ where }) => `UPDATE wallets SET balance = 'NaN' WHERE ${where}`,
      () => 'the balance of the wallet is not the sum of the ledger (balance)',
    ],
    [
      'an altered balance',
      ({ where }) => `UPDATE wallets SET balance = balance + 1 WHERE ${where}`,
      () => 'the balance of the wallet is not the sum of the ledger (balance)',
    ],
    [
      'an altered cost of a request',
      ({ requests }) => `UPDATE usage_requests SET cost = cost + 1 WHERE id = '${requests[1]?.id}'`,
      ({ entries }) => `${le(entries[1])}: this ledger entry and its usage records differ`,
    ],
    [
      'altered tokens of a request',
      ({ requests }) => `UPDATE usage_requests SET output_tokens = output_tokens + 1 WHERE id = '${requests[1]?.id}'`,
      ({ requests }) => `${formatId('key', requests[1]?.keyId ?? '')}: the sum of an hour of this key`,
    ],
    [
      'requests of a group whose costs were exchanged',
      ({ requests: [a, b] }) => `UPDATE usage_requests SET cost = 3 - cost WHERE id IN ('${a?.id}', '${b?.id}')`,
      ({ entries }) => `${le(entries[1])}: this ledger entry and its usage records differ`,
    ],
    [
      'a deleted request',
      ({ requests }) => `DELETE FROM usage_requests WHERE id = '${requests[3]?.id}'`,
      ({ entries }) => `${le(entries[2])}: usage records of this ledger entry are missing`,
    ],
    [
      'a request that was added',
      ({ requests }) => `INSERT INTO usage_requests SELECT (m).* FROM (SELECT jsonb_populate_record(r,
        jsonb_build_object('id', '${uuidv7()}', 'group_id', null)) AS m FROM usage_requests r WHERE id = '${requests[3]?.id}')`,
      () => 'this request was charged, but the ledger has no entry for it',
    ],
    [
      'an altered day',
      ({ organizationId }) => `UPDATE usage_daily SET cost = cost - 1
        WHERE organization = (SELECT code FROM usage_ids WHERE id = '${organizationId}')`,
      () => 'the sums of usage differ from the charges in the ledger',
    ],
  ];

  it.each(tamperings)('exits with 1 and names %s', async (_what, statements, line) => {
    const books = await openBooks();
    await tamper(statements(books));
    const result = await verifyOf(books.organizationId);
    expect(result.stdout).toContain(`${formatId('org', books.organizationId)}  ALTERED  `);
    expect(result.stdout).toContain(line(books));
    expect(result.code).toBe(1);
  });

  it('reports a shortened or rewritten history only with --expect', async () => {
    const [cut, anew] = [await openBooks(), await bench.openWallet(5n)];
    const path = join(folder(), 'heads.json');
    const heads = await verify('--heads');
    writeFileSync(path, heads.stdout);
    expect(await verifyOf(cut.organizationId, '--expect', path)).toMatchObject({ code: 0 });
    await bench.wallet.credit(bookingOf(cut.organizationId, 1n, 'goes on'));
    expect(await verifyOf(cut.organizationId, '--expect', path)).toMatchObject({ code: 0 });
    await tamper(`DELETE FROM ledger_entries WHERE ${cut.where} AND number > 3;
      UPDATE wallets w SET balance = e.balance_after, entries = 3, head = e.head
        FROM ledger_entries e WHERE e.${cut.where} AND e.number = 3 AND w.${cut.where};
      DELETE FROM ledger_entries WHERE organization_id = '${anew}'; DELETE FROM wallets WHERE organization_id = '${anew}'`);
    await bench.db.orm.transaction((tx) => bench.wallet.open(tx, anew));
    await bench.wallet.credit(bookingOf(anew, 500n, 'opening'));
    for (const [id, problem] of [
      [cut.organizationId, 'cut_off'],
      [anew, 'rewritten'],
    ] as const) {
      expect(await verifyOf(id)).toMatchObject({ code: 0 });
      const result = await verifyOf(id, '--expect', path);
      expect(result).toMatchObject({ code: 1, stdout: expect.stringContaining(`the expected head (${problem})`) });
    }
  });

  it('reads the built-in PostgreSQL of a data folder, also while a gateway uses it', async () => {
    const dataDir = folder();
    chmodSync(dataDir, 0o711);
    const log = createLog('silent');
    const server = await startEmbeddedPostgres({ dataDir: join(dataDir, 'postgres'), log, fsync: false });
    await migrateDb(server.url);
    const db = connectDb(server.url);
    await db.close();
    const run = (): Promise<CliResult> =>
      runCli(['verify-books'], { env: { HEADGATE_DATA_DIR: dataDir }, asProcess: true });
    const release = lockDataDir(dataDir);
    const allValid = { code: 0, stdout: '0 organizations, 0 entries: all valid\n' };
    expect(await run()).toMatchObject(allValid);
    release();
    await server.stop();
    expect(await run()).toMatchObject(allValid);
    lockDataDir(dataDir)();
  });
});
