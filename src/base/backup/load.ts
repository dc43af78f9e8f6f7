import { pipeline } from 'node:stream/promises';
import type { ISql, TransactionSql } from 'postgres';
import {
  type Db,
  makeMigrationsTable,
  type Migration,
  noteMigration,
  readMigrations,
  sqlStateOf,
} from '#base/database/database.ts';
import { BackupError } from './backup-error.ts';
import { type BackupContent, type BackupHead, type BackupTable, type BackupTail, readBackupFile } from './format.ts';
import { listTables, quote, readPartitions, readSequences } from './shape.ts';
import { dropAll, isInUse, requireRoom } from './room.ts';

export interface LoadOptions {
  readonly db: Db;
  readonly path: string;
  /** Content of the file when it was checked. */
  readonly content: BackupContent;
  /** True drops what gateways have created in the database; false rejects a database that is not empty. */
  readonly replace: boolean;
  /** Tables whose rows in the file, which older versions have written, are not loaded. */
  readonly leaveOut: readonly string[];
  /** Runs last before the commit, once the content is written. If it fails, nothing is committed. */
  readonly beforeCommit: (sql: ISql) => Promise<void>;
}

/**
 * Reads a whole file, and changes nothing.
 * @throws BackupError if the file is no backup, cut short, altered, or of a version that this one does not know
 */
export async function checkBackup(path: string): Promise<BackupContent> {
  const content = await readBackupFile(path, { onHead: (head) => void migrationsFor(path, head) });
  return content;
}

/**
 * Loads the content of a file into a database, in one transaction: all of it or nothing. The tables are created as they
 * were at the backup; newer migrations are applied at the next start of a gateway.
 * @throws BackupError if the database is not empty, is in use, or rejects the content of the file
 */
export async function loadBackup(options: LoadOptions): Promise<void> {
  const { db, path, content, replace, leaveOut, beforeCommit } = options;
  const migrations = migrationsFor(path, content.head);
  try {
    await db.sql.begin(async (tx) => {
      // Gateways that start now wait for this lock before they use the database.
      await tx`select pg_advisory_xact_lock(hashtext('headgate migrations'))`;
      await tx`set local datestyle = 'ISO'`;
      await requireRoom(tx, { replace, names: namesOf(readMigrations()) });
      if (replace) await dropAll(tx, namesOf(readMigrations()));
      await applyMigrations(tx, migrations);
      await makePartitions(tx, content.head);
      const tail = await copyTables(tx, path);
      // An older file does not have all of these tables.
      const left = (await listTables(tx)).filter(({ name }) => leaveOut.includes(name));
      for (const { name } of left) await tx.unsafe(`truncate ${quote(name)}`);
      if (tail.sha256 !== content.tail.sha256) throw new BackupError(`${path} changed while it was being read.`);
      await setSequences(tx, tail);
      await beforeCommit(tx);
    });
  } catch (error) {
    throw toBackupError(path, error);
  }
}

/** Returns the migrations of this version that the file's database had. @throws BackupError if it had others */
function migrationsFor(path: string, { migrations, headgate_version: version }: BackupHead): readonly Migration[] {
  const own = readMigrations();
  if (migrations.length > own.length) {
    throw new BackupError(
      `${path} was written by a newer Headgate (${version}) with tables unknown to this one. Update this Headgate first.`,
    );
  }
  const applied = own.slice(0, migrations.length);
  if (applied.some(({ hash }, index) => hash !== migrations[index]?.hash)) {
    throw new BackupError(`${path} was written by another Headgate (${version}) with different tables.`);
  }
  return applied;
}

/** Returns the names of everything that migrations create in `public`, even if a later migration removes it. */
function namesOf(migrations: readonly Migration[]): ReadonlySet<string> {
  const made = /\b(?:TABLE|VIEW|TYPE|SEQUENCE|FUNCTION|RENAME TO)\s+(?:IF NOT EXISTS\s+)?(?:"public"\.)?"(\w+)"/g;
  return new Set(migrations.flatMap(({ sql }) => [...sql.join('\n').matchAll(made)].map(([, name]) => name ?? '')));
}

async function applyMigrations(tx: TransactionSql, migrations: readonly Migration[]): Promise<void> {
  await makeMigrationsTable(tx);
  for (const migration of migrations) {
    for (const statement of migration.sql) await tx.unsafe(statement);
    await noteMigration(tx, migration);
  }
  const tables = await listTables(tx);
  // Some migrations fill a table with the content of older tables.
  await tx.unsafe(`truncate ${tables.map(({ name }) => quote(name)).join(', ')}`);
}

async function makePartitions(tx: TransactionSql, head: BackupHead): Promise<void> {
  const there = new Set((await readPartitions(tx)).map(({ name }) => name));
  for (const { name, parent, bound, closed_by: closedBy, comment } of head.partitions) {
    if (!there.has(name)) await tx.unsafe(`create table ${quote(name)} partition of ${quote(parent)} ${bound}`);
    if (!there.has(name) && closedBy !== null) {
      await tx.unsafe(`alter table ${quote(name)} add constraint ${quote(closedBy)} check (false)`);
    }
    if (comment !== null) await tx.unsafe(`comment on table ${quote(name)} is '${comment.replaceAll("'", "''")}'`);
  }
}

async function copyTables(tx: TransactionSql, path: string): Promise<BackupTail> {
  const shapes = new Map((await listTables(tx)).map(({ name, columns }) => [name, new Set(columns)]));
  const seen = new Set<string>();
  const copy = async ({ table, columns }: BackupTable, rows: AsyncGenerator<Buffer>): Promise<void> => {
    const shape = shapes.get(table);
    const isKnown = shape !== undefined && shape.size === columns.length && columns.every((name) => shape.has(name));
    if (!isKnown || seen.has(table))
      throw new BackupError(`${path} contains a table ${table} that Headgate does not have.`);
    seen.add(table);
    const target = await tx.unsafe(`copy ${quote(table)} (${columns.map(quote).join(', ')}) from stdin`).writable();
    await pipeline(rows, target);
  };
  const { tail } = await readBackupFile(path, { onTable: copy });
  const missing = [...shapes.keys()].filter((name) => !seen.has(name));
  if (missing.length > 0) throw new BackupError(`${path} lacks the tables ${missing.join(', ')}.`);
  return tail;
}

async function setSequences(tx: TransactionSql, { sequences }: BackupTail): Promise<void> {
  const there = new Set((await readSequences(tx)).map(({ name }) => name));
  for (const { name, last_value: last, is_called: isCalled } of sequences.filter(({ name: own }) => there.has(own))) {
    await tx`select setval(${quote(name)}::regclass, ${last}::bigint, ${isCalled})`;
  }
}

/** Turns PostgreSQL's errors into sentences about this file and this database. */
function toBackupError(path: string, error: unknown): unknown {
  const state = sqlStateOf(error);
  if (error instanceof BackupError || state === null) return error;
  const reason = error instanceof Error ? error.message : String(error);
  if (isInUse(state)) {
    return new BackupError('The database is in use: stop all gateways and other programs that use it.', error);
  }
  if (state === '53100') return new BackupError('The disk of PostgreSQL is full. Nothing was changed.', error);
  return new BackupError(`PostgreSQL rejected ${path} (${reason}). Nothing was changed.`, error);
}
