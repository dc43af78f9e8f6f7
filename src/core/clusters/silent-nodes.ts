import { eq, inArray } from 'drizzle-orm';
import { parseId } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import type { AllocationKey, OpenInterval } from '#core/costs/costs.ts';
import { type ClusterParts, dbNowMs, lockCluster } from './change.ts';
import { nodeKey, type NodeRow } from './cluster.ts';
import { clusterNodes } from './schema.ts';

/** Open intervals per page. */
const pageSize = 1000;

/**
 * Ends the intervals of lost nodes: the node was deleted or its cluster archived, or the node has sent heartbeats since its
 * allocation and then none for `silenceMs`. All these ends are estimated.
 * @param silenceMs null: silence is ignored
 * @returns the number of intervals ended
 */
export async function endSilentNodes(parts: ClusterParts, silenceMs: number | null): Promise<number> {
  let ended = 0;
  for (let after: AllocationKey | null = null; ;) {
    const page: readonly OpenInterval[] = await parts.costs.listOpen({ source: 'node', after, limit: pageSize });
    const suspects = await findSuspects(parts, page, silenceMs);
    for (const open of suspects) if (await endIfSilent(parts, open, silenceMs)) ended += 1;
    after = page.at(-1) ?? null;
    if (after === null || page.length < pageSize) return ended;
  }
}

/** Returns intervals of nodes that seem lost; each is checked again under the lock of its cluster. */
async function findSuspects(
  { db }: ClusterParts,
  page: readonly OpenInterval[],
  silenceMs: number | null,
): Promise<readonly OpenInterval[]> {
  const ids = page.map(({ nodeId }) => parseId('node', nodeId)).filter((id) => id !== null);
  const rows = ids.length === 0 ? [] : await db.orm.select().from(clusterNodes).where(inArray(clusterNodes.id, ids));
  const byKey = new Map(rows.map((row) => [nodeKey(row.id), row]));
  const nowMs = await db.orm.transaction(dbNowMs);
  return page.filter((open) => endOf(open, byKey.get(open.nodeId) ?? null, { nowMs, silenceMs }) !== null);
}

interface Silence {
  readonly nowMs: number;
  readonly silenceMs: number | null;
}

/** Returns when an allocated node was last there; null if it still is. */
function endOf({ allocatedMs }: OpenInterval, node: NodeRow | null, { nowMs, silenceMs }: Silence): number | null {
  if (node === null) return nowMs;
  const seenMs = node.lastSeenAt?.getTime() ?? null;
  // A node without a heartbeat since its allocation does not report at all.
  if (silenceMs === null || seenMs === null || seenMs < allocatedMs) return null;
  return nowMs - seenMs > silenceMs ? seenMs : null;
}

async function endIfSilent(parts: ClusterParts, open: OpenInterval, silenceMs: number | null): Promise<boolean> {
  const { db, costs, audit, log } = parts;
  const clusterId = parseId('cluster', open.clusterId);
  return db.orm.transaction(async (tx) => {
    const cluster = clusterId === null ? null : await lockCluster(tx, clusterId);
    const nodeId = parseId('node', open.nodeId);
    const [node = null] =
      cluster === null || nodeId === null
        ? []
        : await tx.select().from(clusterNodes).where(eq(clusterNodes.id, nodeId));
    const endMs = cluster?.archivedAt?.getTime() ?? endOf(open, node, { nowMs: await dbNowMs(tx), silenceMs });
    if (endMs === null) return false;
    const { generation } = open;
    const atMs = Math.max(endMs, open.allocatedMs);
    const [outcome] = await costs.release(tx, open.clusterId, [
      { nodeId: open.nodeId, generation, atMs, estimated: true },
    ]);
    if (outcome?.kind !== 'recorded') return false;
    const after = {
      cluster_id: open.clusterId,
      generation,
      released_at: new Date(atMs).toISOString(),
      estimated: true,
    };
    log.warn(
      { node: open.nodeId, ...after },
      'a node of a cluster is no longer reported; it was released, and its metered hours end when it was last seen',
    );
    if (cluster === null) return true;
    await audit.record(tx, {
      organizationId: cluster.organizationId,
      author: systemAuthor,
      action: 'cluster_node.released',
      targetType: 'cluster_node',
      targetId: open.nodeId,
      before: null,
      after,
    });
    return true;
  });
}
