import { and, eq, inArray, isNotNull, sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import type { AllocationOnFile } from '#core/costs/costs.ts';
import { type ClusterParts, dbNowMs, lockCluster } from './change.ts';
import { clusterKey, type ClusterRow, nodeKey, type NodeRow, type SilenceNotice } from './cluster.ts';
import { clusterNodes, silentNodes } from './schema.ts';

/**
 * Notices about allocated nodes that stopped sending heartbeats, and about their return. A node is back once it has sent
 * heartbeats for a whole period: a node that reports too rarely is reported once.
 */

/** Milliseconds of silence after which a node is reported if no setting says otherwise. */
export const silenceNoticeMs = 900_000;
/** Milliseconds between two checks after which heartbeats may have been lost, as while PostgreSQL was unavailable. */
const gapMsMax = 120_000;
const nodesNamed = 20;

/**
 * Reports silent and returned nodes, one notice per cluster and kind. Each period of silence is reported once. The check
 * reports nothing until it has run for one period without a gap: until then, heartbeats may have been lost.
 * @param silenceMs length of the period
 * @returns a check that returns the number of notices
 */
export function createSilenceCheck(parts: ClusterParts, silenceMs: number): () => Promise<number> {
  const { clock, db } = parts;
  let lastMs = Number.NEGATIVE_INFINITY;
  let sinceMs = 0;
  return async () => {
    const candidates = await db.orm.execute<{ cluster_id: string }>(sql`
      select distinct n.cluster_id from cluster_nodes n left join silent_nodes s on s.node_id = n.id
      where s.node_id is not null
        or n.last_seen_at < clock_timestamp() - make_interval(secs => ${silenceMs / 1000})`);
    const nowMs = clock.monotonicMs();
    if (nowMs - lastMs > gapMsMax) sinceMs = nowMs;
    lastMs = nowMs;
    if (nowMs - sinceMs < silenceMs) return 0;
    let raised = 0;
    for (const { cluster_id: clusterId } of candidates) {
      raised += await db.orm.transaction((tx) => checkCluster(tx, parts, clusterId, silenceMs));
    }
    return raised;
  };
}

async function checkCluster(
  tx: Transaction,
  parts: ClusterParts,
  clusterId: string,
  silenceMs: number,
): Promise<number> {
  const cluster = await lockCluster(tx, clusterId);
  if (cluster === null) return 0;
  const rows = await tx
    .select({ node: clusterNodes, silent: silentNodes })
    .from(clusterNodes)
    .leftJoin(silentNodes, eq(silentNodes.nodeId, clusterNodes.id))
    .where(and(eq(clusterNodes.clusterId, clusterId), isNotNull(clusterNodes.lastSeenAt)))
    .orderBy(clusterNodes.id);
  const nodeIds = rows.map(({ node }) => nodeKey(node.id));
  const latest = await parts.costs.nodeAllocations({ nodeIds, which: 'latest' }, tx);
  const allocations = new Map(latest.map((one) => [one.nodeId, one]));
  const nowMs = await dbNowMs(tx);
  const found = { fell: [] as NodeRow[], returned: [] as NodeRow[], ended: [] as NodeRow[] };
  for (const { node, silent } of rows) {
    const isExpected = cluster.archivedAt === null && isReporting(node, allocations.get(nodeKey(node.id)));
    const isHeard = nowMs - (node.lastSeenAt?.getTime() ?? 0) <= silenceMs;
    if (!isExpected) {
      if (silent !== null) found.ended.push(node);
    } else if (silent === null) {
      if (!isHeard) found.fell.push(node);
    } else if (isHeard && silent.heardSince !== null) {
      if (nowMs - silent.heardSince.getTime() >= silenceMs) found.returned.push(node);
    } else if (isHeard !== (silent.heardSince !== null)) {
      const heardSince = isHeard ? new Date(nowMs) : null;
      await tx.update(silentNodes).set({ heardSince }).where(eq(silentNodes.nodeId, node.id));
    }
  }
  return write({ tx, parts, cluster, silenceMs }, found);
}

/** True if the node is allocated, or would be without its silence, and has sent heartbeats since its allocation. */
function isReporting({ lastSeenAt }: NodeRow, allocation: AllocationOnFile | undefined): boolean {
  if (allocation === undefined || allocation.allocatedMs === null || lastSeenAt === null) return false;
  if (allocation.releasedMs !== null && !allocation.releaseEstimated) return false;
  return lastSeenAt.getTime() >= allocation.allocatedMs;
}

interface Place {
  readonly tx: Transaction;
  readonly parts: ClusterParts;
  readonly cluster: ClusterRow;
  readonly silenceMs: number;
}

interface Found {
  readonly fell: readonly NodeRow[];
  readonly returned: readonly NodeRow[];
  /** No longer allocated: their silence is over without a notice. */
  readonly ended: readonly NodeRow[];
}

async function write(place: Place, { fell, returned, ended }: Found): Promise<number> {
  const { tx } = place;
  const over = [...returned, ...ended].map(({ id }) => id);
  if (over.length > 0) await tx.delete(silentNodes).where(inArray(silentNodes.nodeId, over));
  if (fell.length > 0) await tx.insert(silentNodes).values(fell.map(({ id }) => ({ nodeId: id })));
  return (await raise(place, 'cluster.nodes_silent', fell)) + (await raise(place, 'cluster.nodes_back', returned));
}

async function raise(
  { tx, parts, cluster, silenceMs }: Place,
  type: SilenceNotice['type'],
  nodes: readonly NodeRow[],
): Promise<number> {
  if (nodes.length === 0) return 0;
  await parts.raiseIn(tx, {
    organizationId: cluster.organizationId,
    type,
    data: {
      cluster_id: clusterKey(cluster.id),
      cluster: cluster.name,
      count: nodes.length,
      nodes: nodes.slice(0, nodesNamed).map(({ id, name, lastSeenAt }) => {
        return { id: nodeKey(id), name, last_seen_at: lastSeenAt?.toISOString() ?? null };
      }),
      silence_seconds: silenceMs / 1000,
    },
  });
  return 1;
}
