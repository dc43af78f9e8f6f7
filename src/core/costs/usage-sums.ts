import type { TransactionSql } from 'postgres';
import type { Quantity } from './amount.ts';
import type { UsageSource } from './interval-rows.ts';
import { type Split, splitUsage } from './split-usage.ts';

/** Selection of intervals for sums. */
export interface SumScope {
  /** [fromMs, toMs): usage outside does not count. */
  readonly fromMs: number;
  readonly toMs: number;
  /** UUIDs; null for all. */
  readonly organizationIds: readonly string[] | null;
  readonly source: UsageSource | null;
  readonly split: Split | null;
}

/**
 * Starts or ends of one snapshot's intervals within one segment: their number, their nodes and GPUs, and the sums of
 * their times, weighted by nodes and by GPUs. Times are milliseconds since the start of the window, GPUs are 28ths of a
 * card.
 */
export interface EdgeSums {
  readonly snapshotId: number;
  /** The value of the split; null without one, and for usage that has no value. */
  readonly split: string | null;
  /** Index of the segment, from 0. */
  readonly segment: number;
  readonly isStart: boolean;
  readonly intervals: number;
  readonly nodes: number;
  readonly gpuShares: number;
  readonly nodeTimes: bigint;
  readonly gpuTimes: bigint;
  /** The first start, or the last end; not cut to the window. Null if an end is unknown. */
  readonly outerMs: number | null;
  /** The last start; null for ends. */
  readonly lastStartMs: number | null;
  readonly estimated: boolean;
}

interface EdgeRow {
  readonly snapshot_id: number;
  readonly split: string | null;
  readonly segment: number;
  readonly is_start: boolean;
  readonly intervals: string;
  readonly nodes: string;
  readonly gpu_shares: string;
  readonly node_times: string;
  readonly gpu_times: string;
  readonly outer_ms: string | null;
  readonly last_start_ms: string | null;
  readonly estimated: boolean;
}

const rowsAtOnce = 5000;
/** Stands for the end of open intervals: the highest bigint. */
const openEnd = '9223372036854775807';

/**
 * Sums intervals over a window in the database: one row per snapshot, segment and kind of edge, however many intervals
 * there are. The usage of every segment follows exactly from sums of edges (see `pieceOf`), so no interval is cut at
 * inner borders. Rows are sorted by snapshot, then value of the split, then segment, starts first.
 * @param borders starts of segments, in milliseconds since `fromMs`; the first is 0
 */
export async function* readEdgeSums(
  sql: TransactionSql,
  scope: SumScope,
  borders: readonly number[],
): AsyncGenerator<readonly EdgeSums[]> {
  const { fromMs, toMs, organizationIds, source, split } = scope;
  const [from, to] = [String(fromMs), String(toMs)];
  // Parameters are text, which Postgres casts: the driver would ask for types of arrays first.
  // A subquery is evaluated once; a cast without a subquery would parse the list again for every interval.
  const segments = sql`(select ${`{${borders.join(',')}}`}::text::bigint[])`;
  const ofSource = source === null ? sql`` : sql`and source = ${source}`;
  const ofOrganizations =
    organizationIds === null
      ? sql``
      : sql`and snapshot_id in (select id from usage_snapshots
          where organization_id = any(${`{${organizationIds.join(',')}}`}::text::uuid[]))`;
  const used = sql`
    select snapshot_id, split, nodes, gpus * gpu_share as gpu_shares, estimated, started_ms, ended_ms,
      greatest(started_ms - ${from}::text::bigint, 0) as s,
      least(ended_ms - ${from}::text::bigint, ${String(toMs - fromMs)}::text::bigint) as e
    from ${splitUsage(sql, split)} as u
    where started_ms < ${to}::text::bigint and (ended_ms is null or ended_ms > ${from}::text::bigint)
      ${ofSource} ${ofOrganizations}`;
  const cursor = sql<EdgeRow[]>`
    select snapshot_id, split, width_bucket(s, ${segments}) - 1 as segment, true as is_start,
      count(*) as intervals, sum(nodes) as nodes, sum(gpu_shares) as gpu_shares, sum(nodes * s) as node_times,
      sum(gpu_shares * s) as gpu_times, min(started_ms) as outer_ms, max(started_ms) as last_start_ms, false as estimated
    from (${used}) as starts group by 1, 2, 3
    union all
    select snapshot_id, split, width_bucket(e - 1, ${segments}) - 1, false,
      count(*), sum(nodes), sum(gpu_shares), sum(nodes * e),
      sum(gpu_shares * e), nullif(max(coalesce(ended_ms, ${openEnd}::text::bigint)), ${openEnd}::text::bigint), null,
      bool_or(estimated and ended_ms <= ${to}::text::bigint)
    from (${used}) as ends group by 1, 2, 3
    order by 1, 2, 3, 4 desc`.cursor(rowsAtOnce);
  for await (const rows of cursor) yield rows.map(toEdgeSums);
}

