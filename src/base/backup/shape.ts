import type { ISql } from 'postgres';
import type { BackupHead, BackupTail } from './format.ts';

/** A table in the schema `public`, as PostgreSQL's catalogs describe it. */

export interface TableShape {
  readonly name: string;
  /** Columns that can be written, in their order. */
  readonly columns: readonly string[];
}

export const quote = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Lists tables that are no partitions, each after the tables that it refers to. */
export async function listTables(sql: ISql): Promise<readonly TableShape[]> {
  const tables = await sql<{ name: string; columns: string; refers: string }[]>`
    select c.relname as name,
      (select json_agg(a.attname order by a.attnum) from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '')::text as columns,
      (select coalesce(json_agg(distinct f.relname), '[]') from pg_constraint k join pg_class f on f.oid = k.confrelid
        where k.conrelid = c.oid and k.contype = 'f' and k.confrelid <> c.oid)::text as refers
    from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    order by c.relname`;
  const shapes = tables.map(({ name, columns, refers }) => ({
    name,
    columns: JSON.parse(columns) as string[],
    refers: JSON.parse(refers) as string[],
  }));
  const sorted: TableShape[] = [];
  for (let left = shapes; left.length > 0;) {
    const names = new Set(left.map(({ name }) => name));
    const next = left.filter(({ refers }) => !refers.some((other) => names.has(other)));
    if (next.length === 0) throw new Error(`tables refer to each other in a circle: ${[...names].join(', ')}`);
    sorted.push(...next.map(({ name, columns }) => ({ name, columns })));
    left = left.filter((table) => !next.includes(table));
  }
  return sorted;
}

/** Reads the applied migrations, oldest first; none if no gateway has used the database. */
export async function readMigrationsOf(sql: ISql): Promise<BackupHead['migrations']> {
  const [found] = await sql`select to_regclass('drizzle.__drizzle_migrations') is not null as there`;
  if (found?.['there'] !== true) return [];
  return [
    ...(await sql<{ hash: string; created_at: number }[]>`
      select hash, created_at::float8 as created_at from drizzle.__drizzle_migrations order by created_at`),
  ];
}

export async function readPartitions(sql: ISql): Promise<BackupHead['partitions']> {
  return [
    ...(await sql<BackupHead['partitions'][number][]>`
      select c.relname as name, p.relname as parent, pg_get_expr(c.relpartbound, c.oid) as bound,
        (select k.conname from pg_constraint k where k.conrelid = c.oid and k.contype = 'c'
          and pg_get_constraintdef(k.oid) = 'CHECK (false)' limit 1) as closed_by,
        obj_description(c.oid, 'pg_class') as comment
      from pg_class c join pg_inherits i on i.inhrelid = c.oid join pg_class p on p.oid = i.inhparent
      where c.relnamespace = 'public'::regnamespace and c.relispartition and c.relkind in ('r', 'p')
      order by c.relname`),
  ];
}

export async function readSequences(sql: ISql): Promise<BackupTail['sequences']> {
  const names = await sql<{ name: string }[]>`
    select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind = 'S' order by relname`;
  const sequences: BackupTail['sequences'] = [];
  for (const { name } of names) {
    const [row] = await sql.unsafe<{ last_value: string; is_called: boolean }[]>(
      `select last_value::text as last_value, is_called from ${quote(name)}`,
    );
    if (row !== undefined) sequences.push({ name, ...row });
  }
  return sequences;
}
