import type { Sql } from 'postgres';
import type { Db } from '#base/db.ts';
import { uuidLowerBound } from '#base/id.ts';

/** What sums may be grouped by; `day` and `hour` are of UTC. */
export const summaryDimensions = ['key_id', 'model', 'project_id', 'day', 'hour'] as const;
export type SummaryDimension = (typeof summaryDimensions)[number];

export interface SummaryRequest {
  readonly organizationId: string;
  /** Only what this key did; null for all keys. */
  readonly keyId: string | null;
  /** Milliseconds since the Unix epoch, `fromMs` in, `toMs` not. */
  readonly fromMs: number;
  readonly toMs: number;
  /** Each at most once; none gives one sum. */
  readonly groupBy: readonly SummaryDimension[];
  /** With more groups than this there is no answer. */
  readonly groupsMax: number;
}

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
  /** Requests that were not admitted, by error code. A minute counts wholly in the span in which it begins. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** Ids are UUIDs, `day` is YYYY-MM-DD, `hour` the Unix second of its start. */
export type SummaryGroup = Readonly<Partial<Record<SummaryDimension, string | number>>>;

export interface SummaryRow extends UsageSums {
  readonly group: SummaryGroup;
}

export type Summary =
  | { readonly kind: 'sums'; readonly rows: readonly SummaryRow[]; readonly totals: UsageSums }
  | { readonly kind: 'too_many_groups' };

const hourMs = 3_600_000;

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Sums usage over a span: its whole hours from the hourly sums, the broken ones at its ends from the records, in one
 * snapshot. Where the span cuts no hour no record is read.
 */
export async function summarize(db: Db, request: SummaryRequest): Promise<Summary> {
  const [usage, refusals] = await Promise.all([readUsage(db.sql, request), readRefusals(db.sql, request)]);
  const rows = new Map<string, SummaryRow>();
  for (const row of usage) {
    const group = groupOf(row, request.groupBy);
    rows.set(keyOf(group, request.groupBy), { group, ...toSums(row), refusals: {} });
  }
  for (const row of refusals) {
    const group = groupOf(row, request.groupBy);
    const key = keyOf(group, request.groupBy);
    // Counted by an aggregate of ours: codes and whole numbers.
    const counts = JSON.parse(row.refusals) as Record<string, number>;
    rows.set(key, { ...(rows.get(key) ?? { group, ...noSums }), refusals: counts });
  }
  if (rows.size > request.groupsMax) return { kind: 'too_many_groups' };
  const sorted = [...rows.values()].toSorted((a, b) => compareGroups(a.group, b.group, request.groupBy));
  return { kind: 'sums', rows: sorted, totals: sorted.reduce<UsageSums>(addSums, noSums) };
}

type GroupColumns = Readonly<Record<SummaryDimension, string>>;

/** Sums come as text: they are `numeric`. */
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

/** A dimension as SQL over a row with `key_id`, `model`, `project_id` and the start of its `hour`. */
function dimensionSql(sql: Sql, dimension: SummaryDimension) {
  switch (dimension) {
    case 'day':
      return sql`to_char(hour AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day`;
    case 'hour':
      return sql`extract(epoch FROM hour)::bigint AS hour`;
    case 'key_id':
    case 'model':
    case 'project_id':
      return sql`${sql(dimension)}`;
  }
}

/** The select list of the dimensions, a comma after each. */
function groupColumns(sql: Sql, groupBy: readonly SummaryDimension[]) {
  return groupBy.reduce((list, dimension) => sql`${list} ${dimensionSql(sql, dimension)},`, sql``);
}

/** `GROUP BY 1, 2, …`; one group of everything, also of nothing, without dimensions. */
function groupClause(sql: Sql, groupBy: readonly SummaryDimension[]) {
  return groupBy.length === 0 ? sql`` : sql.unsafe(`GROUP BY ${groupBy.map((_, index) => index + 1).join(', ')}`);
}

