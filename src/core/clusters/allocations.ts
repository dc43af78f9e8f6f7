import { AppError } from '#base/errors.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import type { AllocationHistory, AllocationPage, AllocationTimes, AmendmentRequest } from '#core/costs/costs.ts';
import { type ClusterParts, findNodeRow, lockCluster, type NodeRef } from './change.ts';
import { clusterKey, nodeKey } from './cluster.ts';

/** Corrections of wrong allocations. They also apply to removed nodes and archived clusters, whose costs stay. */

export interface AllocationChange extends Pick<AmendmentRequest, 'to' | 'generation' | 'reason' | 'retroactive'> {
  readonly author: Author;
}

/**
 * Amends or voids an allocation, with its audit log entry. A change that is already made changes nothing.
 * @param ref a removed node is named by its id
 * @returns null if the allocation does not exist
 * @throws AppError invalid_value, conflict
 */
export async function amendAllocation(
  { db, costs, audit }: ClusterParts,
  ref: NodeRef,
  { author, ...change }: AllocationChange,
): Promise<AllocationHistory | null> {
  return db.orm.transaction(async (tx) => {
    const cluster = await lockCluster(tx, ref.clusterId);
    if (cluster === null) return null;
    const node = await findNodeRow(tx, ref);
    const id = node?.id ?? ('id' in ref.node ? ref.node.id : null);
    if (id === null) return null;
    const isGone = node === null || cluster.archivedAt !== null;
    if (change.to?.releasedMs === null && isGone) {
      const message = 'released_at must be a time, because the node was removed or its cluster archived.';
      throw new AppError('invalid_value', { message, param: 'released_at' });
    }
    const [clusterId, nodeId] = [clusterKey(cluster.id), nodeKey(id)];
    const amended = await costs.amend(tx, { ...change, clusterId, nodeId });
    if (amended === null) return null;
    const { history, amendment } = amended;
    if (amendment === null) return history;
    const { before, after, reason } = amendment;
    const fixed = { cluster_id: clusterId, generation: change.generation };
    await audit.record(tx, {
      organizationId: cluster.organizationId,
      author,
      action: `cluster_node.allocation_${after === null ? 'voided' : 'amended'}`,
      targetType: 'cluster_node',
      targetId: nodeId,
      before: { ...fixed, ...timesView(before) },
      after: { ...fixed, ...(after === null ? { voided: true } : timesView(after)), reason },
    });
    return history;
  });
}

function timesView({ allocatedMs, releasedMs, estimated }: AllocationTimes): AuditView {
  const iso = (timeMs: number | null): string | null => (timeMs === null ? null : new Date(timeMs).toISOString());
  return { allocated_at: iso(allocatedMs), released_at: iso(releasedMs), estimated };
}

export interface AllocationQuery {
  readonly clusterId: string;
  /** Null: of all nodes, with removed ones. */
  readonly node: NodeRef['node'] | null;
  /** Counts from 1. */
  readonly page: number;
  readonly limit: number;
}

export function listAllocations({ costs }: ClusterParts, query: AllocationQuery): Promise<AllocationPage> {
  const { clusterId, node, page, limit } = query;
  const named = node !== null && 'id' in node ? { id: nodeKey(node.id) } : node;
  return costs.listAllocations({ clusterId: clusterKey(clusterId), node: named, page, limit });
}
