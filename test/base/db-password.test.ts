import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSecretFiles } from '#base/config/files.ts';
import { connectDb } from '#base/database/connect-database.ts';
import { withServer } from '#test/database.ts';
import { type PostgresServer, startPostgresServer } from '#test/postgres-server.ts';

let server: PostgresServer;
let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-password-'));
  server = await startPostgresServer();
});
afterAll(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe('a pool whose password is in a file', { tags: 'postgresql' }, () => {
  it('connects with the new password, and with the last one while the file is being written', async () => {
    const file = join(folder, 'password');
    writeFileSync(file, `${server.password}\n`);
    const DATABASE_URL = `postgres://headgate@127.0.0.1:${server.port}/postgres`;
    const read = readSecretFiles({ DATABASE_URL, POSTGRES_PASSWORD_FILE: file });
    const db = connectDb(read['DATABASE_URL'] ?? '', { poolMax: 1 });
    const connection = async (): Promise<unknown> => (await db.sql`select pg_backend_pid() as pid`)[0]?.['pid'];
    const first = await connection();
    // Another one, as its characters have a meaning in URLs.
    const password = 'new:p@ss/w%rd?';
    writeFileSync(file, password);
    await withServer(server.url('postgres'), async (sql) => {
      await sql.unsafe(`alter role headgate password '${password}'`);
      await sql`select pg_terminate_backend(${Number(first)}, 5000)`;
    });
    const second = await connection();
    expect(second).not.toBe(first);
    writeFileSync(file, '');
    await withServer(server.url('postgres', encodeURIComponent(password)), async (sql) => {
      await sql`select pg_terminate_backend(${Number(second)}, 5000)`;
    });
    expect(await connection()).not.toBe(second);
    await db.close();
  });
});
