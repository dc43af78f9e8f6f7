import type { PendingQuery, Row, Sql } from 'postgres';
import { idCodeSql, idCodesSql, nameCodesSql } from '#core/metering/tables/tables.ts';

/** Dimensions and groups of sums, as SQL. */

/** Dimensions by which sums may be grouped; `day` and `hour` are of UTC. */
export const summaryDimensions = ['key_id', 'model', 'project_id', 'day', 'hour'] as const;
export type SummaryDimension = (typeof summaryDimensions)[number];

export interface SummaryRequest {
  /** Null for all organizations. */
  readonly organizationId: string | null;
  /** Only requests of this key; null for all keys. */
  readonly keyId: string | null;
  /** Only requests of these keys; absent for all. */
  readonly ofKeys?: readonly string[];
  /** Only requests of these keys, models or projects; absent for all. Ids are UUIDs. */
  readonly only?: Readonly<Partial<Record<'key_id' | 'model' | 'project_id', readonly string[] | undefined>>>;
  /** Milliseconds since the Unix epoch, `fromMs` included, `toMs` excluded. */
  readonly fromMs: number;
  readonly toMs: number;
  /** Dimensions, each at most once; none gives one sum. */
  readonly groupBy: readonly SummaryDimension[];
  /** True to add percentiles of times and speeds to the groups. */
  readonly latency?: boolean;
  /** Maximum number of groups; with more, the result is `too_many_groups`. */
  readonly groupsMax: number;
}

/** Ids are UUIDs, `day` is YYYY-MM-DD, `hour` the Unix second of its start. */
export type SummaryGroup = Readonly<Partial<Record<SummaryDimension, string | number>>>;

export type GroupColumns = Readonly<Record<SummaryDimension, string>>;

/** Returns a dimension as SQL over a row with the codes of `key`, `model` and `project` and the start of its `hour`. */
export function dimensionSql(sql: Sql, dimension: SummaryDimension) {
  switch (dimension) {
    case 'day':
      return sql`(hour AT TIME ZONE 'UTC')::date AS day`;
    case 'hour':
      return sql`extract(epoch FROM hour)::bigint AS hour`;
    case 'key_id':
      return sql`key AS key_id`;
    case 'project_id':
      return sql`project AS project_id`;
    case 'model':
      return sql`model`;
  }
}

/** Returns a dimension of a row of sums in its shown form: names instead of codes. */
export function namedSql(sql: Sql, dimension: SummaryDimension) {
  if (dimension === 'day') return shownDay(sql);
  if (dimension === 'hour') return sql`hour`;
  if (dimension === 'model') return sql`models.name AS model`;
  return sql`${sql(`${dimension}s`)}.id::text AS ${sql(dimension)}`;
}

/** Joins the names that `namedSql` shows: a lookup of each name for every group would cost as much as the sums. */
export function namesJoined(sql: Sql, groupBy: readonly SummaryDimension[]) {
  return groupBy.reduce(
    (joins, dimension) => {
      if (dimension === 'day' || dimension === 'hour') return joins;
      if (dimension === 'model') return sql`${joins} LEFT JOIN usage_names AS models ON models.code = sums.model`;
      const names = sql(`${dimension}s`);
      return sql`${joins} LEFT JOIN usage_ids AS ${names} ON ${names}.code = sums.${sql(dimension)}`;
    },
    sql``,
  );
}

export const shownDay = (sql: Sql) => sql`to_char(day, 'YYYY-MM-DD') AS day`;

export type ColumnOf = (sql: Sql, dimension: SummaryDimension) => PendingQuery<Row[]>;

/** Returns the select list of the dimensions, with a comma after each. */
export function groupColumns(sql: Sql, groupBy: readonly SummaryDimension[], columnOf: ColumnOf) {
  return groupBy.reduce((list, dimension) => sql`${list} ${columnOf(sql, dimension)},`, sql``);
}

/** Returns `GROUP BY 1, 2, …`; without dimensions, nothing, which gives one group even without rows. */
export function groupClause(sql: Sql, groupBy: readonly SummaryDimension[]) {
  return groupBy.length === 0 ? sql`` : sql.unsafe(`GROUP BY ${groupBy.map((_, index) => index + 1).join(', ')}`);
}

/** Returns the condition for the organization, keys, models and projects of the request, by codes. */
export function ownerSql(sql: Sql, { organizationId, keyId, ofKeys, only = {} }: SummaryRequest) {
  const ofKey = keyId === null ? sql`` : sql`AND key = ${idCodeSql(sql, keyId)}`;
  const among = (column: string, ids: readonly string[] | undefined) =>
    ids === undefined ? sql`` : sql`AND ${sql(column)} IN ${idCodesSql(sql, ids)}`;
  const ofModels = only.model === undefined ? sql`` : sql`AND model IN ${nameCodesSql(sql, only.model)}`;
  const owner = organizationId === null ? sql`true` : sql`organization = ${idCodeSql(sql, organizationId)}`;
  return sql`${owner} ${ofKey} ${among('key', ofKeys)} ${among('key', only.key_id)} ${among('project', only.project_id)} ${ofModels}`;
}

export function groupOf(row: GroupColumns, groupBy: readonly SummaryDimension[]): SummaryGroup {
  return Object.fromEntries(
    groupBy.map((dimension) => [dimension, dimension === 'hour' ? Number(row.hour) : row[dimension]]),
  );
}

export function keyOf(group: SummaryGroup, groupBy: readonly SummaryDimension[]): string {
  return JSON.stringify(groupBy.map((dimension) => group[dimension]));
}

export const momentOf = (timeMs: number): string => new Date(timeMs).toISOString();