function toEdgeSums(row: EdgeRow): EdgeSums {
  return {
    snapshotId: row.snapshot_id,
    split: row.split,
    segment: row.segment,
    isStart: row.is_start,
    intervals: Number(row.intervals),
    nodes: Number(row.nodes),
    gpuShares: Number(row.gpu_shares),
    nodeTimes: BigInt(row.node_times),
    gpuTimes: BigInt(row.gpu_times),
    outerMs: row.outer_ms === null ? null : Number(row.outer_ms),
    lastStartMs: row.last_start_ms === null ? null : Number(row.last_start_ms),
    estimated: row.estimated,
  };
}

/** Usage of one snapshot within one segment. Times are milliseconds since the start of the window. */
export interface UsedPiece extends Quantity {
  readonly segment: number;
  /** The first moment of use and the end of the last one. */
  readonly startedMs: number;
  readonly endedMs: number;
  /** True if an end within it is inferred, not reported. */
  readonly estimated: boolean;
}

/** Starts of segments, and the end of the last one, in milliseconds since the start of the window. */
export interface Segments {
  readonly borders: readonly number[];
  readonly endMs: number;
}

/**
 * Computes usage by segment from sums of edges.
 * @param edges of one snapshot, in order
 * @param fromMs start of the window, since the Unix epoch
 */
export function usedPieces(edges: readonly EdgeSums[], { borders, endMs }: Segments, fromMs: number): UsedPiece[] {
  const pieces: UsedPiece[] = [];
  let held: Held = { intervals: 0, nodes: 0, gpuShares: 0 };
  let next = 0;
  for (let segment = 0; segment < borders.length; segment += 1) {
    if (held.intervals === 0 && next === edges.length) break;
    const here: EdgeSums[] = [];
    for (let edge = edges[next]; edge?.segment === segment; edge = edges[next]) {
      here.push(edge);
      next += 1;
    }
    const span = { segment, beginMs: borders[segment] ?? 0, endMs: borders[segment + 1] ?? endMs };
    const after = here.reduce(addEdge, held);
    const piece = pieceOf(held, after, here, { ...span, fromMs });
    if (piece !== null) pieces.push(piece);
    held = after;
  }
  return pieces;
}

/** Open intervals at a moment, with their nodes and GPUs. */
interface Held {
  readonly intervals: number;
  readonly nodes: number;
  readonly gpuShares: number;
}

const signOf = ({ isStart }: EdgeSums): 1 | -1 => (isStart ? 1 : -1);

function addEdge(held: Held, edge: EdgeSums): Held {
  const sign = signOf(edge);
  return {
    intervals: held.intervals + sign * edge.intervals,
    nodes: held.nodes + sign * edge.nodes,
    gpuShares: held.gpuShares + sign * edge.gpuShares,
  };
}

interface SegmentSpan {
  readonly segment: number;
  readonly beginMs: number;
  readonly endMs: number;
  readonly fromMs: number;
}

/**
 * Computes the usage in a segment [b, c) from the usage open at its start, its starts s and its ends e: open × (c − b)
 * + Σ (c − s) − Σ (c − e). Exact. Null if nothing is used.
 */
function pieceOf(before: Held, after: Held, edges: readonly EdgeSums[], span: SegmentSpan): UsedPiece | null {
  const { segment, beginMs, endMs, fromMs } = span;
  const [length, end] = [BigInt(endMs - beginMs), BigInt(endMs)];
  let [nodeMs, gpuShareMs] = [BigInt(before.nodes) * length, BigInt(before.gpuShares) * length];
  for (const edge of edges) {
    nodeMs += BigInt(signOf(edge)) * (BigInt(edge.nodes) * end - edge.nodeTimes);
    gpuShareMs += BigInt(signOf(edge)) * (BigInt(edge.gpuShares) * end - edge.gpuTimes);
  }
  if (nodeMs === 0n && gpuShareMs === 0n) return null;
  const first = edges.find(({ isStart }) => isStart)?.outerMs ?? fromMs;
  const last = edges.find(({ isStart }) => !isStart)?.outerMs ?? Number.POSITIVE_INFINITY;
  return {
    segment,
    nodeMs,
    gpuShareMs,
    startedMs: before.intervals > 0 ? beginMs : Math.max(beginMs, first - fromMs),
    endedMs: after.intervals > 0 ? endMs : Math.min(endMs, last - fromMs),
    estimated: edges.some(({ estimated }) => estimated),
  };
}
