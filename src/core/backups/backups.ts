import type { ISql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { readFirstOrganizationMs } from '#core/accounts/accounts.ts';

/**
 * The age of the newest good backup. The writer of a backup records it in the database, so every gateway knows the age
 * without access to the files. Failing backups show as a growing age.
 */
export interface Backups {
  /** Reads the newest record; must be called every `readEveryMs`. */
  read(): Promise<void>;
  /** Age of the newest backup, or of the database if there is no backup. Null until `read` has succeeded once. */
  ageMs(): number | null;
}

export const readEveryMs = 60_000;
/**
 * Age at which a backup is overdue: one per day, plus half a day to notice. compose/backup/backup.sh has the same
 * limit.
 */
export const overdueMs = 36 * 3_600_000;

export function createBackups({ db, clock }: { readonly db: Db; readonly clock: Clock }): Backups {
  let sinceMs: number | null = null;
  return {
    async read() {
      const { newest, databaseMadeAtMs } = await readNewestBackup(db.sql);
      sinceMs = newest?.madeAtMs ?? databaseMadeAtMs;
    },
    ageMs: () => (sinceMs === null ? null : Math.max(0, clock.now() - sinceMs)),
  };
}

/** Times in milliseconds since the Unix epoch. */
export interface NewestBackup {
  readonly newest: { readonly name: string; readonly madeAtMs: number } | null;
  /** When the first organization was created; null before that. */
  readonly databaseMadeAtMs: number | null;
}

export async function readNewestBackup(sql: ISql): Promise<NewestBackup> {
  const [newest] = await sql<{ name: string; madeAtMs: number }[]>`
    select name, extract(epoch from made_at)::float8 * 1000 as "madeAtMs" from backups order by made_at desc limit 1`;
  return { newest: newest ?? null, databaseMadeAtMs: await readFirstOrganizationMs(sql) };
}

/**
 * Records a backup. Does nothing on a database of an older version, which has no table for backups.
 * @param madeAt ISO 8601: the moment whose data the backup contains
 */
export async function recordBackup(sql: ISql, name: string, madeAt: string): Promise<void> {
  const [table] = await sql`select to_regclass('backups') is not null as there`;
  if (table?.['there'] !== true) return;
  await sql`insert into backups (name, made_at) values (${name}, ${madeAt}::timestamptz)`;
}
