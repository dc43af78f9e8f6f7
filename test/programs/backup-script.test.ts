import { spawn } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { createBackups } from '#core/backups/backups.ts';
import { systemClock } from '#base/clock.ts';
import { useBackupScript } from './backup-script.ts';

const script = useBackupScript();

/** Gives a database what all dumps of one installation have in common. */
const install = (database: string, letter: string) =>
  script.query(database, `insert into fleet_secrets (purpose, secret) values ('replicas', '${letter.repeat(64)}')`);

/** Root without the capability to read what its owner forbids, as in compose.yaml. Others never have it. */
const asInCompose = process.geteuid?.() === 0 ? 'setpriv --bounding-set=-dac_override,-dac_read_search' : '';

describe('backup.sh', { tags: 'postgresql' }, () => {
  it('records each dump, so that gateways publish its age', async () => {
    const database = await script.newDatabase('recorded');
    const db = connectDb(script.server.url(database), { poolMax: 1 });
    const backups = createBackups({ db, clock: systemClock });
    await backups.read();
    expect(backups.ageMs()).toBeNull();
    await db.sql`insert into organizations (id, name, created_at)
      values (gen_random_uuid(), 'first', now() - interval '40 hours')`;
    await backups.read();
    expect(backups.ageMs()).toBeGreaterThanOrEqual(40 * 3_600_000);
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    await backups.read();
    expect(backups.ageMs()).toBeLessThan(40 * 3_600_000);
    expect((await db.sql`select name from backups`).map(({ name }) => name)).toEqual(script.dumps());
    await db.close();
  });

  it('reports a failed backup at once', async () => {
    const database = await script.newDatabase('failing');
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    expect(await script.run(database, 'health')).toMatchObject({ code: 0 });
    writeFileSync(script.passwordFile, 'wrong');
    expect(await script.run(database, 'now')).toMatchObject({ code: 1 });
    const health = await script.run(database, 'health');
    expect(health).toMatchObject({ code: 1, text: expect.stringContaining('The last try to make a backup failed') });
    expect(health.text).toContain(script.dumps()[0]);
    writeFileSync(script.passwordFile, script.server.password);
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    expect(await script.run(database, 'health')).toMatchObject({ code: 0 });
  });

  it('uses a new password without a restart', async () => {
    const database = await script.newDatabase('restartless');
    writeFileSync(script.passwordFile, 'wrong');
    const service = spawn('/bin/sh', [script.path, 'run'], { env: script.env(database), stdio: 'ignore' });
    try {
      await expect.poll(() => existsSync(join(script.folder, 'failed'))).toBe(true);
      writeFileSync(script.passwordFile, script.server.password);
      await expect.poll(() => script.dumps()).toHaveLength(1);
      await expect.poll(() => existsSync(join(script.folder, 'failed'))).toBe(false);
    } finally {
      service.kill('SIGTERM');
    }
  });

  it('prints and restores the latest dump, and fails when the dumps are of two installations', async () => {
    const [old, fresh] = [await script.newDatabase('old_machine'), await script.newDatabase('new_machine')];
    await install(old, 'a');
    await install(fresh, 'b');
    await script.run(old, 'now');
    renameSync(join(script.folder, script.dumps()[0] ?? ''), join(script.folder, 'headgate-2026-01-01T000000Z.dump'));
    const unstarted = await script.newDatabase('unstarted');
    await script.run(unstarted, 'now');
    renameSync(
      join(script.folder, script.dumps().at(-1) ?? ''),
      join(script.folder, 'headgate-2026-01-02T000000Z.dump'),
    );
    const target = await script.emptyDatabase('target');
    expect(await script.run(target, 'restore', 'latest')).toMatchObject({
      code: 0,
      text: expect.stringContaining('headgate-2026-01-01T000000Z.dump'),
    });
    const copied = join(script.folder, 'copied');
    expect(await script.shell(target, `sh "$0" cat latest > '${copied}'`)).toMatchObject({ code: 0 });
    expect(readFileSync(copied)).toEqual(readFileSync(join(script.folder, 'headgate-2026-01-01T000000Z.dump')));
    await script.run(fresh, 'now');
    const other = await script.emptyDatabase('target_2');
    for (const words of [
      ['restore', 'latest'],
      ['cat', 'latest'],
    ]) {
      const refused = await script.run(other, ...words);
      expect(refused).toMatchObject({ code: 1, text: expect.stringContaining('dumps of several installations') });
      expect(refused.text).not.toContain('aaaaaaaa');
    }
    expect(await script.run(other, 'restore', 'headgate-2026-01-01T000000Z.dump')).toMatchObject({ code: 0 });
  });

  it('rejects "latest" when the newest dump is unreadable, and names it', async () => {
    const database = await script.newDatabase('damaged');
    await install(database, 'a');
    await script.run(database, 'now');
    const whole = readFileSync(join(script.folder, script.dumps()[0] ?? ''));
    renameSync(join(script.folder, script.dumps()[0] ?? ''), join(script.folder, 'headgate-2026-01-01T000000Z.dump'));
    const newest = join(script.folder, 'headgate-2026-01-02T000000Z.dump');
    for (const words of ['restore --replace latest', 'cat latest']) {
      for (const bytes of [0, 2000, whole.length - 1000]) {
        writeFileSync(newest, whole.subarray(0, bytes));
        expect(await script.shell(database, `sh "$0" ${words} >/dev/null`)).toMatchObject({
          code: 1,
          text: expect.stringContaining(`${newest} is not whole. Nothing was changed`),
        });
      }
      writeFileSync(newest, whole);
      chmodSync(newest, 0);
      expect(await script.shell(database, `${asInCompose} sh "$0" ${words} >/dev/null`)).toMatchObject({
        code: 1,
        text: expect.stringContaining(`${newest} cannot be read by user`),
      });
      chmodSync(newest, 0o600);
    }
  });

  it('ignores an unreadable dump when a newer one is readable', async () => {
    const database = await script.newDatabase('olddamaged');
    await install(database, 'a');
    writeFileSync(join(script.folder, 'headgate-2026-01-01T000000Z.dump'), 'damaged');
    await script.run(database, 'now');
    expect(await script.shell(database, 'sh "$0" cat latest >/dev/null')).toMatchObject({ code: 0 });
  });

  it('writes a dump at once after a restore', async () => {
    const database = await script.newDatabase('restored');
    expect(await script.run(database, 'now')).toMatchObject({ code: 0 });
    const dump = 'headgate-2026-01-01T000000Z.dump';
    renameSync(join(script.folder, script.dumps()[0] ?? ''), join(script.folder, dump));
    expect(await script.run(database, 'restore', '--discard', dump)).toMatchObject({ code: 0 });
    const service = spawn('/bin/sh', [script.path, 'run'], { env: script.env(database), stdio: 'ignore' });
    try {
      await expect.poll(() => script.dumps()).toHaveLength(2);
    } finally {
      service.kill('SIGTERM');
    }
  });

  it('writes complete dumps when two run in one second', async () => {
    const database = await script.newDatabase('twice');
    const both = await script.shell(database, 'sh "$0" now & first=$!; sh "$0" now && wait "$first"');
    expect(both).toMatchObject({ code: 0 });
    expect(both.text.match(/ backup headgate-\S+\.dump, /g)).toHaveLength(2);
    for (const dump of script.dumps()) expect(await script.run(database, 'cat', dump)).toMatchObject({ code: 0 });
  });

  it('writes dumps readable by their owner only', async () => {
    const database = await script.newDatabase('owned');
    expect(await script.shell(database, 'umask 022; sh "$0" now')).toMatchObject({ code: 0 });
    expect(statSync(join(script.folder, script.dumps()[0] ?? '')).mode & 0o777).toBe(0o600);
  });

  it('warns of a platform key that is not in the dump', async () => {
    const database = await script.newDatabase('uncarried');
    await script.query(database, `insert into platform_keys (id) values ('0123456789abcdef')`);
    expect((await script.run(database, 'now')).text).toContain(
      'The platform key 0123456789abcdef is not in the backup',
    );
    await script.query(database, `update platform_keys set sealed = 'x'`);
    expect((await script.run(database, 'now')).text).not.toContain('platform key');
  });
});
