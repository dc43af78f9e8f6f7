import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import {
  type ClusterMove,
  type DerivedInterval,
  deriveIntervals,
  type ReportedAllocation,
} from './derive-intervals.ts';

/** The kind of machine that is metered: a node of a cluster, or a replica of an inference engine. */
export type UsageSource = 'node' | 'replica';

/** The key of an allocation; `nodeId` is unique within its source. */
export interface AllocationKey {
  readonly nodeId: string;
  readonly generation: number;
}

interface AllocationRow {
  readonly node_id: string;
  readonly generation: number;
  readonly cluster_id: string;
  readonly cluster_name: string;
  readonly organization_id: string;
  readonly organization_name: string;
  readonly hardware_profile: string;
  readonly gpus: number;
  readonly gpu_share: number;
  readonly allocated_ms: string;
  readonly ready_ms: string | null;
  readonly released_ms: string | null;
  readonly release_estimated: boolean;
  /** True for an allocation before the first changed one: only its end is needed. */
  readonly is_earlier: boolean;
  readonly [column: string]: unknown;
}

interface StoredAllocation extends ReportedAllocation {
  readonly row: AllocationRow;
}

/**
 * Rebuilds the intervals of allocations from their recorded events, and those of all later allocations of the same
 * nodes, which may start where these end. The caller has the lock of their clusters.
 */
export async function rebuildIntervals(
  tx: Transaction,
  source: UsageSource,
  changed: readonly AllocationKey[],
): Promise<void> {
  const rows = changed.length === 0 ? [] : await readAllocations(tx, source, changed);
  if (rows.length === 0) return;
  const moves = source === 'node' ? await readMoves(tx, rows) : new Map<string, ClusterMove[]>();
  const byNode = Map.groupBy(rows.map(toStored), ({ row }) => row.node_id);
  const derived = [...byNode.values()].flatMap((allocations) => deriveRows(source, allocations, moves));
  const rebuilt = rows.filter((row) => !row.is_earlier).map(({ node_id, generation }) => ({ node_id, generation }));
  await tx.execute(sql`
    delete from usage_intervals i
    using json_to_recordset(${JSON.stringify(rebuilt)}::text::json) as t(node_id text, generation integer)
    where i.source = ${source} and i.node_id = t.node_id and i.generation = t.generation`);
  if (derived.length > 0) await insertIntervals(tx, source, derived);
}

/**
 * Ends a lateral query that must run once for each outer row, by the table's key. Without it, and with statistics from
 * when the table was small, PostgreSQL reads the whole table for each of thousands of nodes.
 */
export const eachByIndex = sql`offset 0`;

/** Reads the changed allocations, all later ones of their nodes, and earlier ones that were still open then. */
async function readAllocations(
  tx: Transaction,
  source: UsageSource,
  changed: readonly AllocationKey[],
): Promise<readonly AllocationRow[]> {
  return tx.execute<AllocationRow>(sql`
    with since as (
      select told.node_id, min(told.allocated_ms) as since_ms
      from json_to_recordset(${JSON.stringify(changed)}::text::json) as t("nodeId" text, generation integer)
      cross join lateral (
        select a.node_id, a.allocated_ms from usage_allocations a
        where a.source = ${source} and a.node_id = t."nodeId" and a.generation = t.generation
          and a.allocated_ms is not null and not a.voided ${eachByIndex}) told
      group by told.node_id
    )
    select a.*, a.allocated_ms < since.since_ms as is_earlier
    from since cross join lateral (
      select a.node_id, a.generation, a.cluster_id, a.cluster_name, a.organization_id, a.organization_name,
        a.hardware_profile, a.gpus, a.gpu_share, a.allocated_ms, a.ready_ms, a.released_ms, a.release_estimated
      from usage_allocations a
      where a.source = ${source} and a.node_id = since.node_id and a.allocated_ms is not null and not a.voided
        and (a.released_ms is null or a.released_ms > since.since_ms or a.allocated_ms >= since.since_ms)
      ${eachByIndex}) a
    order by a.node_id, a.allocated_ms, a.generation`);
}

interface MoveRow {
  readonly cluster_id: string;
  readonly moved_ms: string;
  readonly from_id: string;
  readonly from_name: string;
  readonly to_id: string;
  readonly to_name: string;
  readonly [column: string]: unknown;
}

