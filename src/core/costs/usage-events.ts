import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import type { OrganizationRef } from './derive-intervals.ts';
import { type AllocationKey, eachByIndex, rebuildIntervals, type UsageSource } from './interval-rows.ts';
import { dbNowMs, lockClusters } from './locks.ts';

/** A cluster as it is now. Ids are public ids, except the organization's, which is a UUID. */
export interface ClusterRef {
  readonly id: string;
  readonly name: string;
  readonly organization: OrganizationRef;
}

/**
 * The allocation of a node. `generation` numbers the allocations of a node: repeating one changes nothing. `atMs` null
 * means now, by the database's clock.
 */
export interface NodeAllocation {
  readonly nodeId: string;
  readonly generation: number;
  readonly nodeName: string;
  readonly hardwareProfile: string;
  readonly gpus: number;
  readonly atMs: number | null;
}

/** The release of a node. An estimated release is inferred, such as from a node's last heartbeat. */
export interface NodeRelease {
  readonly nodeId: string;
  readonly generation: number;
  readonly atMs: number | null;
  readonly estimated: boolean;
}

export interface UsageOutcome extends AllocationKey {
  /** `repeated`: the event was recorded before, and nothing changed. */
  readonly kind: 'recorded' | 'repeated';
  /** The recorded times; if repeated, those of the first event. Null until reported. */
  readonly allocatedMs: number | null;
  readonly releasedMs: number | null;
}

/** The move of a cluster from one organization to another. */
export interface Move {
  readonly clusterId: string;
  readonly from: OrganizationRef;
  readonly to: OrganizationRef;
  readonly atMs: number | null;
}

/**
 * Events that change intervals. Everything is written in the caller's transaction, so a node is both allocated and
 * metered, or neither. Events may come in any order: a release that arrives before its allocation waits for it.
 * @throws AppError invalid_value for a moment in the future
 */
export interface UsageEvents {
  allocate(tx: Transaction, cluster: ClusterRef, nodes: readonly NodeAllocation[]): Promise<readonly UsageOutcome[]>;
  /** A reported release replaces an estimated one; otherwise the first one stays. */
  release(tx: Transaction, clusterId: string, nodes: readonly NodeRelease[]): Promise<readonly UsageOutcome[]>;
  /** Withdraws an estimated release, because the node sent a heartbeat after all. A reported release stays. */
  withdrawEstimate(
    tx: Transaction,
    clusterId: string,
    nodes: readonly AllocationKey[],
  ): Promise<readonly UsageOutcome[]>;
  /** Continues open intervals for the new owner. @returns false if the cluster belongs to it already */
  moveCluster(tx: Transaction, move: Move): Promise<boolean>;
}

/** Tolerated difference between clocks: a moment further ahead of the database's clock is rejected. */
export const aheadMsMax = 60_000;
/** Maximum nodes in one statement. */
const chunkMax = 1000;
const source: UsageSource = 'node';

export function createUsageEvents(log: Log): UsageEvents {
  async function change<Node extends AllocationKey>(
    tx: Transaction,
    nodes: readonly Node[],
    apply: (chunk: readonly Node[]) => Promise<readonly AllocationKey[]>,
  ): Promise<readonly UsageOutcome[]> {
    const outcomes: UsageOutcome[] = [];
    for (let first = 0; first < nodes.length; first += chunkMax) {
      const chunk = nodes.slice(first, first + chunkMax);
      const recorded = await apply(chunk);
      await rebuildIntervals(tx, source, recorded);
      outcomes.push(...(await readOutcomes(tx, chunk, recorded)));
    }
    for (const outcome of outcomes) warnOfOddTimes(log, outcome);
    return outcomes;
  }

  return {
    async allocate(tx, cluster, nodes) {
      const nowMs = await lockAndReadTime(tx, cluster.id, nodes);
      return change(tx, nodes, (chunk) => writeAllocations(tx, cluster, atMoments(chunk, nowMs)));
    },
    async release(tx, clusterId, nodes) {
      const nowMs = await lockAndReadTime(tx, clusterId, nodes);
      return change(tx, nodes, (chunk) => writeReleases(tx, clusterId, atMoments(chunk, nowMs)));
    },
    async withdrawEstimate(tx, clusterId, nodes) {
      await lockClusters(tx, source, [clusterId]);
      return change(tx, nodes, (chunk) => takeBackEstimates(tx, chunk));
    },
    async moveCluster(tx, move) {
      const nowMs = await lockAndReadTime(tx, move.clusterId, [move]);
      const atMs = move.atMs ?? (await afterMoves(tx, move.clusterId, nowMs));
      if (!(await writeMove(tx, { ...move, atMs }))) return false;
      const held = await readHeldAfter(tx, move.clusterId, atMs);
      for (let first = 0; first < held.length; first += chunkMax) {
        await rebuildIntervals(tx, source, held.slice(first, first + chunkMax));
      }
      return true;
    },
  };
}

