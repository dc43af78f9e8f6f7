import { formatId } from '#base/id.ts';
import type {
  ClusterNode,
  ClusterSummary,
  ClusterWithNodes,
  NodeAllocationView,
  NodeEventResult,
} from '#core/clusters/clusters.ts';
import type { AllocationHistory, AllocationTimes } from '#core/costs/costs.ts';
import type {
  AllocationHistoryAnswer,
  ClusterAnswer,
  ClusterSummaryAnswer,
  NodeAnswer,
  NodeEventResultAnswer,
} from '#edge/contract/clusters.ts';

/** Converts clusters to the form of the API. */

const iso = (ms: number): string => new Date(ms).toISOString();
const isoOrNull = (ms: number | null): string | null => (ms === null ? null : iso(ms));

export function toSummaryAnswer(cluster: ClusterSummary): ClusterSummaryAnswer {
  const { accessIdentity: identity } = cluster;
  return {
    id: formatId('cluster', cluster.id),
    name: cluster.name,
    organization_id: formatId('org', cluster.organizationId),
    public_domain: cluster.publicDomain,
    access: cluster.access,
    labels: cluster.labels,
    status: cluster.status,
    access_identity: {
      public_key: identity.publicKey,
      fingerprint: identity.fingerprint,
      origin: identity.origin,
      encrypted_with: identity.keyId,
      changed_at: iso(identity.changedAtMs),
    },
    nodes_total: cluster.nodesTotal,
    nodes_allocated: cluster.nodesAllocated,
    created_at: iso(cluster.createdAtMs),
    archived_at: isoOrNull(cluster.archivedAtMs),
  };
}

export function toClusterAnswer(cluster: ClusterWithNodes): ClusterAnswer {
  return { ...toSummaryAnswer(cluster), nodes: cluster.nodes.map(toNodeAnswer) };
}

export function toNodeAnswer(node: ClusterNode): NodeAnswer {
  return {
    id: formatId('node', node.id),
    name: node.name,
    address: node.address,
    private_address: node.privateAddress,
    ssh_port: node.sshPort,
    ssh_user: node.sshUser,
    host_key: node.hostKey,
    hardware_profile: node.hardwareProfile,
    gpus: node.gpus,
    labels: node.labels,
    priced: node.isPriced,
    status: node.status,
    allocation: node.allocation === null ? null : toAllocationAnswer(node.allocation),
    last_seen_at: isoOrNull(node.lastSeenMs),
    created_at: iso(node.createdAtMs),
  };
}

function toAllocationAnswer({ generation, ...times }: NodeAllocationView) {
  return { generation, ...toTimes(times) };
}

function toTimes({ allocatedMs, releasedMs, estimated }: AllocationTimes) {
  return { allocated_at: isoOrNull(allocatedMs), released_at: isoOrNull(releasedMs), estimated };
}

export function toEventAnswer({ outcome, allocation, node }: NodeEventResult): NodeEventResultAnswer {
  return { outcome, allocation: toAllocationAnswer(allocation), node: toNodeAnswer(node) };
}

export function toHistoryAnswer(history: AllocationHistory): AllocationHistoryAnswer {
  return {
    node_id: history.nodeId,
    node_name: history.nodeName,
    generation: history.generation,
    status: history.isVoided ? 'voided' : 'valid',
    ...toTimes(history.times),
    amendments: history.amendments.map(({ amendedMs, reason, before, after }) => ({
      amended_at: iso(amendedMs),
      reason,
      before: toTimes(before),
      after: after === null ? null : toTimes(after),
    })),
  };
}
