import type { Sql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { type LatencyMeasure, latencyMeasures, valueOfBucket } from '#core/metering/tables/tables.ts';
import {
  dimensionSql,
  type GroupColumns,
  groupColumns,
  groupOf,
  keyOf,
  momentOf,
  namedSql,
  namesJoined,
  ownerSql,
  type SummaryRequest,
} from './summary-groups.ts';

/** Percentiles of the values of requests, each at most 4.5 % off. */
export interface Percentiles {
  /** Number of requests that have a value. */
  readonly requests: number;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
}

/** Percentiles of each measure; null if no request has a value. */
export type Latency = Readonly<Record<LatencyMeasure, Percentiles | null>>;

interface LatencyRow extends GroupColumns {
  readonly measure: number;
  readonly total: string;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
}

const hourMs = 3_600_000;
const keptDays = 90;
const none: Latency = { firstByteMs: null, tokensPerSecond: null, queuedMs: null };
const names = Object.entries(latencyMeasures) as readonly [LatencyMeasure, number][];

/** Deletes histograms of hours that are more than 90 days old. */
export async function deleteOldLatency({ db: { sql }, clock }: { db: Db; clock: Clock }): Promise<void> {
  await sql`DELETE FROM usage_latency WHERE hour < ${momentOf(clock.now() - keptDays * 24 * hourMs)}`;
}

/** Merges the histograms of each group of a summary. The span is widened to whole hours. Keys are those of `keyOf`. */
export async function readLatency(sql: Sql, request: SummaryRequest): Promise<ReadonlyMap<string, Latency>> {
  const { groupBy, fromMs, toMs } = request;
  const dimensions = sql.unsafe([...groupBy, 'measure'].join(', '));
  const rank = (share: number) => sql`min(bucket) FILTER (WHERE upto >= total * ${share}::float8)`;
  const rows = await sql<LatencyRow[]>`
    WITH merged AS (
      SELECT ${groupColumns(sql, groupBy, dimensionSql)} measure, bucket, sum(requests) AS requests FROM usage_latency
      WHERE ${ownerSql(sql, request)}
        AND hour >= ${momentOf(fromMs - (fromMs % hourMs))} AND hour < ${momentOf(toMs)}
      GROUP BY ${sql.unsafe([...groupBy, 'measure', 'bucket'].map((_, index) => index + 1).join(', '))}
    ), ranked AS (
      SELECT ${dimensions}, bucket, sum(requests) OVER (PARTITION BY ${dimensions} ORDER BY bucket) AS upto,
        sum(requests) OVER (PARTITION BY ${dimensions}) AS total FROM merged
    ), sums AS (
      SELECT ${dimensions}, max(total) AS total, ${rank(0.5)} AS p50, ${rank(0.95)} AS p95, ${rank(0.99)} AS p99
      FROM ranked GROUP BY ${dimensions}
    )
    SELECT ${groupColumns(sql, groupBy, namedSql)} measure, total::text, p50, p95, p99
    FROM sums ${namesJoined(sql, groupBy)}`;
  const latencies = new Map<string, Latency>();
  for (const row of rows) {
    const key = keyOf(groupOf(row, groupBy), groupBy);
    const measure = names.find(([, number]) => number === row.measure)?.[0];
    if (measure === undefined) continue;
    const [p50, p95, p99] = [row.p50, row.p95, row.p99].map((bucket) => Math.round(valueOfBucket(bucket) * 10) / 10);
    const shown = { requests: Number(row.total), p50: p50 ?? 0, p95: p95 ?? 0, p99: p99 ?? 0 };
    latencies.set(key, { ...(latencies.get(key) ?? none), [measure]: shown });
  }
  return latencies;
}