interface AtMoment {
  readonly atMs: number | null;
}

/** Locks the cluster, and returns the database's time after that: a later change has a later time. */
async function lockAndReadTime(tx: Transaction, clusterId: string, changes: readonly AtMoment[]): Promise<number> {
  await lockClusters(tx, source, [clusterId]);
  const nowMs = await dbNowMs(tx);
  if (changes.some(({ atMs }) => atMs !== null && (atMs > nowMs + aheadMsMax || atMs < 0))) {
    const message = 'The time of a change must not be in the future. Use a past time, or omit it for now.';
    throw new AppError('invalid_value', { message, param: 'at' });
  }
  return nowMs;
}

const atMoments = <Change extends AtMoment>(
  changes: readonly Change[],
  nowMs: number,
): readonly (Change & { readonly atMs: number })[] =>
  changes.map((change) => ({ ...change, atMs: Math.floor(change.atMs ?? nowMs) }));

type Keys = { node_id: string; generation: number };
const toKeys = (rows: readonly Keys[]): AllocationKey[] =>
  rows.map(({ node_id, generation }) => ({ nodeId: node_id, generation }));

async function writeAllocations(
  tx: Transaction,
  cluster: ClusterRef,
  nodes: readonly (NodeAllocation & { readonly atMs: number })[],
): Promise<AllocationKey[]> {
  const rows = await tx.execute<Keys>(sql`
    insert into usage_allocations as a (source, node_id, generation, cluster_id, cluster_name, organization_id,
      organization_name, node_name, hardware_profile, gpus, allocated_ms)
    select ${source}, "nodeId", generation, ${cluster.id}, ${cluster.name}, ${cluster.organization.id}::uuid,
      ${cluster.organization.name}, "nodeName", "hardwareProfile", gpus, "atMs"
    from json_to_recordset(${JSON.stringify(nodes)}::text::json)
      as t("nodeId" text, generation integer, "nodeName" text, "hardwareProfile" text, gpus integer, "atMs" bigint)
    on conflict (source, node_id, generation) do update set cluster_id = excluded.cluster_id,
      cluster_name = excluded.cluster_name, organization_id = excluded.organization_id,
      organization_name = excluded.organization_name, node_name = excluded.node_name,
      hardware_profile = excluded.hardware_profile, gpus = excluded.gpus, allocated_ms = excluded.allocated_ms
      where a.allocated_ms is null and not a.voided
    returning node_id, generation`);
  return toKeys(rows);
}

async function writeReleases(
  tx: Transaction,
  clusterId: string,
  nodes: readonly (NodeRelease & { readonly atMs: number })[],
): Promise<AllocationKey[]> {
  const rows = await tx.execute<Keys>(sql`
    insert into usage_allocations as a (source, node_id, generation, cluster_id, released_ms, release_estimated)
    select ${source}, "nodeId", generation, ${clusterId}, "atMs", estimated
    from json_to_recordset(${JSON.stringify(nodes)}::text::json)
      as t("nodeId" text, generation integer, "atMs" bigint, estimated boolean)
    on conflict (source, node_id, generation) do update
      set released_ms = excluded.released_ms, release_estimated = excluded.release_estimated
      where not a.voided and (a.released_ms is null or (a.release_estimated and not excluded.release_estimated))
    returning node_id, generation`);
  return toKeys(rows);
}

