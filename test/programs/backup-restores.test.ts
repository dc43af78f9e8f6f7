import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { migrateDb } from '#base/database/migrations.ts';
import { restoreOlder } from '#test/gateways/older-database.ts';
import { runCli } from '#test/cli/run-cli.ts';
import { chapterLines } from '#test/chapter-lines.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { useBackupScript } from './backup-script.ts';
import { clientOf, givenKey, useProcesses } from '#test/programs/gateway-process.ts';

const script = useBackupScript();
const processes = useProcesses();

const organizations = (database: string) => script.query(database, 'select name from organizations order by name');

const addOrganization = (database: string, name: string) =>
  script.query(
    database,
    `insert into organizations (id, name, created_at) values (gen_random_uuid(), '${name}', now())`,
  );

const oidOf = (database: string) =>
  script.query(database, 'select oid from pg_database where datname = current_database()');

/** A database with the organization "kept", and the name of its dump; "lost" was added after it. */
async function dumped(name: string): Promise<{ readonly database: string; readonly dump: string }> {
  const database = await script.newDatabase(name);
  await script.query(database, `insert into fleet_secrets (purpose, secret) values ('replicas', repeat('a', 64))`);
  await addOrganization(database, 'kept');
  expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
  const [dump = ''] = script.dumps();
  await addOrganization(database, 'lost');
  return { database, dump };
}

/** Dumps all of a database with pg_dump itself, which needs no record of it. */
const dumpAs = (database: string, name: string) =>
  script.shell(
    database,
    `PGPASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")" pg_dump --format=custom --file="$BACKUP_FOLDER/${name}"`,
  );

const replacedDumps = (): string[] => script.dumps().filter((name) => name.startsWith('headgate-replaced-'));

