import postgres from 'postgres';
import { afterEach, describe, expect, it } from 'vitest';
import { ConfigError } from '#base/config-error.ts';
import { readVersion } from '#base/config/config.ts';
import { migrateDb, readMigrations } from '#base/database/migrations.ts';
import { createTestDatabase } from '#test/database.ts';

const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function openDatabase(): Promise<{ url: string; sql: postgres.Sql }> {
  const database = await createTestDatabase();
  const sql = postgres(database.url, { max: 1, onnotice: () => undefined });
  cleanups.push(
    () => database.drop(),
    () => sql.end({ timeout: 5 }),
  );
  return { url: database.url, sql };
}

interface Line {
  readonly migration: string;
  readonly rows?: number;
  readonly seconds?: number;
}

/** Migrates, and returns what an operator sees of it. */
async function migrate(url: string): Promise<readonly Line[]> {
  const lines: Line[] = [];
  await migrateDb(url, { info: (line: Line) => void lines.push(line) });
  return lines;
}

/** Takes back the indexes, tables and columns that a migration adds. */
function undoing(text: string): readonly string[] {
  const columns = [...text.matchAll(/ALTER TABLE "(\w+)" ADD COLUMN "(\w+)"/g)];
  const tables = [...text.matchAll(/CREATE TABLE "(\w+)"/g)];
  const indexes = [...text.matchAll(/CREATE (?:UNIQUE )?INDEX "(\w+)"/g)];
  return [
    ...indexes.map(([, index]) => `drop index "${index}"`),
    ...columns.map(([, table, column]) => `alter table "${table}" drop column "${column}" cascade`),
    ...tables.map(([, table]) => `drop table "${table}" cascade`),
  ];
}

const newest = readMigrations().at(-1)?.folderMillis ?? 0;

describe('a database that a newer version has migrated', () => {
  it('is rejected with both versions, the unknown migration, and the remedy', async () => {
    const { url, sql } = await openDatabase();
    await sql`insert into drizzle.__drizzle_migrations (hash, created_at, name, version)
      values ('abc', ${newest + 1}, '0099_wider_names', '9.4.0')`;
    const error: unknown = await migrate(url).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ConfigError);
    expect(String(error)).toContain(
      `version 9.4.0 has migrated it, and this is ${readVersion()}, which does not know 0099_wider_names. ` +
        'Start version 9.4.0 or a newer one, or restore the backup from before the upgrade.',
    );
  });

  it.each([-1, -1_000_000_000])(
    'is rejected when the unknown migration is %i ms from the newest known one',
    async (ms) => {
      const { url, sql } = await openDatabase();
      await sql`insert into drizzle.__drizzle_migrations (hash, created_at, name, version)
      values ('of another branch', ${newest + ms}, '0012_another_branch', '9.9.9')`;
      await expect(migrate(url)).rejects.toThrow('does not know 0012_another_branch');
    },
  );

  it('is rejected by the timestamps of migrations without names', async () => {
    const { url, sql } = await openDatabase();
    await sql`alter table drizzle.__drizzle_migrations drop column name, drop column version`;
    await sql`insert into drizzle.__drizzle_migrations (hash, created_at) values ('abc', ${newest + 1})`;
    const [name] = [new Date(newest + 1).toISOString()];
    await expect(migrate(url)).rejects.toThrow('a newer version has migrated it');
    await expect(migrate(url)).rejects.toThrow(`does not know the migration of ${name}`);
  });
});

describe('a database of an older version', () => {
  it('gets a missing migration even if it has newer ones', async () => {
    const { url, sql } = await openDatabase();
    const lacked = readMigrations().find(({ name }) => name === '0031_change_receipts');
    if (lacked === undefined || lacked.folderMillis === newest) throw new Error('it is not one before the newest');
    await sql`delete from drizzle.__drizzle_migrations where created_at = ${lacked.folderMillis}`;
    for (const statement of undoing(lacked.sql.join('\n'))) await sql.unsafe(statement);
    expect((await migrate(url)).map(({ migration }) => migration)).toEqual([lacked.name, lacked.name]);
  });

  it('is migrated with the name, rows and seconds of each step in the log', async () => {
    const { url, sql } = await openDatabase();
    const [last] = readMigrations().slice(-1);
    if (last === undefined) throw new Error('there are no migrations');
    await sql`alter table drizzle.__drizzle_migrations drop column name, drop column version`;
    await sql`delete from drizzle.__drizzle_migrations where created_at = ${last.folderMillis}`;
    for (const statement of undoing(last.sql.join('\n'))) await sql.unsafe(statement);
    const lines = await migrate(url);
    expect(lines.map(({ migration }) => migration)).toEqual([last.name, last.name]);
    expect(lines[1]).toMatchObject({ rows: 0, seconds: expect.any(Number) });
    const [row] = await sql`select name, version from drizzle.__drizzle_migrations order by created_at desc limit 1`;
    expect(row).toEqual({ name: last.name, version: readVersion() });
    expect(await migrate(url)).toEqual([]);
  });
});
