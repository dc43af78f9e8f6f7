import type { Db } from '#base/database/connect-database.ts';
import { readMigrations } from '#base/database/migrations.ts';

/** Takes a database back to before the migration that counts heartbeats, as a backup from before that upgrade has it. */
export async function restoreOlder({ sql }: Pick<Db, 'sql'>): Promise<void> {
  const [migration] = readMigrations().filter(({ name }) => name === '0032_database_changes');
  await sql`alter table gateway_runs drop column beats`;
  await sql`drop table database_changes`;
  await sql`delete from drizzle.__drizzle_migrations where created_at = ${migration?.folderMillis ?? 0}`;
  await sql`delete from gateway_runs`;
  await sql`delete from gateways`;
}
