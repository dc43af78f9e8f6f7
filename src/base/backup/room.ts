import type { ISql, TransactionSql } from 'postgres';
import { BackupError } from './backup-error.ts';
import { quote } from './shape.ts';

/** Checks that a database can take the content of a backup. */

export interface RoomOptions {
  /** Allows a database that holds what gateways have created: the caller drops it. */
  readonly replace: boolean;
  /** Names of everything that a gateway creates. */
  readonly names: ReadonlySet<string>;
}

interface Thing {
  readonly kind: 'table' | 'view' | 'sequence' | 'type' | 'function';
  readonly name: string;
  /** Name for DROP, with the types of a function's arguments. */
  readonly spelled: string;
}

/** @throws BackupError if the database is in use, or holds objects that must not be dropped */
export async function requireRoom(tx: TransactionSql, { replace, names }: RoomOptions): Promise<void> {
  const [row] = await tx<{ encoding: string; name: string }[]>`
    select current_setting('server_encoding') as encoding, current_database() as name`;
  const database = `The database ${JSON.stringify(row?.name)}`;
  if (await isUsed(tx)) throw new BackupError(`${database} is in use by a gateway or another command: stop it first.`);
  if (row?.encoding !== 'UTF8') {
    throw new BackupError(`${database} has the encoding ${row?.encoding}; Headgate requires UTF8.`);
  }
  const things = await listThings(tx);
  const strangers = things.filter(({ name }) => !names.has(name)).map(({ kind, name }) => `${kind} ${name}`);
  if (strangers.length > 0) {
    const named = strangers.slice(0, 5).join(', ');
    throw new BackupError(
      `${database} contains objects of other programs (${named}${strangers.length > 5 ? ', …' : ''}): use a separate database for Headgate.`,
    );
  }
  if (things.length > 0 && !replace) {
    throw new BackupError(
      `${database} is not empty: use --replace to replace all keys, wallets and usage in it with the backup.`,
    );
  }
}

/** True if a gateway is connected: every connection of a gateway has an application name. */
async function isUsed(tx: TransactionSql): Promise<boolean> {
  const rows = await tx<{ name: string }[]>`
    select distinct application_name as name from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and application_name like 'headgate%'`;
  return rows.length > 0;
}

/** Drops everything that gateways create, tables with all their dependent objects. */
export async function dropAll(tx: TransactionSql, names: ReadonlySet<string>): Promise<void> {
  for (const kind of ['view', 'table', 'sequence', 'function', 'type'] as const) {
    const things = (await listThings(tx)).filter((thing) => thing.kind === kind && names.has(thing.name));
    for (const { spelled } of things) await tx.unsafe(`drop ${kind} if exists ${spelled} cascade`);
  }
  await tx`drop table if exists drizzle.__drizzle_migrations`;
}

/**
 * Lists the independent objects in `public`: no partitions, sequences of columns or row types of tables, no functions
 * that PostgreSQL makes for a range type, no extensions.
 */
async function listThings(sql: ISql): Promise<readonly Thing[]> {
  const rows = await sql<{ kind: Thing['kind']; name: string; args: string | null }[]>`
    with owned as (select classid, objid from pg_depend where deptype in ('a', 'i', 'e')
      and refclassid in ('pg_class'::regclass, 'pg_type'::regclass, 'pg_extension'::regclass)
      and (classid, objid) <> (refclassid, refobjid))
    select case relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind, relname as name,
      null as args
    from pg_class c where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'S', 'm', 'f')
      and not relispartition and not exists (select 1 from owned where classid = 'pg_class'::regclass and objid = c.oid)
    union all
    select 'type', typname, null from pg_type t where typnamespace = 'public'::regnamespace
      and typtype in ('e', 'd', 'r') and not exists (select 1 from owned where classid = 'pg_type'::regclass and objid = t.oid)
    union all
    select 'function', proname, pg_get_function_identity_arguments(p.oid) from pg_proc p
    where pronamespace = 'public'::regnamespace
      and not exists (select 1 from owned where classid = 'pg_proc'::regclass and objid = p.oid)`;
  return rows.map(({ kind, name, args }) => ({
    kind,
    name,
    spelled: `public.${quote(name)}${args === null ? '' : `(${args})`}`,
  }));
}

/** True for the SQLSTATE of a lock that was not available in time, an object in use, or a deadlock. */
export const isInUse = (state: string): boolean => ['55P03', '55006', '40P01'].includes(state);
