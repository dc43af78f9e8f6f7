import type { Sql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import {
  type DetailedRecord,
  type DetailedRow,
  type OutcomeKind,
  recordColumns,
  type RecordRow,
  toRecord,
  type UsageRecord,
} from '#core/metering/records/records.ts';
import { idCodeSql, idCodesSql, nameCodeSql, unpackFacts } from '#core/metering/tables/tables.ts';
import { type CodedFilter, findHours, isCounted, type KeyHour } from './record-hours.ts';

/**
 * Filter of records. Null leaves a condition out. Times are ms since the Unix epoch of admission, `fromMs` included,
 * `toMs` excluded.
 */
export interface RecordFilter {
  readonly organizationId: string;
  readonly keyId: string | null;
  /** Only requests of these keys; absent for all. */
  readonly ofKeys?: readonly string[];
  readonly projectId: string | null;
  readonly model: string | null;
  readonly outcome: OutcomeKind | null;
  /** The end user as requests name them. */
  readonly endUser: string | null;
  /** HTTP status. */
  readonly status: number | null;
  /** Part of the error, ignoring case. For records, of the code of failed and ended requests. */
  readonly error: string | null;
  readonly fromMs: number | null;
  readonly toMs: number | null;
  /** Only requests admitted before this id, the last of the previous page. */
  readonly before: string | null;
  readonly limit: number;
}

export interface RecordPage {
  /** Newest admission first, whenever they were settled. */
  readonly records: readonly UsageRecord[];
  readonly more: boolean;
}

export interface RecordRef {
  readonly organizationId: string;
  readonly id: string;
  /** Only a request of this key; null for any key. */
  readonly keyId: string | null;
}

/** Higher than every id that an admission creates. */
const lastId = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/**
 * Returns one page of records. Without other filters, an index by organization or key is read from its end. Any other
 * filter may match next to nothing, so the sums show which hours and keys have matching requests.
 */
export async function listRecords({ sql }: Db, filter: RecordFilter): Promise<RecordPage> {
  const coded = await codeFilter(sql, filter);
  if (coded === null) return { records: [], more: false };
  if (coded.ofKeys?.length === 0) return { records: [], more: false };
  const wanted = filter.limit + 1;
  const rows = await readRows(sql, coded, filter.endUser, wanted);
  return { records: rows.slice(0, filter.limit).map(toRecord), more: rows.length > filter.limit };
}

function readRows(sql: Sql, coded: CodedFilter, endUser: string | null, wanted: number): Promise<readonly RecordRow[]> {
  if (endUser !== null) return readOfUser(sql, coded, endUser, wanted);
  const isPlain = coded.project === null && coded.model === null && coded.outcome === null && isCounted(coded);
  return isPlain ? readNewest(sql, coded, wanted) : readFound(sql, coded, wanted);
}

/**
 * Reads the hours that have matching requests according to the sums. If the sums count more than what matches, reads on
 * in older hours, each time in more of them, until there are enough.
 */
async function readFound(sql: Sql, filter: CodedFilter, wanted: number): Promise<readonly RecordRow[]> {
  if (isCounted(filter)) return readWithin(sql, filter, await findHours(sql, filter, wanted), wanted);
  const rows: RecordRow[] = [];
  let { to } = filter;
  for (let counted = wanted * 4; ; counted *= 8) {
    const hours = await findHours(sql, { ...filter, to }, counted);
    rows.push(...(await readWithin(sql, { ...filter, to }, hours, wanted - rows.length)));
    const oldestMs = hours.reduce((least, { fromMs }) => Math.min(least, fromMs), Number.POSITIVE_INFINITY);
    if (hours.length === 0 || rows.length >= wanted || uuidLowerBound(oldestMs) <= filter.from) return rows;
    to = uuidLowerBound(oldestMs);
  }
}

/** Returns the filter with codes; null if one of the names was never used, so that nothing matches. */
async function codeFilter(sql: Sql, filter: RecordFilter): Promise<CodedFilter | null> {
  const { organizationId, keyId, projectId, model, outcome, status, error, fromMs, toMs, before } = filter;
  const [codes] = await sql<Record<'organization' | 'key' | 'project' | 'model', number | null>[]>`
    select ${idCodeSql(sql, organizationId)} as organization, ${idCodeSql(sql, keyId)} as key,
      ${idCodeSql(sql, projectId)} as project, ${nameCodeSql(sql, model)} as model`;
  if (codes === undefined || codes.organization === null) return null;
  const asked: [string | null, number | null][] = [
    [keyId, codes.key],
    [projectId, codes.project],
    [model, codes.model],
  ];
  if (asked.some(([name, code]) => name !== null && code === null)) return null;
  const ofKeys =
    filter.ofKeys === undefined
      ? null
      : await sql<{ code: number }[]>`select code from ${idCodesSql(sql, filter.ofKeys)} as codes`;
  const to = toMs === null ? lastId : uuidLowerBound(toMs);
  return {
    ...codes,
    organization: codes.organization,
    ofKeys: ofKeys === null ? null : ofKeys.map(({ code }) => code),
    outcome,
    status,
    error,
    from: uuidLowerBound(fromMs ?? 0),
    to: before !== null && before < to ? before : to,
  };
}

/**
 * Reads the newest records. An id contains the time of its admission, so bounds of time are bounds of the index and of
 * partitions.
 */
function readNewest(sql: Sql, filter: CodedFilter, limit: number) {
  const { organization, key, ofKeys, from, to } = filter;
  if (key === null && ofKeys !== null) return readNewestOf(sql, { ...filter, ofKeys }, limit);
  // A key belongs to one organization. The `+ 0` keeps PostgreSQL from using the index of organizations.
  const owner =
    key === null ? sql`r.organization = ${organization}` : sql`r.key = ${key} and r.organization + 0 = ${organization}`;
  return sql<RecordRow[]>`
    with page as (
      select * from usage_requests r where ${owner} and r.id >= ${from} and r.id < ${to} order by r.id desc limit ${limit}
    ) select ${recordColumns(sql)} from page r order by r.id desc`;
}

/** Reads the newest records of each key, from the end of its index, and returns the newest of these. */
function readNewestOf(
  sql: Sql,
  { organization, ofKeys, from, to }: CodedFilter & { readonly ofKeys: readonly number[] },
  limit: number,
) {
  return sql<RecordRow[]>`
    with page as (
      select q.* from json_to_recordset(${JSON.stringify(ofKeys.map((key) => ({ key })))}::text::json) as k(key integer) cross join lateral (
        select * from usage_requests r
        where r.key = k.key and r.organization + 0 = ${organization} and r.id >= ${from} and r.id < ${to}
        order by r.id desc limit ${limit}
      ) as q
      order by q.id desc limit ${limit}
    ) select ${recordColumns(sql)} from page r order by r.id desc`;
}

async function readWithin(sql: Sql, filter: CodedFilter, hours: readonly KeyHour[], limit: number) {
  if (hours.length === 0) return [];
  const spans = hours.map(({ key, fromMs, toMs }) => ({ key, from: uuidLowerBound(fromMs), to: uuidLowerBound(toMs) }));
  const { organization, from, to } = filter;
  return sql<RecordRow[]>`
    with page as (
      select q.* from json_to_recordset(${JSON.stringify(spans)}::text::json) as s(key integer, "from" uuid, "to" uuid)
      cross join lateral (
        select * from usage_requests r
        where r.key = s.key and r.id >= greatest(s."from", ${from}::uuid) and r.id < least(s."to", ${to}::uuid)
          and r.organization + 0 = ${organization} ${narrowed(sql, filter)}
        order by r.id desc limit ${limit}
      ) as q
      order by q.id desc limit ${limit}
    ) select ${recordColumns(sql)} from page r order by r.id desc`;
}

/** Reads the newest records of an end user, from the end of the user's index. */
async function readOfUser(sql: Sql, filter: CodedFilter, endUser: string, limit: number) {
  const { organization, key, ofKeys, from, to } = filter;
  return sql<RecordRow[]>`
    with page as (
      select * from usage_requests r
      where r.organization = ${organization} and r.end_user = ${endUser} and r.id >= ${from} and r.id < ${to}
        ${key === null ? sql`` : sql`and r.key + 0 = ${key}`}
        ${ofKeys === null ? sql`` : sql`and r.key + 0 in (select value::text::integer from json_array_elements(${JSON.stringify(ofKeys)}::text::json))`}
        ${narrowed(sql, filter)}
      order by r.id desc limit ${limit}
    ) select ${recordColumns(sql)} from page r order by r.id desc`;
}

/** Returns the conditions on a row `r` that no index has. */
function narrowed(sql: Sql, { project, model, outcome, status, error }: CodedFilter) {
  return sql`${project === null ? sql`` : sql`and r.project = ${project}`}
    ${model === null ? sql`` : sql`and r.model = ${model}`}
    ${outcome === null ? sql`` : sql`and r.outcome = ${outcome}`}
    ${status === null ? sql`` : sql`and r.status = ${status}`}
    ${error === null ? sql`` : sql`and r.outcome in ('failed', 'ended') and strpos(lower(r.reason), lower(${error})) > 0`}`;
}

export async function readRecord(
  { sql }: Db,
  { organizationId, id, keyId }: RecordRef,
): Promise<DetailedRecord | null> {
  const [row] = await sql<DetailedRow[]>`
    select ${recordColumns(sql)}, r.facts from usage_requests r
    where r.organization = ${idCodeSql(sql, organizationId)} and r.id = ${id}
      ${keyId === null ? sql`` : sql`and r.key = ${idCodeSql(sql, keyId)}`}`;
  if (row === undefined) return null;
  return { record: toRecord(row), facts: row.facts === null ? null : unpackFacts(row.facts) };
}

/** Returns a page of all records that a filter matches, of the size that is read at once. */
export function pageOfAll(db: Db, filter: Omit<RecordFilter, 'limit'>): Promise<RecordPage> {
  return listRecords(db, { ...filter, limit: rowsAtOnce });
}

const rowsAtOnce = 1000;
