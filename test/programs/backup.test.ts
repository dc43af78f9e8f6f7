import { execFileSync } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { spoolFolderOf } from '#base/spool.ts';
import { readNamespace } from '#core/gateways/gateways.ts';
import { leftOut } from '#programs/backup.ts';
import { writeBackup } from '#base/backup/backup.ts';
import { listTables, readPartitions, readSequences } from '#base/backup/shape.ts';
import { chapterLines, paste } from '#test/chapter-lines.ts';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import { createTestDatabase, databaseUrl, type TestDatabase, withServer } from '#test/database.ts';
import { type CliResult, runCli } from '#test/cli/run-cli.ts';
import { type Body } from '#test/inference/inference-gateway.ts';
import {
  clearHome,
  clientOf,
  engineFile,
  type GatewayProcess,
  givenKey,
  type Home,
  makeHome,
  repository,
  runGateway,
  useProcesses,
} from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const given = { HEADGATE_BOOTSTRAP_KEY: givenKey };
const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

const run = (words: readonly string[], env: Readonly<Record<string, string>>): Promise<CliResult> =>
  runCli(words, { env });

/** A database without anything in it, as an operator makes one, or a copy of a database. */
async function newDatabase(template = 'template0'): Promise<string> {
  const { url } = inject('testServer');
  const name = `headgate_test_${randomBytes(8).toString('hex')}`;
  await withServer(url, (sql) => sql`create database ${sql(name)} template ${sql(template)}`);
  cleanups.push(() => withServer(url, (sql) => sql`drop database if exists ${sql(name)} with (force)`));
  return databaseUrl(url, name);
}

/** Tables that a restore or backup writes by itself. */
const noted = ['backups', 'database_changes'];

async function withDb<T>(url: string, use: (db: Db) => Promise<T>): Promise<T> {
  const db = connectDb(url, { poolMax: 1, purpose: 'test' });
  try {
    return await use(db);
  } finally {
    await db.close();
  }
}

/** Content of a database without the records of backups and restores: every row as text, partitions and sequences. */
const contentOf = (url: string): Promise<unknown> =>
  withDb(url, async ({ sql }) => {
    const tables = await listTables(sql);
    const rows: Record<string, unknown> = {};
    for (const { name } of tables.filter((table) => ![...leftOut, ...noted].includes(table.name)))
      rows[name] = (await sql.unsafe(`select t::text as row from "${name}" t order by 1`)).map(({ row }) => row);
    const sequences = (await readSequences(sql)).filter(
      ({ name }) => !noted.some((table) => name === `${table}_id_seq`),
    );
    return { rows, partitions: await readPartitions(sql), sequences };
  });

async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
}

async function chats(url: string, times: number): Promise<Body> {
  const client = clientOf(url);
  for (let count = 0; count < times; count += 1) expect((await client.chat({})).status).toBe(200);
  return client.get('/v1/wallet');
}

function mountSmallDisk(folder: string): boolean {
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], { stdio: 'pipe' });
    return true;
  } catch {
    return false;
  }
}

async function backUp(file: string, env: Readonly<Record<string, string>>): Promise<void> {
  const made = await run(['backup', file], env);
  expect(made).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining(`${file}: `) });
}

/** A home whose gateway has served, and has stopped. @returns the wallet */
async function serveOnce(home: Home, url: string | null, times: number): Promise<Body> {
  const gateway = runGateway({ home, databaseUrl: url, env: given });
  try {
    const wallet = await chats(await gateway.url(), times);
    await stop(gateway);
    return wallet;
  } finally {
    gateway.signal('SIGKILL', 'group');
    await gateway.exited;
  }
}