async function readUsage(sql: Sql, request: SummaryRequest): Promise<readonly UsageRow[]> {
  const { organizationId, keyId, groupBy } = request;
  const { whole, broken } = splitSpan(request);
  const ofKey = keyId === null ? sql`` : sql`AND key_id = ${keyId}`;
  const wholeHours = sql`
    SELECT key_id, model, project_id, hour, requests, completed, aborted, ended, failed,
      input_tokens, input_cached_tokens, output_tokens, output_reasoning_tokens, cost
    FROM usage_hourly
    WHERE organization_id = ${organizationId} AND hour >= ${momentOf(whole.fromMs)} AND hour < ${momentOf(whole.toMs)} ${ofKey}`;
  const sources = broken.reduce(
    (union, { fromMs, toMs }) => sql`${union} UNION ALL
      SELECT key_id, model, project_id, ${momentOf(fromMs - (fromMs % hourMs))}::timestamptz, 1,
        (outcome = 'completed')::int, (outcome = 'aborted')::int, (outcome = 'ended')::int, (outcome = 'failed')::int,
        input_tokens, input_cached_tokens, output_tokens, output_reasoning_tokens, cost
      FROM usage_records
      WHERE organization_id = ${organizationId} AND id >= ${uuidLowerBound(fromMs)} AND id < ${uuidLowerBound(toMs)} ${ofKey}`,
    wholeHours,
  );
  return sql<UsageRow[]>`
    WITH usage AS (${sources})
    SELECT ${groupColumns(sql, groupBy)}
      coalesce(sum(requests), 0) AS requests, coalesce(sum(completed), 0) AS completed,
      coalesce(sum(aborted), 0) AS aborted, coalesce(sum(ended), 0) AS ended, coalesce(sum(failed), 0) AS failed,
      coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(input_cached_tokens), 0) AS input_cached_tokens,
      coalesce(sum(output_tokens), 0) AS output_tokens,
      coalesce(sum(output_reasoning_tokens), 0) AS output_reasoning_tokens, coalesce(sum(cost), 0) AS cost
    FROM usage ${groupClause(sql, groupBy)} LIMIT ${request.groupsMax + 1}`;
}

async function readRefusals(sql: Sql, request: SummaryRequest): Promise<readonly RefusalRow[]> {
  const { organizationId, keyId, groupBy } = request;
  const dimensions = groupBy.length === 0 ? sql`` : sql`${sql([...groupBy])},`;
  return sql<RefusalRow[]>`
    WITH refused AS (
      SELECT key_id, model, project_id, date_trunc('hour', minute, 'UTC') AS hour, code, count FROM usage_refusals
      WHERE organization_id = ${organizationId} AND minute >= ${momentOf(request.fromMs)}
        AND minute < ${momentOf(request.toMs)} ${keyId === null ? sql`` : sql`AND key_id = ${keyId}`}
    ), by_code AS (
      SELECT ${groupColumns(sql, groupBy)} code, sum(count) AS total FROM refused
      GROUP BY ${sql.unsafe([...groupBy, 'code'].map((_, index) => index + 1).join(', '))}
    )
    SELECT ${dimensions} json_object_agg(code, total)::text AS refusals FROM by_code
    ${groupClause(sql, groupBy)} ${groupBy.length === 0 ? sql`HAVING count(*) > 0` : sql``}
    LIMIT ${request.groupsMax + 1}`;
}

/** The whole hours of a span, and what is left of it, each part within one hour. */
function splitSpan({ fromMs, toMs }: Span): { whole: Span; broken: Span[] } {
  const firstMs = Math.ceil(fromMs / hourMs) * hourMs;
  const lastMs = Math.floor(toMs / hourMs) * hourMs;
  if (firstMs > lastMs) return { whole: { fromMs, toMs: fromMs }, broken: [{ fromMs, toMs }] };
  const ends = [
    { fromMs, toMs: firstMs },
    { fromMs: lastMs, toMs },
  ];
  return { whole: { fromMs: firstMs, toMs: lastMs }, broken: ends.filter((span) => span.fromMs < span.toMs) };
}

const momentOf = (timeMs: number): string => new Date(timeMs).toISOString();

function groupOf(row: GroupColumns, groupBy: readonly SummaryDimension[]): SummaryGroup {
  return Object.fromEntries(
    groupBy.map((dimension) => [dimension, dimension === 'hour' ? Number(row.hour) : row[dimension]]),
  );
}

function keyOf(group: SummaryGroup, groupBy: readonly SummaryDimension[]): string {
  return JSON.stringify(groupBy.map((dimension) => group[dimension]));
}

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

function addSums(a: UsageSums, b: UsageSums): UsageSums {
  const refusals = { ...a.refusals };
  for (const [code, count] of Object.entries(b.refusals)) refusals[code] = (refusals[code] ?? 0) + count;
  return {
    requests: a.requests + b.requests,
    completed: a.completed + b.completed,
    aborted: a.aborted + b.aborted,
    ended: a.ended + b.ended,
    failed: a.failed + b.failed,
    inputTokens: a.inputTokens + b.inputTokens,
    inputCachedTokens: a.inputCachedTokens + b.inputCachedTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    outputReasoningTokens: a.outputReasoningTokens + b.outputReasoningTokens,
    costPicoUsd: a.costPicoUsd + b.costPicoUsd,
    refusals,
  };
}
