import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { connectDb } from '#base/db.ts';
import { migrateDb } from '#base/migrations.ts';
import { createBackups } from '#core/backups/backups.ts';
import { systemClock } from '#base/clock.ts';
import { type PostgresServer, startPostgresServer } from '../support/postgres-server.ts';
import { withServer } from '../support/database.ts';

const script = new URL('../../compose/backup/backup.sh', import.meta.url).pathname;
const exec = promisify(execFile);

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgresServer();
});
afterAll(() => server?.stop());

let folder: string;
let passwordFile: string;
const folders: string[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'hg-backups-'));
  folders.push(folder);
  passwordFile = join(folder, 'password');
  writeFileSync(passwordFile, server.password);
});
afterAll(() => {
  for (const path of folders) rmSync(path, { recursive: true });
});

/** Creates a database with all tables. @returns its name */
async function newDatabase(name: string): Promise<string> {
  await withServer(server.url('postgres'), (sql) => sql.unsafe(`create database ${name}`));
  await migrateDb(server.url(name));
  return name;
}

/** Environment of backup.sh in the service "backup". */
const scriptEnv = (database: string): Record<string, string> => ({
  ...server.env,
  PGDATABASE: database,
  BACKUP_FOLDER: folder,
  BACKUP_FAILED_MARK: join(folder, 'failed'),
  BACKUP_RETRY_SECONDS: '1',
  POSTGRES_PASSWORD_FILE: passwordFile,
});

async function backupScript(database: string, ...words: string[]): Promise<{ code: number; text: string }> {
  try {
    const { stdout, stderr } = await exec('/bin/sh', [script, ...words], { env: scriptEnv(database) });
    return { code: 0, text: stdout + stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, text: stdout + stderr };
  }
}

const dumps = (): string[] => readdirSync(folder).filter((name) => name.endsWith('.dump'));

describe('backup.sh', { tags: 'postgresql' }, () => {
  it('records each dump, so that gateways publish its age', async () => {
    const database = await newDatabase('recorded');
    const db = connectDb(server.url(database), { poolMax: 1 });
    const backups = createBackups({ db, clock: systemClock });
    await backups.read();
    expect(backups.ageMs()).toBeNull();
    await db.sql`insert into organizations (id, name, created_at)
      values (gen_random_uuid(), 'first', now() - interval '40 hours')`;
    await backups.read();
    expect(backups.ageMs()).toBeGreaterThanOrEqual(40 * 3_600_000);
    expect(await backupScript(database, 'now')).toMatchObject({ code: 0 });
    await backups.read();
    expect(backups.ageMs()).toBeLessThan(40 * 3_600_000);
    expect((await db.sql`select name from backups`).map(({ name }) => name)).toEqual(dumps());
    await db.close();
  });

  it('reports a failed backup at once', async () => {
    const database = await newDatabase('failing');
    expect(await backupScript(database, 'now')).toMatchObject({ code: 0 });
    expect(await backupScript(database, 'health')).toMatchObject({ code: 0 });
    writeFileSync(passwordFile, 'wrong');
    expect(await backupScript(database, 'now')).toMatchObject({ code: 1 });
    const health = await backupScript(database, 'health');
    expect(health).toMatchObject({ code: 1, text: expect.stringContaining('The last try to make a backup failed') });
    expect(health.text).toContain(dumps()[0]);
    writeFileSync(passwordFile, server.password);
    expect(await backupScript(database, 'now')).toMatchObject({ code: 0 });
    expect(await backupScript(database, 'health')).toMatchObject({ code: 0 });
  });

  it('uses a new password without a restart', async () => {
    const database = await newDatabase('restartless');
    writeFileSync(passwordFile, 'wrong');
    const service = spawn('/bin/sh', [script, 'run'], { env: scriptEnv(database), stdio: 'ignore' });
    try {
      await expect.poll(() => existsSync(join(folder, 'failed'))).toBe(true);
      writeFileSync(passwordFile, server.password);
      await expect.poll(dumps).toHaveLength(1);
      await expect.poll(() => existsSync(join(folder, 'failed'))).toBe(false);
    } finally {
      service.kill('SIGTERM');
    }
  });

  it('restores the latest dump, and refuses to choose between those of two installations', async () => {
    const [old, fresh] = [await newDatabase('old_machine'), await newDatabase('new_machine')];
    for (const [name, secret] of [
      [old, 'a'],
      [fresh, 'b'],
    ] as const) {
      await withServer(
        server.url(name),
        (sql) => sql`
        insert into fleet_secrets (purpose, secret) values ('replicas', ${secret.repeat(64)})`,
      );
    }
    await withServer(server.url('postgres'), (sql) => sql.unsafe('create database target'));
    await backupScript(old, 'now');
    renameSync(join(folder, dumps()[0] ?? ''), join(folder, 'headgate-2026-01-01T000000Z.dump'));
    const unstarted = await newDatabase('unstarted');
    await backupScript(unstarted, 'now');
    renameSync(join(folder, dumps().at(-1) ?? ''), join(folder, 'headgate-2026-01-02T000000Z.dump'));
    expect(await backupScript('target', 'restore', 'latest')).toMatchObject({
      code: 0,
      text: expect.stringContaining('headgate-2026-01-01T000000Z.dump'),
    });
    await backupScript(fresh, 'now');
    await withServer(server.url('postgres'), (sql) => sql.unsafe('create database target_2'));
    const refused = await backupScript('target_2', 'restore', 'latest');
    expect(refused).toMatchObject({ code: 1, text: expect.stringContaining('dumps of several installations') });
    expect(refused.text).not.toContain('aaaaaaaa');
    expect(await backupScript('target_2', 'restore', 'headgate-2026-01-01T000000Z.dump')).toMatchObject({ code: 0 });
  });

  it('warns of a platform key that the dump does not carry', async () => {
    const database = await newDatabase('uncarried');
    await withServer(server.url(database), (sql) => sql`insert into platform_keys (id) values ('0123456789abcdef')`);
    expect((await backupScript(database, 'now')).text).toContain(
      'The platform key 0123456789abcdef is not in the backup',
    );
    await withServer(server.url(database), (sql) => sql`update platform_keys set sealed = 'x'`);
    expect((await backupScript(database, 'now')).text).not.toContain('platform key');
  });
});
