import postgres, { type ISql, type Sql, type TransactionSql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound, uuidTimeMs } from '#base/id.ts';

/**
 * Records are in one partition per UTC month, created ahead of time. `usage_requests_default` takes records whose month
 * has none, for example after a wrong clock. Once retention has dropped months, `usage_requests_dropped` rejects
 * records of those months: whether such a record was billed is unknown by then.
 */

export interface PartitionOptions {
  readonly db: Db;
  readonly clock: Clock;
}

const fence = 'usage_requests_dropped';
/** Comment of a partition whose indexes have been rebuilt. */
const packed = 'packed';
/** Longest wait for a lock to create or drop a partition; the change is tried again within the hour. */
const lockTimeoutMs = 1000;
/** Limits for moving, reading or indexing records, maybe millions; nothing waits for that. */
const upkeepLimits = { lockTimeoutMs, statementTimeoutMs: 6 * 3_600_000, idleInTransactionTimeoutMs: 60_000 };
const dayMs = 86_400_000;

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Returns the start of the UTC month that is `months` after the one of `timeMs`. */
function monthStartMs(timeMs: number, months = 0): number {
  const date = new Date(timeMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months, 1);
}

const monthOf = (timeMs: number): Span => ({ fromMs: monthStartMs(timeMs), toMs: monthStartMs(timeMs, 1) });

/**
 * Creates the partitions of this month and the next two, and those of earlier records in the default partition, and
 * moves these records there. A partition that cannot be created because of a reader is left to the next call.
 */
export async function ensurePartitions(options: PartitionOptions): Promise<void> {
  await withUpkeep(options, async (sql) => {
    const nowMs = options.clock.now();
    const strays = await findStrayMonths(sql, monthStartMs(nowMs, 3));
    await makePartitions(sql, [...strays, ...monthsAhead(nowMs)]);
  });
}

/**
 * Creates the partitions of this month and the next two at a start. Work that takes longer than a statement of the pool
 * may is left to `ensurePartitions`; until then records of a month without a partition are in the default partition.
 */
export async function beginPartitions(options: PartitionOptions): Promise<void> {
  await makePartitions(options.db.sql, monthsAhead(options.clock.now()));
}

const monthsAhead = (nowMs: number): readonly Span[] => [0, 1, 2].map((months) => monthOf(monthStartMs(nowMs, months)));

async function makePartitions(sql: Sql, months: readonly Span[]): Promise<void> {
  for (const month of months) {
    await unlessLocked(() => withPartitions(sql, (tx) => makePartition(tx, month)));
  }
}

