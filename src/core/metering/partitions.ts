import postgres, { type ISql, type Sql, type TransactionSql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { uuidLowerBound, uuidTimeMs } from '#base/id.ts';

/**
 * Records lie in a partition per UTC month, made ahead of time. `usage_requests_default` catches a record whose month
 * has none, as when a clock was wrong; `usage_requests_dropped`, once retention has taken months away, refuses records
 * of those months: whether such a record was billed is not known any more.
 */

export interface PartitionOptions {
  readonly db: Db;
  readonly clock: Clock;
}

const fence = 'usage_requests_dropped';
/** Comment of a partition whose indexes have been built anew. */
const packed = 'packed';
/** Nobody waits longer than this for a partition to be made or dropped; it is tried again within the hour. */
const lockTimeoutMs = 1000;
/** Records may have to be moved, read or indexed again, millions of them; nobody waits for that. */
const upkeepLimits = { lockTimeoutMs, statementTimeoutMs: 6 * 3_600_000, idleInTransactionTimeoutMs: 60_000 };
const dayMs = 86_400_000;

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** First moment of the UTC month that is `months` after the one of `timeMs`. */
function monthStartMs(timeMs: number, months = 0): number {
  const date = new Date(timeMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months, 1);
}

const monthOf = (timeMs: number): Span => ({ fromMs: monthStartMs(timeMs), toMs: monthStartMs(timeMs, 1) });

/**
 * Makes the partitions of this month and the two that follow, and those of earlier records that lie in the default
 * partition, with these records in them. What cannot be made because somebody reads is left for the next call.
 */
export async function ensurePartitions(options: PartitionOptions): Promise<void> {
  await withUpkeep(options, async (sql) => {
    const nowMs = options.clock.now();
    const strays = await findStrayMonths(sql, monthStartMs(nowMs, 3));
    await makePartitions(sql, [...strays, ...monthsAhead(nowMs)]);
  });
}

/**
 * Makes the partitions of this month and the two that follow, for a start: what takes longer than a statement of the
 * pool may is left for `ensurePartitions`. Records of a month that has none lie in the default partition until then.
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

/** A connection of its own: what runs long takes none of the pool's. */
async function withUpkeep<T>({ db }: PartitionOptions, run: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = db.session(upkeepLimits);
  try {
    return await run(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Months before `endMs` that have records in the default partition. */
async function findStrayMonths(sql: ISql, endMs: number): Promise<readonly Span[]> {
  const months: Span[] = [];
  let from = uuidLowerBound(0);
  for (;;) {
    // The order is that of the ids alone, which no index has; but there are hardly ever any.
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
  // Attached and not made as a partition: that would wait for all who read or write any of the records.
  await tx.unsafe(`create table ${name} (like usage_requests including all excluding indexes)`);
  await tx.unsafe('lock table usage_requests_default in access exclusive mode');
  await tx.unsafe(`with moved as (delete from usage_requests_default where id >= '${from}' and id < '${to}' returning *)
    insert into ${name} select * from moved`);
  await tx.unsafe(`alter table usage_requests attach partition ${name} for values from ('${from}') to ('${to}')`);
}

/**
 * Drops the months that ended more than `days` ago; sums and the ledger are kept. Records of these months are refused
 * from then on, with an error that `isBeforeRetention` knows.
 * @returns the moment, in milliseconds since the Unix epoch, from which on records are kept; 0 for all
 */
export function dropOldPartitions(options: PartitionOptions, days: number): Promise<number> {
  return withUpkeep(options, async (sql) => {
    // Of two clocks the one that is behind: a clock that runs ahead must not take anything away.
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
 * Builds the indexes of months that have ended anew, once, a day after their end: records of many organizations and keys
 * leave pages half empty that nothing is added to any more. Nobody waits for it; where it does not come to its end it is
 * tried again by the next call.
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
  // What a try that was broken off has left behind.
  const invalid = await sql<{ name: string }[]>`
    select c.relname as name from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = ${name}::regclass and not i.indisvalid and c.relname like '%\\_ccnew%'`;
  for (const index of invalid) await sql.unsafe(`drop index concurrently if exists "${index.name}"`);
  await sql.unsafe(`reindex table concurrently ${name}`);
  await sql.unsafe(`comment on table ${name} is '${packed}'`);
}

/**
 * Keeps all partitions as they are until the transaction ends; must come before its first query. Of a later one's
 * snapshot the floor would be that of the snapshot, but the partitions read from those of today. Whoever writes records
 * goes on; who makes or drops partitions waits no longer than `lockTimeoutMs`, and tries again within the hour.
 */
export async function holdPartitions(tx: ISql): Promise<void> {
  await tx.unsafe('lock table usage_requests in access share mode');
}

/** The moment before which no records are kept, in milliseconds since the Unix epoch; 0 where nothing was dropped. */
export async function readFloorMs(sql: ISql): Promise<number> {
  const dropped = (await readPartitions(sql)).find(({ name }) => name === fence);
  return dropped?.toMs ?? 0;
}

export interface Partition {
  readonly name: string;
  /** Bounds in milliseconds since the Unix epoch; null where there is none. */
  readonly fromMs: number | null;
  readonly toMs: number | null;
  readonly isPacked: boolean;
}

/** All partitions but the default one, oldest first. */
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

/** Whether a record was refused because records of its month are no longer kept. */
export function isBeforeRetention(error: unknown): boolean {
  return error instanceof postgres.PostgresError && error.code === '23514' && error.constraint_name === fence;
}

/** Whether a record was on its way into the default partition when its month was made; it finds its way when repeated. */
export function isBetweenPartitions(error: unknown): boolean {
  return (
    error instanceof postgres.PostgresError &&
    error.code === '23514' &&
    error.table_name === 'usage_requests_default' &&
    error.constraint_name === undefined
  );
}

/** One at a time over all gateways. */
function withPartitions(sql: Sql, change: (tx: TransactionSql) => Promise<void>): Promise<void> {
  return sql.begin(async (tx) => {
    await tx`select pg_advisory_xact_lock(hashtext('headgate usage partitions'))`;
    await tx.unsafe(`set local lock_timeout = ${lockTimeoutMs}`);
    await change(tx);
  });
}

/** A lock that was not had in time, and a statement that took too long. */
const tooLong = ['55P03', '57014'];

async function unlessLocked(change: () => Promise<void>): Promise<void> {
  try {
    await change();
  } catch (error) {
    if (!(error instanceof postgres.PostgresError && tooLong.includes(error.code))) throw error;
  }
}