describe('backup.sh restore', { tags: 'postgresql' }, () => {
  it('replaces the database in place with --replace, and keeps a dump of the former content, not as "latest"', async () => {
    const { database, dump } = await dumped('in_place');
    const before = await oidOf(database);
    expect(await script.run(database, 'restore', 'latest')).toMatchObject({
      code: 1,
      text: expect.stringContaining('is not empty. Nothing was changed; restore --replace'),
    });
    const first = await script.run(database, 'restore', '--replace', 'latest');
    expect(first).toMatchObject({ code: 0, text: expect.stringContaining(`${dump}, of 20`) });
    expect(await organizations(database)).toEqual([{ name: 'kept' }]);
    const [replaced = ''] = replacedDumps();
    expect(first.text).toContain(`What it held before is in ${replaced}`);
    renameSync(join(script.folder, replaced), join(script.folder, 'headgate-replaced-first.dump'));
    const second = await script.run(database, 'restore', '--replace', 'latest');
    expect(second).toMatchObject({ code: 0, text: expect.stringContaining(`${dump}, of 20`) });
    const back = await script.run(database, 'restore', '--replace', 'headgate-replaced-first.dump');
    expect(back).toMatchObject({ code: 0 });
    expect(await organizations(database)).toEqual([{ name: 'kept' }, { name: 'lost' }]);
    expect(await oidOf(database)).toEqual(before);

    const past = new Date('2026-01-01');
    for (const name of replacedDumps()) utimesSync(join(script.folder, name), past, past);
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    expect(replacedDumps()).toEqual([]);
  });

  it('changes nothing when the dump is truncated or PostgreSQL rejects its content', async () => {
    const { database, dump } = await dumped('unchanged');
    const whole = readFileSync(join(script.folder, dump));
    writeFileSync(join(script.folder, 'headgate-cut.dump'), whole.subarray(0, whole.length - 1000));
    // The sixth and seventh byte of a dump are the version of its format.
    writeFileSync(join(script.folder, 'headgate-newer.dump'), Buffer.from(whole).fill(99, 6, 7));
    await script.query(
      database,
      `create table orphans (parent uuid references organizations);
       set session_replication_role = replica;
       insert into orphans values (gen_random_uuid())`,
    );
    expect(await dumpAs(database, 'headgate-inconsistent.dump')).toMatchObject({ code: 0 });
    await script.query(database, 'drop table orphans');
    for (const [name, sentence] of [
      ['headgate-cut.dump', 'is not whole. Nothing was changed'],
      ['headgate-newer.dump', 'was written by a newer PostgreSQL than this one'],
      ['headgate-inconsistent.dump', 'could not be restored. Nothing was changed'],
      ['headgate-none.dump', 'There is no backup'],
    ] as const) {
      const failed = await script.run(database, 'restore', '--replace', name);
      expect(failed).toMatchObject({ code: 1, text: expect.stringContaining(sentence) });
      expect(await organizations(database)).toEqual([{ name: 'kept' }, { name: 'lost' }]);
    }
  });

  it('restores a dump with roles that do not exist, and reports each role once', async () => {
    const database = await script.newDatabase('of_roles');
    await addOrganization(database, 'kept');
    await script.query(
      database,
      'create role gone_owner',
      'create role gone_reader',
      'create table of_gone ()',
      'alter table of_gone owner to gone_owner',
      'grant select on all tables in schema public to gone_reader',
      'alter default privileges in schema public grant select on tables to gone_reader',
    );
    expect(await dumpAs(database, 'headgate-roles.dump')).toMatchObject({ code: 0 });
    await script.query(database, 'drop owned by gone_owner, gone_reader', 'drop role gone_owner, gone_reader');
    for (const [target, words] of [
      [await script.emptyDatabase('without_roles'), []],
      [database, ['--replace']],
    ] as const) {
      const restored = await script.run(target, 'restore', ...words, 'headgate-roles.dump');
      expect(restored).toMatchObject({ code: 0, text: expect.stringContaining('restored ') });
      expect(restored.text.match(/role "gone_reader" does not exist/g)).toHaveLength(1);
      expect(await organizations(target)).toEqual([{ name: 'kept' }]);
      expect(
        await script.query(target, `select tableowner from pg_tables where tablename in ('of_gone', 'wallets')`),
      ).toEqual([{ tableowner: 'headgate' }, { tableowner: 'headgate' }]);
    }
  });

  it('keeps the grants to roles that exist', async () => {
    const database = await script.newDatabase('of_grants');
    await script.query(
      database,
      'create role reader',
      'grant usage on schema public to reader',
      'grant select on wallets to reader',
      'alter default privileges in schema public grant select on tables to reader',
    );
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    const granted = `select has_table_privilege('reader', 'wallets', 'select') as wallets,
      has_table_privilege('reader', 'users', 'select') as users, has_table_privilege('reader', 'later', 'select') as later`;
    expect(await script.run(database, 'restore', '--replace', script.dumps()[0] ?? '')).toMatchObject({ code: 0 });
    await script.query(database, 'create table later ()');
    expect(await script.query(database, granted)).toEqual([{ wallets: true, users: false, later: true }]);
  });

  it('reports an unknown outcome when PostgreSQL does not answer the commit, and succeeds when repeated', async () => {
    const { database, dump } = await dumped('unanswered');
    // psql that is never told that the transaction is committed.
    const bin = join(script.folder, 'bin');
    mkdirSync(bin);
    const psql = `case "$*" in
  *ON_ERROR_STOP*) sed '/echo committed/d' | "$REAL_PSQL" "$@" ;;
  *) exec "$REAL_PSQL" "$@" ;;
esac`;
    writeFileSync(join(bin, 'psql'), `#!/bin/sh\n${psql}\n`, { mode: 0o755 });
    const restore = `export REAL_PSQL="$(command -v psql)"; PATH=${bin}:$PATH sh "$0" restore --replace ${dump}`;
    expect(await script.shell(database, restore)).toMatchObject({
      code: 1,
      text: expect.stringMatching(/It is not known whether .* was restored.*Run the same restore again/),
    });
    expect(await organizations(database)).toEqual([{ name: 'kept' }]);
    expect(await script.run(database, 'restore', '--replace', dump)).toMatchObject({ code: 0 });
    expect(await organizations(database)).toEqual([{ name: 'kept' }]);
  });

  it('changes nothing and starts no gateway when a restore typed from compose/restore.md fails', async () => {
    const { database, dump } = await dumped('typed');
    const other = await script.newDatabase('other_installation');
    await script.query(other, `insert into fleet_secrets (purpose, secret) values ('replicas', repeat('b', 64))`);
    const whole = readFileSync(join(script.folder, dump));
    writeFileSync(join(script.folder, 'newest.dump'), whole.subarray(0, whole.length - 1000));
    const chapter = new URL('../../compose/restore.md', import.meta.url).pathname;
    const [here = ''] = chapterLines(chapter, 'Restore on the same machine');
    const [elsewhere = ''] = chapterLines(chapter, 'Restore on an empty machine');
    // In place of Docker: what is asked of the service "backup" is done, and the rest is written down.
    const docker = `
      cd "$BACKUP_FOLDER"
      docker() {
        case "$*" in
          *' backup sh /headgate/backup.sh '*) shift 8; sh '${script.path}' "$@" ;;
          *) echo "$*" | sed 's/.*compose.yaml //' >> asked ;;
        esac
      }
      curl() { echo curl >> asked; }`;
    const typed = (lines: string) =>
      script.shell(
        database,
        `bash 2>&1 <<'TYPED'\n${docker}\n${lines}\nTYPED\ncat "$BACKUP_FOLDER/asked"; rm "$BACKUP_FOLDER/asked"`,
      );

    const restored = await typed(here.replace('latest', dump));
    expect(restored.text).toContain(`${dump}, of 20`);
    expect(restored.text).toMatch(/^stop gateway\nexec -T redis redis-cli FLUSHALL\nstart gateway$/m);
    await addOrganization(database, 'since');
    const books = [{ name: 'kept' }, { name: 'since' }];

    await script.run(other, 'now');
    for (const [lines, sentence, asked] of [
      [here, 'There are dumps of several installations', 'stop gateway'],
      [here.replace('latest', 'newest.dump'), 'is not whole. Nothing was changed', 'stop gateway'],
      [elsewhere, 'is not whole. Nothing was changed', 'up -d --build postgres backup'],
    ] as const) {
      const refused = await typed(lines);
      expect(refused.text).toContain(sentence);
      expect(refused.text.trim().split('\n').at(-1)).toBe(asked);
      expect(await organizations(database)).toEqual(books);
    }
  });

  it('fails while a gateway is connected', async () => {
    const { database } = await dumped('in_use');
    const db = connectDb(script.server.url(database), { poolMax: 1 });
    await db.sql`select 1`;
    expect(await script.run(database, 'restore', '--replace', 'latest')).toMatchObject({
      code: 1,
      text: expect.stringContaining('is using the database: stop it first'),
    });
    await db.close();
    expect(await organizations(database)).toHaveLength(2);
    expect(replacedDumps()).toEqual([]);
  });

  it('replaces a database that cannot be dumped only with --discard', async () => {
    const { database } = await dumped('unreadable');
    const [found] = await script.query(
      database,
      'checkpoint',
      `select current_setting('data_directory') || '/' || pg_relation_filepath('organizations') as path`,
    );
    rmSync(String(found?.['path']));
    expect(await script.run(database, 'restore', '--replace', 'latest')).toMatchObject({
      code: 1,
      text: expect.stringContaining('Nothing was changed; restore --discard'),
    });
    expect(replacedDumps()).toEqual([]);
    expect(await script.run(database, 'restore', '--discard', 'latest')).toMatchObject({ code: 0 });
    expect(await organizations(database)).toEqual([{ name: 'kept' }]);
  });

  it('restores a dump from standard input, and leaves no copy of it', async () => {
    const { dump } = await dumped('on_input');
    const target = await script.emptyDatabase('from_input');
    const line = (bytes: string): string => `head -c ${bytes} "$BACKUP_FOLDER/${dump}" | sh "$0" restore -`;
    expect(await script.shell(target, line('-1000'))).toMatchObject({ code: 1 });
    expect(await script.shell(target, line('-0'))).toMatchObject({ code: 0 });
    expect(await organizations(target)).toEqual([{ name: 'kept' }]);
    expect(
      readdirSync(script.folder)
        .filter((name) => name !== '.restored')
        .toSorted(),
    ).toEqual([dump, 'password']);
    const nowhere = await script.shell(target, `BACKUP_FOLDER=/nowhere sh "$0" restore - < "$BACKUP_FOLDER/${dump}"`);
    expect(nowhere).toMatchObject({ code: 1, text: expect.stringContaining('Nothing can be written to the folder') });
    expect(nowhere.text).toContain('Nothing was changed');
  });

  it('restores a dump from before an upgrade without later tables, which migrations then create', async () => {
    const database = await script.newDatabase('upgraded');
    const older = await script.newDatabase('before_upgrade');
    const db = connectDb(script.server.url(older), { poolMax: 1 });
    await restoreOlder(db);
    await db.close();
    await addOrganization(older, 'kept');
    expect(await script.run(older, 'now')).toMatchObject({ code: 0 });
    await script.query(database, 'create table of_a_later_version (id int)');
    expect(await script.run(database, 'restore', '--replace', script.dumps()[0] ?? '')).toMatchObject({ code: 0 });
    const there = `select to_regclass('of_a_later_version') as later, to_regclass('database_changes')::text as changes`;
    expect(await script.query(database, there)).toEqual([{ later: null, changes: null }]);
    await migrateDb(script.server.url(database));
    expect(await script.query(database, there)).toEqual([{ later: null, changes: 'database_changes' }]);
    expect(await organizations(database)).toEqual([{ name: 'kept' }]);
  });
});