describe('headgate backup and restore', () => {
  let served: TestDatabase;
  beforeAll(async () => {
    served = await createTestDatabase();
    const home = makeHome({ chat: engineFile('chat') });
    await serveOnce(home, served.url, 2);
    await clearHome(home);
  });
  afterAll(() => served.drop());

  /** A database of its own whose gateway has served, and its backup. */
  async function madeBackup(): Promise<{ readonly home: Home; readonly file: string; readonly databaseUrl: string }> {
    const home = processes.home();
    const url = await newDatabase(new URL(served.url).pathname.slice(1));
    const file = join(home.dir, 'a.backup');
    await backUp(file, { DATABASE_URL: url, HEADGATE_DATA_DIR: home.dataDir });
    return { home, file, databaseUrl: url };
  }

  it('rejects a file that is not a complete backup before changing anything', async () => {
    const { home, file } = await madeBackup();
    const target = await newDatabase();
    const bytes = readFileSync(file);
    const text = gunzipSync(bytes).toString('latin1');
    const repacked = (change: (text: string) => string): Buffer => gzipSync(Buffer.from(change(text), 'latin1'));
    const bent = Buffer.from(bytes);
    bent[Math.floor(bent.length / 2)] = (bent[Math.floor(bent.length / 2)] ?? 0) ^ 0xff;
    const cases: readonly [string, Buffer, RegExp][] = [
      ['an empty file', Buffer.alloc(0), /is not a Headgate backup|is truncated/],
      ['text', Buffer.from('select 1;\n'), /is not a Headgate backup/],
      ['gzip of another thing', gzipSync('select 1;\n'), /is not a Headgate backup/],
      ['half of it', bytes.subarray(0, bytes.length / 2), /is truncated/],
      ['all but its last byte', bytes.subarray(0, -1), /is truncated/],
      [
        'one that lacks its last line',
        repacked((all) => all.slice(0, all.lastIndexOf('\n', all.length - 2) + 1)),
        /is truncated/,
      ],
      ['a byte that was exchanged', bent, /is damaged or was changed|is truncated/],
      [
        'a balance that was altered',
        repacked((all) => all.replace(/(?<="wallets".*\n.*\t)9(?=\.)/, '8').replace('Management', 'management')),
        /is damaged or was changed/,
      ],
      [
        'a row too many',
        repacked((all) => all.replace(/("table":"users".*\n)(.*\n)/, '$1$2$2')),
        /is damaged or was changed/,
      ],
      ['something behind its end', repacked((all) => `${all}x`), /is damaged or was changed/],
      [
        'a newer format',
        repacked((all) => all.replace('"format_version":1', '"format_version":2')),
        /was written by a newer Headgate\. Update/,
      ],
      [
        'newer tables',
        repacked((all) => all.replace(/"migrations":\[/, '$&{"hash":"x","created_at":1},')),
        /written by a(nother| newer) Headgate \(/,
      ],
    ];
    for (const [what, content, sentence] of cases) {
      const path = join(home.dir, 'other.backup');
      writeFileSync(path, content);
      for (const words of [
        ['restore', path],
        ['restore', path, '--check'],
      ]) {
        const result = await run(words, { DATABASE_URL: target, HEADGATE_DATA_DIR: join(home.dir, 'none') });
        expect(result, what).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(sentence) });
      }
    }
    const missing = await run(['restore', join(home.dir, 'missing')], { DATABASE_URL: target });
    expect(missing).toMatchObject({ code: 1, stderr: expect.stringContaining('cannot be read') });
    expect(await contentOf(target)).toEqual({ rows: {}, partitions: [], sequences: [] });
    expect(existsSync(join(home.dir, 'none'))).toBe(false);
  });

  it('restores no sessions and no open links, also from a file of an older version', async () => {
    const { home, databaseUrl: url } = await madeBackup();
    const old = join(home.dir, 'old.backup');
    await withDb(url, async (db) => {
      const id = randomUUID();
      await db.sql`
        insert into sessions select ${id}, '\\x00', user_id, organization_id, now(), now(), now() + interval '7 days', null, 'x', 'x'
        from memberships limit 1`;
      await db.sql`insert into reset_links select ${id}, '\\x00', id, now(), now() + interval '1 hour', null from users`;
      await writeBackup({ db, path: old, origin: await readNamespace(db), leaveOut: [] });
    });
    const made = join(home.dir, 'new.backup');
    expect((await run(['backup', made], { DATABASE_URL: url, HEADGATE_DATA_DIR: home.dataDir })).code).toBe(0);
    const heldBy = (file: string): boolean =>
      /"table":"sessions".*\n(?!\\\.)/.test(gunzipSync(readFileSync(file)).toString('latin1'));
    expect([heldBy(old), heldBy(made)]).toEqual([true, false]);
    for (const file of [old, made]) {
      const target = await newDatabase();
      const env = { DATABASE_URL: target, HEADGATE_DATA_DIR: home.dataDir };
      expect(await run(['restore', file], env)).toMatchObject({ code: 0, stderr: '' });
      await withDb(target, async ({ sql }) => {
        for (const table of leftOut) {
          const [row] = await sql`select count(*)::int as rows from ${sql(table)}`;
          expect([file, table, row?.['rows']]).toEqual([file, table, 0]);
        }
        expect((await sql`select id from users`).length).toBeGreaterThan(0);
      });
    }
  });

  it('overwrites no file, and leaves none on a full disk', async () => {
    const { home, file, databaseUrl: url } = await madeBackup();
    const before = readFileSync(file);
    const again = await run(['backup', file], { DATABASE_URL: url });
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('already exists') });
    const nowhere = await run(['backup', join(home.dir, 'none', 'a')], { DATABASE_URL: url });
    expect(nowhere).toMatchObject({ code: 1, stderr: expect.stringContaining('cannot be written') });
    expect(readFileSync(file)).toEqual(before);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const disk = join(home.dir, 'disk');
    mkdirSync(disk);
    // Only a root that may mount can make a disk that is small.
    if (!mountSmallDisk(disk)) return;
    cleanups.push(() => void execFileSync('umount', [disk]));
    const db = connectDb(url, { poolMax: 1 });
    for (let count = 0; count < 20; count += 1)
      await db.sql`insert into fleet_secrets (purpose, secret) values (${`filler ${count}`}, ${randomBytes(8000).toString('base64')})`;
    await db.close();
    const full = await run(['backup', join(disk, 'a')], { DATABASE_URL: url });
    expect(full).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('the disk is full. The partial file was removed'),
    });
    expect(readdirSync(disk)).toEqual([]);
  });

  it("rejects a database that is not empty, has other programs' tables or is in use; --replace restores it", async () => {
    const { home, file, databaseUrl: url } = await madeBackup();
    const env = { DATABASE_URL: url, HEADGATE_DATA_DIR: home.dataDir };
    const before = await contentOf(url);
    expect(await run(['restore', file], env)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`The database "${new URL(url).pathname.slice(1)}" is not empty: use --replace`),
    });
    const db = connectDb(url, { poolMax: 1, purpose: 'test' });
    await db.sql`create table invoices (id int)`;
    await db.close();
    const strange = await run(['restore', file, '--replace'], env);
    expect(strange).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('objects of other programs (table invoices)'),
    });
    await withServer(url, (sql) => sql`drop table invoices`);
    expect(await contentOf(url)).toEqual(before);

    const gateway = processes.run({ home, databaseUrl: url, env: given });
    await chats(await gateway.url(), 1);
    const used = await run(['restore', file, '--replace'], env);
    expect(used).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('is in use by a gateway or another command: stop it first'),
    });
    await stop(gateway);
    expect(await run(['restore', file, '--replace', '--json'], env)).toMatchObject({ code: 0, stderr: '' });
    expect(await contentOf(url)).toEqual(before);
  });

  it('requires --spool for usage that is not yet in the database, and moves it with --spool book', async () => {
    const { home, file, databaseUrl: url } = await madeBackup();
    const env = { DATABASE_URL: url, HEADGATE_DATA_DIR: home.dataDir };
    const head: { origin: string } = JSON.parse(gunzipSync(readFileSync(file)).toString().split('\n', 1)[0] ?? '');
    const slot = join(home.dataDir, 'spool', head.origin.replace(':', '-'), '0');
    mkdirSync(slot, { recursive: true });
    writeFileSync(join(slot, 'left.spool'), 'x');
    const noted = await run(['backup', `${file}.2`], env);
    expect(noted).toMatchObject({ code: 0, stderr: expect.stringContaining('1 files of usage in') });

    const target = { ...env, DATABASE_URL: await newDatabase() };
    const refused = await run(['restore', file], target);
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('use --spool book') });
    expect(await contentOf(target.DATABASE_URL)).toEqual({ rows: {}, partitions: [], sequences: [] });
    expect(await run(['restore', file, '--spool', 'both'], target)).toMatchObject({ code: 2 });
    // Usage that cannot be moved ends the restore before anything is there: once it is there, nobody would move it.
    const own = spoolFolderOf(home.dataDir, await withDb(target.DATABASE_URL, readNamespace));
    mkdirSync(own);
    writeFileSync(join(own, '0'), 'in the way');
    expect(await run(['restore', file, '--spool', 'book'], target)).toMatchObject({ code: 1 });
    expect(await contentOf(target.DATABASE_URL)).toEqual({ rows: {}, partitions: [], sequences: [] });
    expect(existsSync(join(slot, 'left.spool'))).toBe(true);
    rmSync(own, { recursive: true });
    expect(await run(['restore', file, '--spool', 'leave'], target)).toMatchObject({ code: 0 });
    expect(existsSync(join(slot, 'left.spool'))).toBe(true);
    expect(await run(['restore', file, '--replace', '--spool', 'book'], target)).toMatchObject({ code: 0 });
    expect(existsSync(join(slot, 'left.spool'))).toBe(false);
    const moved = readdirSync(join(home.dataDir, 'spool')).flatMap((name) =>
      readdirSync(join(home.dataDir, 'spool', name, '0')).map((segment) => `${name}/${segment}`),
    );
    expect(moved).toEqual([expect.stringMatching(/\/left\.spool$/)]);
    expect(moved[0]).not.toContain(head.origin.replace(':', '-'));
  });
});

