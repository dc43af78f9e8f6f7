import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type MigrationMeta, readMigrationFiles } from 'drizzle-orm/migrator';
import type { ISql, TransactionSql } from 'postgres';
import { ConfigError } from '#base/config-error.ts';
import { readVersion } from '#base/config/config.ts';
import type { Log } from '#base/log.ts';
import { withUnlimited } from './connect-database.ts';

const migrationsFolder = fileURLToPath(new URL('../../../drizzle', import.meta.url));

/** A migration with its statements, its hash, and `folderMillis`, by which migrations are ordered. */
export interface Migration extends MigrationMeta {
  /** The name of its file: "0026_project_rate_limits". */
  readonly name: string;
}

/** Reads all migrations of this version, oldest first. */
export function readMigrations(): readonly Migration[] {
  const journal = JSON.parse(readFileSync(`${migrationsFolder}/meta/_journal.json`, 'utf8')) as {
    readonly entries: readonly { readonly tag: string }[];
  };
  return readMigrationFiles({ migrationsFolder }).map((migration, index) => ({
    ...migration,
    name: journal.entries[index]?.tag ?? '',
  }));
}

/** The database has migrations that this version does not know. */
export class NewerDatabaseError extends ConfigError {
  /** The problem as one clause, and what to do. */
  readonly what: string;
  readonly remedy: string;

  /** @param version null where the database does not say it */
  constructor(version: string | null, names: readonly string[]) {
    const other = version === null ? 'a newer version' : `version ${version}`;
    const what =
      `the database is newer than this Headgate: ${other} has migrated it, and this is ${readVersion()}, ` +
      `which does not know ${names.join(', ')}`;
    const remedy = `start ${other}${version === null ? '' : ' or a newer one'}, or restore the backup from before the upgrade`;
    super(`${capitalize(what)}. ${capitalize(remedy)}.`);
    this.what = what;
    this.remedy = remedy;
  }
}

const capitalize = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;

/** Time limit of a statement; a migration may move a table of many million rows. */
const migrationSilenceMs = 6 * 3_600_000;

/**
 * Applies the migrations that the database does not have yet, all of them or none. Several gateways may start at once:
 * an advisory lock lets one of them work while the others wait.
 * @throws NewerDatabaseError
 */
export async function migrateDb(url: string, log?: Pick<Log, 'info'>): Promise<void> {
  await withUnlimited(url, migrationSilenceMs, async (sql) => {
    await sql`select pg_advisory_lock(hashtext('headgate migrations'))`;
    const { missing, isNew } = await compareMigrations(sql);
    if (missing.length === 0) return;
    await sql.begin(async (tx) => {
      await makeMigrationsTable(tx);
      // A table that drizzle's migrator has created lacks these columns.
      await tx`alter table drizzle.__drizzle_migrations
        add column if not exists name text, add column if not exists version text`;
      // Not logged at the first start: there are no rows to move, so nobody waits.
      for (const migration of missing) await apply(tx, migration, isNew ? undefined : log);
    });
  });
}

/** Makes the table in which drizzle's own migrator keeps what was applied, where there is none. */
export async function makeMigrationsTable(tx: TransactionSql): Promise<void> {
  await tx`create schema if not exists drizzle`;
  await tx`create table if not exists drizzle.__drizzle_migrations (
    id serial primary key, hash text not null, created_at bigint, name text, version text)`;
}

/** Notes that a migration was applied, and by which version. */
export async function noteMigration(tx: TransactionSql, { hash, folderMillis, name }: Migration): Promise<void> {
  await tx`insert into drizzle.__drizzle_migrations (hash, created_at, name, version)
    values (${hash}, ${folderMillis}, ${name}, ${readVersion()})`;
}

export interface MigrationState {
  /** Migrations of this version that the database does not have yet, oldest first. */
  readonly missing: readonly Migration[];
  /** No version has migrated the database. */
  readonly isNew: boolean;
}

/**
 * Compares the migrations of this version with those of a database, by their times: an unknown migration is rejected,
 * however old it is.
 * @throws NewerDatabaseError
 */
export async function compareMigrations(sql: ISql): Promise<MigrationState> {
  const { missing, applied, unknown } = await readState(sql);
  if (unknown.length > 0) {
    const version = unknown.findLast((row) => row.version !== null)?.version ?? null;
    throw new NewerDatabaseError(
      version,
      unknown.map(({ name, atMs }) => name ?? `the migration of ${new Date(atMs).toISOString()}`),
    );
  }
  return { missing, isNew: applied.length === 0 };
}

/** Reads the names of this version's migrations that a database lacks; ignores unknown migrations in the database. */
export async function readMissing(sql: ISql): Promise<readonly string[]> {
  return (await readState(sql)).missing.map(({ name }) => name);
}

async function readState(sql: ISql) {
  const [own, applied] = [readMigrations(), await readApplied(sql)];
  const [ownMs, appliedMs] = [own.map(({ folderMillis }) => folderMillis), applied.map(({ atMs }) => atMs)];
  return {
    applied,
    missing: own.filter(({ folderMillis }) => !appliedMs.includes(folderMillis)),
    unknown: applied.filter(({ atMs }) => !ownMs.includes(atMs)),
  };
}

interface AppliedMigration {
  readonly atMs: number;
  readonly name: string | null;
  readonly version: string | null;
}

/** Oldest first. */
async function readApplied(sql: ISql): Promise<readonly AppliedMigration[]> {
  const [found] = await sql`select to_regclass('drizzle.__drizzle_migrations') is not null as there`;
  if (found?.['there'] !== true) return [];
  // By way of JSON: a table that older versions have made has no names.
  return sql<AppliedMigration[]>`
    select (r->>'created_at')::float8 as "atMs", r->>'name' as name, r->>'version' as version
    from drizzle.__drizzle_migrations m cross join lateral to_jsonb(m) as r order by m.created_at`;
}

async function apply(tx: TransactionSql, migration: Migration, log?: Pick<Log, 'info'>): Promise<void> {
  const { name } = migration;
  log?.info({ migration: name }, 'migrating the database');
  const beganMs = performance.now();
  let rows = 0;
  for (const statement of migration.sql) rows += rowsOf(await tx.unsafe(statement));
  await noteMigration(tx, migration);
  const seconds = Number(((performance.now() - beganMs) / 1000).toFixed(3));
  log?.info({ migration: name, rows, seconds }, 'migrated the database');
}

/** Rows that statements have written; PostgreSQL does not count those of a DO block or of a rewritten table. */
function rowsOf(result: { readonly command: string; readonly count: number }): number {
  return /^(INSERT|UPDATE|DELETE|MERGE|SELECT)/.test(result.command) ? result.count : 0;
}