describe('a gateway after backup.sh restore', { tags: 'postgresql' }, () => {
  it('books its spool, after verify-books --expect reported lost commits (3) and not an altered ledger (1)', async () => {
    const database = await script.newDatabase('spooled');
    const direct = script.server.url(database);
    const proxy = await startDatabaseProxy(direct);
    const home = processes.home();
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_SPOOL_AFTER_MS: '100' };
    const gateway = processes.run({ home, databaseUrl: proxy.url, env });
    const client = clientOf(await gateway.url());
    await client.recordOf(await client.chat({}));
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    const [dump = ''] = script.dumps();
    const lost = await client.chat({});
    await client.recordOf(lost);
    const heads = join(home.dir, 'heads.json');
    writeFileSync(heads, (await runCli(['verify-books', '--heads'], { env: { DATABASE_URL: direct } })).stdout);
    proxy.cut();
    const spooled = await client.chat({});
    expect(spooled.status).toBe(200);
    gateway.signal('SIGKILL', 'group');
    await gateway.exited;
    await proxy.close();

    expect(await script.run(database, 'restore', '--replace', dump)).toMatchObject({ code: 0 });
    const verify = () => runCli(['verify-books', '--expect', heads], { env: { DATABASE_URL: direct } });
    expect(await verify()).toMatchObject({ code: 3, stdout: expect.stringContaining('restored, noticed') });
    const next = processes.run({ home, databaseUrl: direct, env });
    const again = clientOf(await next.url());
    expect(await again.recordOf(spooled)).toMatchObject({ status: 200 });
    const { data } = await again.get('/v1/usage/requests');
    expect(data).toHaveLength(2);
    expect(await script.query(database, 'select name from backups')).toEqual([{ name: 'restored dump' }]);
    const proof = await runCli(['verify-books'], { env: { DATABASE_URL: direct } });
    expect(proof).toMatchObject({ code: 0, stdout: expect.stringContaining('all valid') });
  });
});