/** Runs work on a separate connection, so that long work takes none of the pool's. */
async function withUpkeep<T>({ db }: PartitionOptions, run: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = db.session(upkeepLimits);
  try {
    return await run(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Returns the months before `endMs` that have records in the default partition. */
async function findStrayMonths(sql: ISql, endMs: number): Promise<readonly Span[]> {
  const months: Span[] = [];
  let from = uuidLowerBound(0);
  for (;;) {
    // No index has the order of ids only, but there are hardly ever any such records.
    const [row] = await sql<{ id: string }[]>`
      select id::text from usage_requests_default r where r.id >= ${from} and r.id < ${uuidLowerBound(endMs)}
      order by r.id limit 1`;
    if (row === undefined) return months;
    const month = monthOf(uuidTimeMs(row.id));
    months.push(month);
    from = uuidLowerBound(month.toMs);
  }
}

async function makePartition(tx: TransactionSql, { fromMs, toMs }: Span): Promise<void> {
  const name = `usage_requests_${new Date(fromMs).toISOString().slice(0, 7).replace('-', '_')}`;
  const [found] = await tx`select to_regclass(${name}) is not null as there`;
  if (found?.['there'] === true || (await readFloorMs(tx)) >= toMs) return;
  const [from, to] = [uuidLowerBound(fromMs), uuidLowerBound(toMs)];
  // The table is attached, not created as a partition: that would wait for all readers and writers of any record.
  await tx.unsafe(`create table ${name} (like usage_requests including all excluding indexes)`);
  await tx.unsafe('lock table usage_requests_default in access exclusive mode');
  await tx.unsafe(`with moved as (delete from usage_requests_default where id >= '${from}' and id < '${to}' returning *)
    insert into ${name} select * from moved`);
  await tx.unsafe(`alter table usage_requests attach partition ${name} for values from ('${from}') to ('${to}')`);
}

/**
 * Drops the months that ended more than `days` ago; sums and the ledger are kept. Records of these months are rejected
 * from then on, with an error that `isBeforeRetention` recognizes.
 * @returns the start of the kept records, in milliseconds since the Unix epoch; 0 if all are kept
 */
export function dropOldPartitions(options: PartitionOptions, days: number): Promise<number> {
  return withUpkeep(options, async (sql) => {
    // Uses the clock that is behind: a clock that runs ahead must not delete anything.
    const [row] = await sql<{ now: string }[]>`select (extract(epoch from now()) * 1000)::bigint::text as now`;
    const nowMs = Math.min(options.clock.now(), Number(row?.now));
    const floorMs = monthStartMs(nowMs - days * dayMs);
    await unlessLocked(() => withPartitions(sql, (tx) => raiseFloor(tx, floorMs)));
    return readFloorMs(sql);
  });
}

async function raiseFloor(tx: TransactionSql, floorMs: number): Promise<void> {
  if (floorMs <= (await readFloorMs(tx))) return;
  const floor = uuidLowerBound(floorMs);
  for (const { name, toMs } of await readPartitions(tx)) {
    if (name === fence || (toMs !== null && toMs <= floorMs)) await tx.unsafe(`drop table ${name}`);
  }
  await tx.unsafe(`delete from usage_requests_default where id < '${floor}'`);
  await tx.unsafe(`create table ${fence} (like usage_requests, constraint ${fence} check (false))`);
  await tx.unsafe(`alter table usage_requests attach partition ${fence} for values from (minvalue) to ('${floor}')`);
}

/**
 * Rebuilds the indexes of past months, once, a day after their end: records of many organizations and keys leave
 * half-empty pages that get no more entries. Nothing waits for it; if it does not finish, the next call tries again.
 */
export async function packPartitions(options: PartitionOptions): Promise<void> {
  const endedMs = options.clock.now() - dayMs;
  await withUpkeep(options, async (sql) => {
    const [lock] = await sql`select pg_try_advisory_lock(hashtext('headgate usage packing')) as is_mine`;
    if (lock?.['is_mine'] !== true) return;
    for (const { name, toMs, isPacked } of await readPartitions(sql)) {
      if (name === fence || isPacked || toMs === null || toMs > endedMs) continue;
      await unlessLocked(() => packPartition(sql, name));
    }
  });
}

async function packPartition(sql: ISql, name: string): Promise<void> {
  // Drops indexes of an aborted attempt.
  const invalid = await sql<{ name: string }[]>`
    select c.relname as name from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = ${name}::regclass and not i.indisvalid and c.relname like '%\\_ccnew%'`;
  for (const index of invalid) await sql.unsafe(`drop index concurrently if exists "${index.name}"`);
  await sql.unsafe(`reindex table concurrently ${name}`);
  await sql.unsafe(`comment on table ${name} is '${packed}'`);
}

/**
 * Locks the set of partitions until the transaction ends; must come before its first query. With an earlier snapshot,
 * the floor would come from the snapshot, but the partitions from the current state. Writers of records are not
 * blocked. A change of partitions waits at most `lockTimeoutMs`, and tries again within the hour.
 */
export async function holdPartitions(tx: ISql): Promise<void> {
  await tx.unsafe('lock table usage_requests in access share mode');
}

/** Returns the time before which no records are kept, in ms since the Unix epoch; 0 if nothing was dropped. */
export async function readFloorMs(sql: ISql): Promise<number> {
  const dropped = (await readPartitions(sql)).find(({ name }) => name === fence);
  return dropped?.toMs ?? 0;
}

export interface Partition {
  readonly name: string;
  /** Bounds in milliseconds since the Unix epoch; null if there is none. */
  readonly fromMs: number | null;
  readonly toMs: number | null;
  readonly isPacked: boolean;
}

/** Returns all partitions except the default one, oldest first. */
export async function readPartitions(sql: ISql): Promise<readonly Partition[]> {
  const rows = await sql<{ name: string; bounds: string; note: string | null }[]>`
    select c.relname as name, pg_get_expr(c.relpartbound, c.oid) as bounds, obj_description(c.oid, 'pg_class') as note
    from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'usage_requests'::regclass`;
  return rows
    .flatMap(({ name, bounds, note }) => {
      const [, from, to] = /^FOR VALUES FROM \((.+)\) TO \((.+)\)$/.exec(bounds) ?? [];
      if (from === undefined || to === undefined) return [];
      return [{ name, fromMs: boundMs(from), toMs: boundMs(to), isPacked: note === packed }];
    })
    .toSorted((a, b) => (a.fromMs ?? 0) - (b.fromMs ?? 0));
}

function boundMs(text: string): number | null {
  const id = /^'([0-9a-f-]{36})'$/.exec(text)?.[1];
  return id === undefined ? null : uuidTimeMs(id);
}

/** True if a record was rejected because records of its month are no longer kept. */
export function isBeforeRetention(error: unknown): boolean {
  return error instanceof postgres.PostgresError && error.code === '23514' && error.constraint_name === fence;
}

/** True if a record was being written to the default partition when its month was created; a retry succeeds. */
export function isBetweenPartitions(error: unknown): boolean {
  return (
    error instanceof postgres.PostgresError &&
    error.code === '23514' &&
    error.table_name === 'usage_requests_default' &&
    error.constraint_name === undefined
  );
}

/** Changes partitions, one gateway at a time. */
function withPartitions(sql: Sql, change: (tx: TransactionSql) => Promise<void>): Promise<void> {
  return sql.begin(async (tx) => {
    await tx`select pg_advisory_xact_lock(hashtext('headgate usage partitions'))`;
    await tx.unsafe(`set local lock_timeout = ${lockTimeoutMs}`);
    await change(tx);
  });
}

/** SQLSTATE codes of a lock that was not obtained in time, and of a statement that took too long. */
const tooLong = ['55P03', '57014'];

async function unlessLocked(change: () => Promise<void>): Promise<void> {
  try {
    await change();
  } catch (error) {
    if (!(error instanceof postgres.PostgresError && tooLong.includes(error.code))) throw error;
  }
}
