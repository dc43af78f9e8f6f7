import type { Sql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import { readFloorMs, textsSql, valuesSql } from '#core/metering/tables/tables.ts';
import { type Latency, readLatency } from './latency.ts';
import {
  type ColumnOf,
  dimensionSql,
  groupClause,
  type GroupColumns,
  groupColumns,
  groupOf,
  keyOf,
  momentOf,
  namedSql,
  namesJoined,
  ownerSql,
  shownDay,
  type SummaryDimension,
  type SummaryGroup,
  type SummaryRequest,
} from './summary-groups.ts';

export { type SummaryDimension, summaryDimensions, type SummaryGroup, type SummaryRequest } from './summary-groups.ts';

export interface UsageSums {
  readonly requests: number;
  readonly completed: number;
  readonly aborted: number;
  readonly ended: number;
  readonly failed: number;
  readonly inputTokens: number;
  readonly inputCachedTokens: number;
  readonly outputTokens: number;
  readonly outputReasoningTokens: number;
  readonly costPicoUsd: bigint;
  /**
   * Number of requests that were not admitted, by error code. A minute counts wholly in the span in which it begins.
   */
  readonly refusals: Readonly<Record<string, number>>;
}

export interface SummaryRow extends UsageSums {
  readonly group: SummaryGroup;
  /** Absent if not asked for, and for a group without streams and waits. */
  readonly latency?: Latency;
}

export type Summary =
  | { readonly kind: 'sums'; readonly rows: readonly SummaryRow[]; readonly totals: UsageSums }
  | { readonly kind: 'too_many_groups' }
  /** The span cuts an hour before the start of the kept records; only whole hours are known there. */
  | { readonly kind: 'before_retention'; readonly keptFromMs: number };

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Sums usage over a span, in one snapshot: its whole days from the daily sums, unless hours are requested; whole hours
 * before and after them from the hourly sums; and the partial hours at its ends from the records. If the span cuts no
 * hour, no record is read.
 */
export async function summarize(db: Db, request: SummaryRequest): Promise<Summary> {
  const { broken } = splitSpan(request, false);
  const [usage, refusals, latencies] = await Promise.all([
    readUsage(db.sql, request),
    readRefusals(db.sql, request),
    request.latency === true ? readLatency(db.sql, request) : new Map<string, Latency>(),
  ]);
  // Read afterwards: retention may have deleted records just before they were read.
  const keptFromMs = broken.length === 0 ? 0 : await readFloorMs(db.sql);
  if (broken.some(({ fromMs }) => fromMs < keptFromMs)) return { kind: 'before_retention', keptFromMs };
  const rows = new Map<string, SummaryRow>();
  for (const row of usage) {
    const group = groupOf(row, request.groupBy);
    const key = keyOf(group, request.groupBy);
    const latency = latencies.get(key);
    rows.set(key, { group, ...toSums(row), refusals: {}, ...(latency !== undefined && { latency }) });
  }
  for (const row of refusals) {
    const group = groupOf(row, request.groupBy);
    const key = keyOf(group, request.groupBy);
    // Built by our own aggregate: codes and whole numbers.
    const counts = JSON.parse(row.refusals) as Record<string, number>;
    rows.set(key, { ...(rows.get(key) ?? { group, ...noSums }), refusals: counts });
  }
  if (rows.size > request.groupsMax) return { kind: 'too_many_groups' };
  const sorted = [...rows.values()].toSorted((a, b) => compareGroups(a.group, b.group, request.groupBy));
  return { kind: 'sums', rows: sorted, totals: totalsOf(sorted) };
}

/** Sums come as text, since they are `numeric`. */
interface UsageRow extends GroupColumns {
  readonly requests: string;
  readonly completed: string;
  readonly aborted: string;
  readonly ended: string;
  readonly failed: string;
  readonly input_tokens: string;
  readonly input_cached_tokens: string;
  readonly output_tokens: string;
  readonly output_reasoning_tokens: string;
  readonly cost: string;
}

interface RefusalRow extends GroupColumns {
  /** A JSON object of counts by code. */
  readonly refusals: string;
}

const sumNames = [
  'requests',
  'completed',
  'aborted',
  'ended',
  'failed',
  'input_tokens',
  'input_cached_tokens',
  'output_tokens',
  'output_reasoning_tokens',
  'cost',
] as const;

async function readUsage(sql: Sql, request: SummaryRequest): Promise<readonly UsageRow[]> {
  const { groupBy } = request;
  const { days, hours, broken } = splitSpan(request, groupBy.includes('hour'));
  const sources = [
    ...days.map((span) => daysSql(sql, request, span)),
    ...hours.map((span) => hoursSql(sql, request, span)),
    ...broken.map((span) => recordsSql(sql, request, span)),
  ];
  const [first = hoursSql(sql, request, { fromMs: 0, toMs: 0 }), ...others] = sources;
  const sums = sql.unsafe(sumNames.map((name) => `coalesce(sum(${name}), 0) AS ${name}`).join(', '));
  return sql<UsageRow[]>`
    WITH usage AS (${others.reduce((union, source) => sql`${union} UNION ALL ${source}`, first)}), sums AS (
      SELECT ${groupColumns(sql, groupBy, dimensionSql)} ${sums}
      FROM usage ${groupClause(sql, groupBy)} LIMIT ${request.groupsMax + 1}
    )
    SELECT ${groupColumns(sql, groupBy, namedSql)} ${sql.unsafe(sumNames.join(', '))}
    FROM sums ${namesJoined(sql, groupBy)}`;
}

function daysSql(sql: Sql, request: SummaryRequest, { fromMs, toMs }: Span) {
  return sql`
    SELECT key, model, project, day::timestamp AT TIME ZONE 'UTC' AS hour, ${sql.unsafe(sumNames.join(', '))}
    FROM usage_daily
    WHERE ${ownerSql(sql, request)} AND day >= ${dateOf(fromMs)}::date AND day < ${dateOf(toMs)}::date`;
}

function hoursSql(sql: Sql, request: SummaryRequest, { fromMs, toMs }: Span) {
  return sql`
    SELECT key, model, project, hour, ${sql.unsafe(sumNames.join(', '))} FROM usage_hourly
    WHERE ${ownerSql(sql, request)} AND hour >= ${momentOf(fromMs)} AND hour < ${momentOf(toMs)}`;
}

/** Selects the records within one hour. */
function recordsSql(sql: Sql, request: SummaryRequest, { fromMs, toMs }: Span) {
  return sql`
    SELECT key, model, project, ${momentOf(fromMs - (fromMs % hourMs))}::timestamptz AS hour, 1 AS requests,
      (outcome = 'completed')::int AS completed, (outcome = 'aborted')::int AS aborted,
      (outcome = 'ended')::int AS ended, (outcome = 'failed')::int AS failed,
      input_tokens, input_cached_tokens, output_tokens, output_reasoning_tokens, cost
    FROM usage_requests
    WHERE ${ownerSql(sql, request)} AND id >= ${uuidLowerBound(fromMs)} AND id < ${uuidLowerBound(toMs)}`;
}

async function readRefusals(sql: Sql, request: SummaryRequest): Promise<readonly RefusalRow[]> {
  const { organizationId, keyId, ofKeys, groupBy, only = {} } = request;
  const among = (column: string, ids: readonly string[] | undefined) =>
    ids === undefined ? sql`` : sql`AND ${sql(column)} IN (${valuesSql(sql, ids)})`;
  const ofModels = only.model === undefined ? sql`` : sql`AND model IN (${textsSql(sql, only.model)})`;
  const shown: ColumnOf = (_sql, dimension) => (dimension === 'day' ? shownDay(sql) : sql`${sql(dimension)}`);
  return sql<RefusalRow[]>`
    WITH refused AS (
      SELECT key_id, model, project_id, date_trunc('hour', minute, 'UTC') AS hour, code, count FROM usage_refusals
      WHERE ${organizationId === null ? sql`true` : sql`organization_id = ${organizationId}`}
        AND minute >= ${momentOf(request.fromMs)} AND minute < ${momentOf(request.toMs)} ${keyId === null ? sql`` : sql`AND key_id = ${keyId}`}
        ${among('key_id', ofKeys)} ${among('key_id', only.key_id)} ${among('project_id', only.project_id)} ${ofModels}
    ), by_code AS (
      SELECT ${groupColumns(sql, groupBy, refusedSql)} code, sum(count) AS total FROM refused
      GROUP BY ${sql.unsafe([...groupBy, 'code'].map((_, index) => index + 1).join(', '))}
    )
    SELECT ${groupColumns(sql, groupBy, shown)} json_object_agg(code, total)::text AS refusals FROM by_code
    ${groupClause(sql, groupBy)} ${groupBy.length === 0 ? sql`HAVING count(*) > 0` : sql``}
    LIMIT ${request.groupsMax + 1}`;
}

/** Returns a dimension as SQL over refusals, which are stored by ids and names. */
function refusedSql(sql: Sql, dimension: SummaryDimension) {
  return dimension === 'day' || dimension === 'hour' ? dimensionSql(sql, dimension) : sql`${sql(dimension)}`;
}

interface SplitSpan {
  readonly days: readonly Span[];
  readonly hours: readonly Span[];
  /** Each within one hour. */
  readonly broken: readonly Span[];
}

/**
 * Splits a span at two times into the part between them and the rest; without a part between if they are not in order.
 */
function around({ fromMs, toMs }: Span, firstMs: number, lastMs: number): { inner: Span[]; outer: Span[] } {
  if (firstMs >= lastMs) return { inner: [], outer: [{ fromMs, toMs }] };
  const ends = [
    { fromMs, toMs: firstMs },
    { fromMs: lastMs, toMs },
  ];
  return { inner: [{ fromMs: firstMs, toMs: lastMs }], outer: ends };
}

/** Splits a span into its whole days (unless hours are requested), the whole hours beside them, and the rest. */
function splitSpan(span: Span, byHour: boolean): SplitSpan {
  const inwards = (unitMs: number, { fromMs, toMs }: Span) =>
    [Math.ceil(fromMs / unitMs) * unitMs, Math.floor(toMs / unitMs) * unitMs] as const;
  const isSomething = ({ fromMs, toMs }: Span): boolean => fromMs < toMs;
  const byWholeHours = around(span, ...inwards(hourMs, span));
  const byDays = byWholeHours.inner.map((whole) =>
    byHour ? { inner: [], outer: [whole] } : around(whole, ...inwards(dayMs, whole)),
  );
  return {
    days: byDays.flatMap(({ inner }) => inner),
    hours: byDays.flatMap(({ outer }) => outer).filter(isSomething),
    broken: byWholeHours.outer.flatMap(splitAtHours).filter(isSomething),
  };
}

/** Splits a remainder at a full hour: a span without a whole hour may still lie in two hours. */
function splitAtHours({ fromMs, toMs }: Span): Span[] {
  const nextMs = Math.ceil(fromMs / hourMs) * hourMs;
  if (nextMs <= fromMs || nextMs >= toMs) return [{ fromMs, toMs }];
  return [
    { fromMs, toMs: nextMs },
    { fromMs: nextMs, toMs },
  ];
}

/** Returns the date of a time at the start of a day. */
const dateOf = (timeMs: number): string => momentOf(timeMs).slice(0, -'T00:00:00.000Z'.length);

function compareGroups(a: SummaryGroup, b: SummaryGroup, groupBy: readonly SummaryDimension[]): number {
  for (const dimension of groupBy) {
    const [left = '', right = ''] = [a[dimension], b[dimension]];
    if (left !== right) return left < right ? -1 : 1;
  }
  return 0;
}

const noSums: UsageSums = {
  requests: 0,
  completed: 0,
  aborted: 0,
  ended: 0,
  failed: 0,
  inputTokens: 0,
  inputCachedTokens: 0,
  outputTokens: 0,
  outputReasoningTokens: 0,
  costPicoUsd: 0n,
  refusals: {},
};

function toSums(row: UsageRow): Omit<UsageSums, 'refusals'> {
  return {
    requests: Number(row.requests),
    completed: Number(row.completed),
    aborted: Number(row.aborted),
    ended: Number(row.ended),
    failed: Number(row.failed),
    inputTokens: Number(row.input_tokens),
    inputCachedTokens: Number(row.input_cached_tokens),
    outputTokens: Number(row.output_tokens),
    outputReasoningTokens: Number(row.output_reasoning_tokens),
    costPicoUsd: BigInt(row.cost),
  };
}

const countNames = [
  'requests',
  'completed',
  'aborted',
  'ended',
  'failed',
  'inputTokens',
  'inputCachedTokens',
  'outputTokens',
  'outputReasoningTokens',
] as const;

/** Sums rows in place: there may be thousands. */
function totalsOf(rows: readonly UsageSums[]): UsageSums {
  const refusals: Record<string, number> = {};
  const totals = { ...noSums, refusals };
  for (const row of rows) {
    for (const name of countNames) totals[name] += row[name];
    totals.costPicoUsd += row.costPicoUsd;
    for (const [code, count] of Object.entries(row.refusals)) refusals[code] = (refusals[code] ?? 0) + count;
  }
  return totals;
}
