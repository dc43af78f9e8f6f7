import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, inject, it } from 'vitest';
import { formatId, parseId } from '#base/id.ts';
import { bookingOf, useWallet } from '#test/wallet/test-wallet.ts';
import { type CliResult, runCli, useFolders } from '#test/cli/run-cli.ts';
import { databaseUrl, withServer } from '#test/database.ts';

describe('headgate verify-books --expect', () => {
  const bench = useWallet();
  const folder = useFolders();
  const cleanups: (() => Promise<unknown>)[] = [];
  afterAll(async () => {
    for (const cleanup of cleanups) await cleanup();
  });

  const run = (words: readonly string[], url = bench.url): Promise<CliResult> =>
    runCli(words, { env: { DATABASE_URL: url } });

  async function emptyDatabase(): Promise<string> {
    const { url } = inject('testServer');
    const name = `headgate_test_${randomBytes(8).toString('hex')}`;
    await withServer(url, (sql) => sql`create database ${sql(name)} template template0`);
    cleanups.push(() => withServer(url, (sql) => sql`drop database if exists ${sql(name)} with (force)`));
    return databaseUrl(url, name);
  }

  /** An organization with two credits, of which the second is lost after its heads were kept in a file. */
  async function loseLast(): Promise<{ id: string; expecting: string; verify: (path?: string) => Promise<CliResult> }> {
    const organizationId = await bench.openWallet(5n);
    await bench.wallet.credit(bookingOf(organizationId, 7n, 'lost'));
    const expecting = join(folder(), 'heads.json');
    writeFileSync(expecting, (await run(['verify-books', '--heads'])).stdout);
    const where = `organization_id = '${organizationId}'`;
    await tamper(`delete from ledger_entries where ${where} and number = 2;
      update wallets w set balance = e.balance_after, entries = 1, head = e.head
        from ledger_entries e where e.${where} and w.${where}`);
    const id = formatId('org', organizationId);
    const verify = (path = expecting) => run(['verify-books', '--organization', id, '--expect', path]);
    return { id, expecting, verify };
  }

  async function tamper(statements: string): Promise<void> {
    await bench.db.sql.begin(async (tx) => {
      await tx.unsafe('set local session_replication_role = replica');
      await tx.unsafe(statements);
    });
  }

  /** Notes a change of the history now. @param known SQL of the last moment whose commits are there */
  const noteChange = (known: string, change = 'rewound') =>
    bench.db.sql.unsafe(`insert into database_changes (gateway_id, change, known_at, noticed_at)
      values (gen_random_uuid(), '${change}', ${known}, now())`);

  const secondsBefore = (heads: string, seconds: number): string =>
    `'${JSON.parse(readFileSync(heads, 'utf8')).taken_at}'::timestamptz - interval '${seconds} s'`;

  it('exits with 1 when entries are missing and no history change was recorded since the heads were taken', async () => {
    await noteChange(`now() - interval '1 hour'`);
    const { id, verify } = await loseLast();
    const result = await verify();
    expect(result).toMatchObject({ code: 1, stdout: expect.stringContaining(`${id}  ALTERED`) });
  });

  it('exits with 1 when the history changed only after the heads were taken', async () => {
    const { id, verify } = await loseLast();
    await noteChange('now()', 'server');
    await noteChange('now()');
    const result = await verify();
    expect(result).toMatchObject({ code: 1, stdout: expect.stringContaining(`${id}  ALTERED`) });
    expect(result.stdout).not.toContain('PostgreSQL may have returned to an earlier state');
  });

  it('exits with 3 when the time of the lost commits is unknown', async () => {
    const { id, expecting, verify } = await loseLast();
    await noteChange(`'-infinity'`);
    expect(await verify()).toMatchObject({ code: 3, stdout: expect.stringContaining('an unknown time') });
    const json = await run(['verify-books', '--organization', id, '--expect', expecting, '--json']);
    expect(JSON.parse(json.stdout).history_changes).toMatchObject([{ change: 'rewound', known_at: null }]);
  });

  it('exits with 3 and DIFFERS when commits from before the heads were taken may be lost', async () => {
    const { id, expecting, verify } = await loseLast();
    await noteChange(secondsBefore(expecting, 2));
    const result = await verify();
    expect(result.code).toBe(3);
    expect(result.stdout).toContain(`${id}  DIFFERS  1 entries`);
    expect(result.stdout).toContain('the ledger does not continue from the expected head (cut_off)');
    expect(result.stdout).toMatch(
      /PostgreSQL may have returned to an earlier state after the expected heads were taken \(rewound, noticed 20/,
    );
    expect(result.stdout).toContain('1 differ from the expected heads, and nothing else was found');
    const json = await run(['verify-books', '--organization', id, '--expect', expecting, '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({
      valid: false,
      verdict: 'differs',
      organizations: [{ id, verdict: 'differs' }],
      history_changes: expect.arrayContaining([expect.objectContaining({ change: 'rewound' })]),
    });
    const heads = await run(['verify-books', '--organization', id, '--expect', expecting, '--heads']);
    expect(heads).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('do not continue from the expected heads'),
    });
  });

  it('exits with 1 when there is another problem beside the history change', async () => {
    const { id, expecting, verify } = await loseLast();
    await noteChange(secondsBefore(expecting, 2));
    await tamper(`update wallets set balance = balance + 1 where organization_id = '${parseId('org', id)}'`);
    expect(await verify()).toMatchObject({ code: 1, stdout: expect.stringContaining(`${id}  ALTERED`) });
  });

  it('exits with 1 for heads without the time at which they were taken', async () => {
    const { expecting, verify } = await loseLast();
    await noteChange(secondsBefore(expecting, 2));
    const { taken_at: _takenAt, ...older } = JSON.parse(readFileSync(expecting, 'utf8')) as Record<string, unknown>;
    const path = join(folder(), 'older.json');
    writeFileSync(path, JSON.stringify(older));
    expect(await verify(path)).toMatchObject({ code: 1 });
  });

  it('exits with 3 after the restore of a backup from before the heads were taken', async () => {
    const file = join(folder(), 'backup');
    const organizationId = await bench.openWallet(5n);
    expect(await run(['backup', file])).toMatchObject({ code: 0 });
    await bench.wallet.credit(bookingOf(organizationId, 7n, 'lost'));
    const heads = join(folder(), 'heads.json');
    const id = formatId('org', organizationId);
    writeFileSync(heads, (await run(['verify-books', '--heads', '--organization', id])).stdout);
    const target = await emptyDatabase();
    expect(await run(['restore', file], target)).toMatchObject({ code: 0 });
    const result = await run(['verify-books', '--organization', id, '--expect', heads], target);
    expect(result).toMatchObject({ code: 3, stdout: expect.stringContaining(`${id}  DIFFERS`) });
    expect(result.stdout).toContain('restored, noticed');
  });
});