async function readMoves(tx: Transaction, rows: readonly AllocationRow[]): Promise<Map<string, ClusterMove[]>> {
  const clusterIds = [...new Set(rows.map((row) => row.cluster_id))];
  const found = await tx.execute<MoveRow>(sql`
    select cluster_id, moved_ms, from_organization_id as from_id, from_organization_name as from_name,
      to_organization_id as to_id, to_organization_name as to_name
    from cluster_moves
    where cluster_id in (select json_array_elements_text(${JSON.stringify(clusterIds)}::text::json))
    order by cluster_id, moved_ms`);
  const moves = new Map<string, ClusterMove[]>(clusterIds.map((id) => [id, []]));
  for (const row of found) {
    moves.get(row.cluster_id)?.push({
      movedMs: Number(row.moved_ms),
      from: { id: row.from_id, name: row.from_name },
      to: { id: row.to_id, name: row.to_name },
    });
  }
  return moves;
}

function toStored(row: AllocationRow): StoredAllocation {
  return {
    row,
    generation: row.generation,
    allocatedMs: Number(row.allocated_ms),
    releasedMs: row.released_ms === null ? null : Number(row.released_ms),
    releaseEstimated: row.release_estimated,
    organization: { id: row.organization_id, name: row.organization_name },
  };
}

/** A row that `json_to_recordset` reads. */
type IntervalRow = Readonly<Record<string, string | number | boolean | null>>;

function deriveRows(
  source: UsageSource,
  allocations: readonly StoredAllocation[],
  moves: ReadonlyMap<string, readonly ClusterMove[]>,
): IntervalRow[] {
  const byGeneration = new Map(allocations.map((allocation) => [allocation.generation, allocation.row]));
  const derived = deriveIntervals(allocations, ({ row }) => moves.get(row.cluster_id) ?? []);
  return derived.flatMap((interval) => {
    const row = byGeneration.get(interval.generation);
    return row === undefined || row.is_earlier ? [] : [toRow(source, row, interval)];
  });
}

function toRow(source: UsageSource, row: AllocationRow, interval: DerivedInterval): IntervalRow {
  return {
    node_id: row.node_id,
    generation: interval.generation,
    part: interval.part,
    organization_id: interval.organization.id,
    organization_name: interval.organization.name,
    cluster_id: row.cluster_id,
    cluster_name: row.cluster_name,
    hardware_profile: row.hardware_profile,
    nodes: source === 'node' ? 1 : 0,
    gpus: row.gpus,
    gpu_share: row.gpu_share,
    started_ms: interval.startedMs,
    ready_ms: row.ready_ms === null ? null : Number(row.ready_ms),
    ended_ms: interval.endedMs,
    estimated: interval.estimated,
  };
}

async function insertIntervals(tx: Transaction, source: UsageSource, rows: readonly IntervalRow[]): Promise<void> {
  const incoming = sql`json_to_recordset(${JSON.stringify(rows)}::text::json) as t(node_id text, generation integer,
    part smallint, organization_id uuid, organization_name text, cluster_id text, cluster_name text,
    hardware_profile text, nodes smallint, gpus integer, gpu_share smallint, started_ms bigint, ready_ms bigint, ended_ms bigint,
    estimated boolean)`;
  const same = sql`s.source = ${source} and s.organization_id = t.organization_id and s.cluster_id = t.cluster_id
    and s.hardware_profile = t.hardware_profile and s.cluster_name = t.cluster_name
    and s.organization_name = t.organization_name`;
  // Existing snapshots are filtered out first: every conflict would use up an id.
  await tx.execute(sql`
    insert into usage_snapshots (source, organization_id, organization_name, cluster_id, cluster_name, hardware_profile)
    select distinct ${source}, organization_id, organization_name, cluster_id, cluster_name, hardware_profile
    from ${incoming} where not exists (select 1 from usage_snapshots s where ${same})
    on conflict do nothing`);
  const inserted = await tx.execute(sql`
    insert into usage_intervals (source, node_id, generation, part, snapshot_id, nodes, gpus, gpu_share, started_ms, ready_ms,
      ended_ms, estimated)
    select ${source}, t.node_id, t.generation, t.part, s.id, t.nodes, t.gpus, t.gpu_share, t.started_ms, t.ready_ms, t.ended_ms,
      t.estimated
    from ${incoming} join usage_snapshots s on ${same} returning 1`);
  if (inserted.length !== rows.length) throw new Error('a snapshot of another transaction is not visible yet');
}
