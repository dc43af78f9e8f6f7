import type { ISql, Row, Sql } from 'postgres';
import { sqlStateOf } from '#base/database/database.ts';
import { uuidOfBytes } from '#base/id.ts';
import type { UsageRecord } from './record.ts';
import { recordJson, shownRecordJson } from './spooled-record.ts';

/**
 * A record that Postgres permanently rejects as it is. It is in no sum and charged to nobody until an operator decides.
 */
export interface QuarantinedRecord {
  readonly id: string;
  /** Null if the record could not even be read. */
  readonly organizationId: string | null;
  /** JSON, without its Idempotency-Key, if the record could be read, else the bytes in base64. */
  readonly record: string;
  readonly error: string;
  readonly sqlState: string | null;
  readonly createdAt: Date;
}

export interface KeptRecord extends QuarantinedRecord {
  /** Like `record`, with its Idempotency-Key, as `decodeRecord` reads it. */
  readonly kept: string;
}

/** Returns a list of ids in Postgres' text form. */
const idList = (ids: readonly string[]): string => `{${ids.join(',')}}`;

const errorLengthMax = 2000;

/** Returns a text without characters that Postgres cannot store, which may be the cause of the error. */
const storable = (text: string): string => text.replaceAll('\0', '\uFFFD').toWellFormed().slice(0, errorLengthMax);

/** Stores a rejected record. Storing the same request, or the same invalid bytes, again changes nothing. */
export async function insertQuarantined(
  sql: Sql,
  { record, data, error }: { record: UsageRecord | null; data: Buffer; error: unknown },
): Promise<void> {
  const text = record === null ? data.toString('base64') : recordJson(record);
  const message = storable(error instanceof Error ? error.message : String(error));
  await sql`
    insert into usage_quarantine (id, organization_id, record, error, sql_state, created_at)
    values (${record?.id ?? uuidOfBytes(data)}, ${record?.organizationId ?? null}, ${text}, ${message}, ${sqlStateOf(error)}, now())
    on conflict (id) do nothing`;
}

const columns =
  'id::text, organization_id::text, record, error, sql_state, extract(epoch from created_at) * 1000 as created_ms';

/**
 * Returns records that wait for an operator, newest request first, at most `limit`. @param before only records with a
 * lower id; null for the newest
 */
export async function listQuarantined(
  sql: Sql,
  limit: number,
  before: string | null = null,
): Promise<readonly QuarantinedRecord[]> {
  const rows = await sql`
    select ${sql.unsafe(columns)} from usage_quarantine
    where discarded_at is null and ${before === null ? sql`true` : sql`id < ${before}`} order by id desc limit ${limit}`;
  return rows.map(toQuarantined);
}

export async function readQuarantined(sql: Sql, id: string): Promise<QuarantinedRecord | null> {
  const row = await readRow(sql, id);
  return row === null ? null : toQuarantined(row);
}

export async function readKept(sql: Sql, id: string): Promise<KeptRecord | null> {
  const row = await readRow(sql, id);
  return row === null ? null : { ...toQuarantined(row), kept: String(row['record']) };
}

async function readRow(sql: Sql, id: string): Promise<Row | null> {
  const [row] = await sql`select ${sql.unsafe(columns)} from usage_quarantine
    where id = ${id} and discarded_at is null`;
  return row ?? null;
}

/** Returns which of these records of an organization the database rejected, pending or discarded. */
export async function findQuarantined(
  sql: ISql,
  organizationId: string,
  ids: readonly string[],
): Promise<readonly string[]> {
  const rows = await sql<{ id: string }[]>`
    select id::text from usage_quarantine
    where organization_id = ${organizationId} and id = any(${idList(ids)}::uuid[])`;
  return rows.map(({ id }) => id);
}

/** Returns which of these records an operator discarded. */
export async function findDiscarded(sql: ISql, ids: readonly string[]): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set();
  const rows = await sql<{ id: string }[]>`
    select id::text from usage_quarantine where discarded_at is not null and id = any(${idList(ids)}::uuid[])`;
  return new Set(rows.map(({ id }) => id));
}

/**
 * Parts of a WITH clause: `discarded (id)` has the records of another part that an operator discarded. A discard locks
 * its row `for update`, so it waits for a running write of the record, and a write waits for the discard. Rows are
 * looked up one by one.
 */
export const discardedText = (records: string): string => `in_quarantine as materialized (
      select q.id, q.discarded_at from ${records} g cross join lateral (
        select id, discarded_at from usage_quarantine where id = g.id for key share) q
    ), discarded as materialized (
      select id from in_quarantine where discarded_at is not null
    )`;

function toQuarantined(row: Row): QuarantinedRecord {
  return {
    id: String(row['id']),
    organizationId: row['organization_id'] === null ? null : String(row['organization_id']),
    record: shownRecordJson(String(row['record'])),
    error: String(row['error']),
    sqlState: row['sql_state'] === null ? null : String(row['sql_state']),
    createdAt: new Date(Number(row['created_ms'])),
  };
}