describe('the built-in PostgreSQL of a stopped gateway', () => {
  let home: Home;
  let file: string;
  let balance: Body;
  beforeAll(async () => {
    home = makeHome({ chat: engineFile('chat') });
    file = join(home.dir, 'built-in.backup');
    await addPostgres(home);
    balance = await serveOnce(home, null, 3);
    await backUp(file, { HEADGATE_DATA_DIR: home.dataDir });
  });
  afterAll(() => clearHome(home));

  it('moves to an external one: keys work, the balance is the same, the books verify', async () => {
    expect(await run(['restore', file, '--check'], { HEADGATE_DATA_DIR: home.dataDir })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('is complete: '),
    });

    const url = await newDatabase();
    const env = { DATABASE_URL: url, HEADGATE_DATA_DIR: home.dataDir };
    // An operator who forgets the restore is pointed to the ledger.
    const early = processes.run({ home, databaseUrl: url });
    await early.url();
    expect(early.output.stdout).toContain('without the keys and wallets of the built-in PostgreSQL. To move them, run');
    await stop(early);
    expect(await run(['restore', file, '--replace'], env)).toMatchObject({ code: 0, stderr: '' });
    const second = processes.run({ home, databaseUrl: url });
    const there = await second.url();
    expect(await clientOf(there).get('/v1/wallet')).toEqual(balance);
    expect((await clientOf(there).get('/v1/usage/requests')).data).toHaveLength(3);
    expect(await chats(there, 1)).not.toEqual(balance);
    await stop(second);
    expect(await run(['verify-books'], { DATABASE_URL: url })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('all valid'),
    });
  });

  it('moves to another folder, whose gateway is backed up while it runs, and rejects a restore', async () => {
    const elsewhere = processes.home();
    const env = { HEADGATE_DATA_DIR: elsewhere.dataDir };
    expect(await run(['restore', file], env)).toMatchObject({ code: 0, stderr: '' });
    const gateway = processes.run({ home: elsewhere, databaseUrl: null });
    expect(await clientOf(await gateway.url()).get('/v1/wallet')).toEqual(balance);
    expect(await run(['backup', `${file}.running`], env)).toMatchObject({ code: 0, stderr: '' });
    expect(await run(['restore', `${file}.running`, '--replace'], env)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is in use by a gateway'),
    });
    await stop(gateway);
  });

  it('moves to an external one with the commands of compose/operations.md', { tags: 'postgresql' }, async () => {
    const chapter = join(repository, 'compose/operations.md');
    const [, backupLines = '', restoreLines = ''] = chapterLines(chapter, 'On the machine itself');
    const url = new URL(databaseUrl(inject('testServer').url, `headgate_test_${randomBytes(8).toString('hex')}`));
    cleanups.push(() =>
      withServer(inject('testServer').url, (sql) => sql`drop database if exists ${sql(url.pathname.slice(1))}`),
    );
    // npx finds the command as it does in a clone.
    symlinkSync(join(repository, 'node_modules'), join(home.dir, 'node_modules'));
    const type = (lines: string): Promise<string> =>
      paste(`export HEADGATE_DATA_DIR=${home.dataDir}\n${lines}`, home.dir);
    const server = `-h ${url.hostname} -p ${url.port} -U ${url.username}`;
    const named = backupLines
      .replace('-h db.example.org -U headgate', server)
      .replace(/ headgate\n$/, ` ${url.pathname.slice(1)}\n`);
    expect(await type(`export PGPASSWORD='${url.password}'\n${named}`)).toContain('rows of');
    const second = restoreLines.replace(/postgres:\S+/, url.href).replace('npm start', 'true');
    expect(await type(second)).toContain('all valid');
    const moved = processes.run({ home, databaseUrl: url.href });
    expect(await clientOf(await moved.url()).get('/v1/wallet')).toEqual(balance);
    await stop(moved);
  });
});