async function takeBackEstimates(tx: Transaction, nodes: readonly AllocationKey[]): Promise<AllocationKey[]> {
  const rows = await tx.execute<Keys>(sql`
    update usage_allocations a set released_ms = null, release_estimated = false
    from json_to_recordset(${JSON.stringify(nodes)}::text::json) as t("nodeId" text, generation integer)
    where a.source = ${source} and a.node_id = t."nodeId" and a.generation = t.generation and a.release_estimated
      and not a.voided
    returning a.node_id, a.generation`);
  return toKeys(rows);
}

/** Returns a moment after all moves: the database's clock may have stepped back since the last one. */
async function afterMoves(tx: Transaction, clusterId: string, nowMs: number): Promise<number> {
  const [last] = await tx.execute<{ moved_ms: string | null }>(
    sql`select max(moved_ms) as moved_ms from cluster_moves where cluster_id = ${clusterId}`,
  );
  const lastMs = numberOrNull(last?.moved_ms ?? null);
  return lastMs === null ? nowMs : Math.max(nowMs, lastMs + 1);
}

/** @returns false if the cluster belongs to the organization at that moment already */
async function writeMove(tx: Transaction, { clusterId, from, to, atMs }: Move): Promise<boolean> {
  if (from.id === to.id) return false;
  const [latest] = await tx.execute<{ owner: string; moved_ms: string }>(sql`
    select to_organization_id as owner, moved_ms from cluster_moves
    where cluster_id = ${clusterId} and moved_ms <= ${atMs}::bigint order by moved_ms desc limit 1`);
  if (latest?.owner === to.id) return false;
  // For two moves in the same millisecond, the cluster spent no time with the organization in between.
  await tx.execute(sql`
    insert into cluster_moves (cluster_id, moved_ms, from_organization_id, from_organization_name, to_organization_id,
      to_organization_name)
    values (${clusterId}, ${atMs}::bigint, ${from.id}::uuid, ${from.name}, ${to.id}::uuid, ${to.name})
    on conflict (cluster_id, moved_ms) do update set to_organization_id = excluded.to_organization_id,
      to_organization_name = excluded.to_organization_name`);
  return true;
}

async function readHeldAfter(tx: Transaction, clusterId: string, momentMs: number): Promise<AllocationKey[]> {
  const rows = await tx.execute<Keys>(sql`
    select node_id, generation from usage_allocations
    where source = ${source} and cluster_id = ${clusterId} and allocated_ms is not null
      and (released_ms is null or released_ms > ${momentMs}::bigint)
    order by node_id, generation`);
  return toKeys(rows);
}

interface OutcomeRow extends Keys {
  readonly allocated_ms: string | null;
  readonly released_ms: string | null;
  readonly [column: string]: unknown;
}

const keyText = ({ nodeId, generation }: AllocationKey): string => `${generation} ${nodeId}`;
const numberOrNull = (text: string | null): number | null => (text === null ? null : Number(text));

async function readOutcomes(
  tx: Transaction,
  nodes: readonly AllocationKey[],
  recorded: readonly AllocationKey[],
): Promise<UsageOutcome[]> {
  const changed = new Set(recorded.map(keyText));
  const rows = await tx.execute<OutcomeRow>(sql`
    select a.* from json_to_recordset(${JSON.stringify(nodes)}::text::json) as t("nodeId" text, generation integer)
    cross join lateral (
      select a.node_id, a.generation, a.allocated_ms, a.released_ms from usage_allocations a
      where a.source = ${source} and a.node_id = t."nodeId" and a.generation = t.generation ${eachByIndex}) a
    order by a.node_id, a.generation`);
  return rows.map((row) => {
    const key: AllocationKey = { nodeId: row.node_id, generation: row.generation };
    return {
      ...key,
      kind: changed.has(keyText(key)) ? 'recorded' : 'repeated',
      allocatedMs: numberOrNull(row.allocated_ms),
      releasedMs: numberOrNull(row.released_ms),
    };
  });
}

function warnOfOddTimes(log: Log, { kind, nodeId, generation, allocatedMs, releasedMs }: UsageOutcome): void {
  if (kind === 'repeated' || allocatedMs === null || releasedMs === null || releasedMs >= allocatedMs) return;
  const fields = { nodeId, generation, allocatedMs, releasedMs };
  log.warn(
    fields,
    'a node was reported as released before it was allocated; no node-hours are metered. Correct the reported times',
  );
}
