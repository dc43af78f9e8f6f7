import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import type { OrganizationRef } from './derive-intervals.ts';
import { type AllocationKey, rebuildIntervals, type UsageSource } from './interval-rows.ts';
import { lockClusters } from './locks.ts';

/**
 * An inference replica as known now: it uses GPUs from its start to its end. In reports its engine takes the place of a
 * cluster.
 */
export interface ReplicaRun {
  /** Unique per run: a replica that is started again has another id. */
  readonly runId: string;
  readonly replicaName: string;
  readonly engineId: string;
  readonly engineName: string;
  readonly organization: OrganizationRef;
  /** The hardware profile in the engine's file. */
  readonly hardwareProfile: string;
  readonly gpus: number;
  /** Part of its card that each GPU is, in 28ths: 28 for a whole card, 12 for a MIG slice of 3/7. */
  readonly gpuShare: number;
  readonly startedMs: number;
  /** When the replica became ready; null before. */
  readonly readyMs: number | null;
  readonly endedMs: number | null;
  /** True if the end is inferred, such as from when the replica was last seen. */
  readonly endEstimated: boolean;
}

const source: UsageSource = 'replica';
const chunkMax = 1000;

/**
 * Writes runs as intervals. Repeating a run changes nothing: the earliest start, the first ready time and the first
 * reported end stay. An estimated end is replaced by any later report.
 * @returns the number of runs that were new or had changed
 */
export async function carryReplicaRuns(db: Db, runs: readonly ReplicaRun[]): Promise<number> {
  let changed = 0;
  for (let first = 0; first < runs.length; first += chunkMax) {
    const chunk = new Map(runs.slice(first, first + chunkMax).map((run) => [run.runId, run]));
    changed += await db.orm.transaction((tx) => carryChunk(tx, [...chunk.values()]));
  }
  return changed;
}

async function carryChunk(tx: Transaction, runs: readonly ReplicaRun[]): Promise<number> {
  await lockClusters(
    tx,
    source,
    runs.map((run) => run.engineId),
  );
  const rows = runs.map(({ organization, ...run }) => {
    return { ...run, organizationId: organization.id, organizationName: organization.name };
  });
  // A reported end stays; an estimated one is replaced by any other report, also by a report that the run continues.
  const keepsEnd = sql`a.released_ms is not null and not a.release_estimated`;
  const changed = await tx.execute<{ node_id: string }>(sql`
    insert into usage_allocations as a (source, node_id, generation, cluster_id, cluster_name, organization_id,
      organization_name, node_name, hardware_profile, gpus, gpu_share, allocated_ms, ready_ms, released_ms, release_estimated)
    select ${source}, "runId", 0, "engineId", "engineName", "organizationId", "organizationName", "replicaName",
      "hardwareProfile", gpus, "gpuShare", "startedMs", "readyMs", "endedMs", "endEstimated" and "endedMs" is not null
    from json_to_recordset(${JSON.stringify(rows)}::text::json) as t("runId" text, "engineId" text, "engineName" text,
      "organizationId" uuid, "organizationName" text, "replicaName" text, "hardwareProfile" text, gpus integer, "gpuShare" smallint,
      "startedMs" bigint, "readyMs" bigint, "endedMs" bigint, "endEstimated" boolean)
    on conflict (source, node_id, generation) do update set
      allocated_ms = least(a.allocated_ms, excluded.allocated_ms),
      ready_ms = coalesce(a.ready_ms, excluded.ready_ms),
      released_ms = case when ${keepsEnd} then a.released_ms else excluded.released_ms end,
      release_estimated = case when ${keepsEnd} then false else excluded.release_estimated end
      where excluded.allocated_ms < a.allocated_ms
        or (a.ready_ms is null and excluded.ready_ms is not null)
        or (not (${keepsEnd}) and (a.released_ms, a.release_estimated)
          is distinct from (excluded.released_ms, excluded.release_estimated))
    returning a.node_id`);
  const keys: AllocationKey[] = changed.map((row) => ({ nodeId: row.node_id, generation: 0 }));
  await rebuildIntervals(tx, source, keys);
  return keys.length;
}
