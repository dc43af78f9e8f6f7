import { formatId } from '#base/id.ts';
import type { AllocationOnFile } from '#core/costs/costs.ts';
import type { clusterNodes, clusters } from './schema.ts';

export type ClusterRow = typeof clusters.$inferSelect;
export type NodeRow = typeof clusterNodes.$inferSelect;

export type ClusterStatus = 'active' | 'archived';

/** What a node is, as an operator says it. */
export interface NodeInput {
  readonly name: string;
  readonly address: string;
  readonly privateAddress: string | null;
  readonly sshPort: number;
  readonly sshUser: string;
  /** An OpenSSH public key without a comment; null: whoever connects does not check whom he reaches. */
  readonly hostKey: string | null;
  readonly hardwareProfile: string;
  readonly gpus: number;
}

/** `registered`: it never was allocated. */
export type NodeStatus = 'registered' | 'allocated' | 'released';

/** One span that a node is held, as it is on file. Milliseconds since the Unix epoch. */
export interface NodeAllocationView {
  readonly generation: number;
  readonly allocatedMs: number | null;
  readonly releasedMs: number | null;
  readonly estimated: boolean;
}

/** Ids are UUIDs. */
export interface ClusterNode extends NodeInput {
  readonly id: string;
  readonly status: NodeStatus;
  /** What holds it, else the last that did; null where nothing was told. */
  readonly allocation: NodeAllocationView | null;
  readonly createdAtMs: number;
  readonly lastSeenMs: number | null;
}

/** How runs log in to the nodes of a cluster; the private key is never shown. */
export interface AccessIdentityView {
  /** As a line of authorized_keys. */
  readonly publicKey: string;
  readonly fingerprint: string;
  readonly origin: 'generated' | 'given';
  /** Of the platform key that encrypts it; null when the private key is gone. */
  readonly keyId: string | null;
  readonly changedAtMs: number;
}

export interface Cluster {
  readonly id: string;
  readonly organizationId: string;
  readonly name: string;
  readonly publicDomain: string | null;
  /** Who may use web addresses of what runs on it. */
  readonly access: ClusterRow['access'];
  readonly status: ClusterStatus;
  readonly accessIdentity: AccessIdentityView;
  readonly createdAtMs: number;
  readonly archivedAtMs: number | null;
}

export interface ClusterSummary extends Cluster {
  readonly nodesTotal: number;
  readonly nodesAllocated: number;
}

export interface ClusterWithNodes extends ClusterSummary {
  /** In the order they were added. */
  readonly nodes: readonly ClusterNode[];
}

export function toCluster(row: ClusterRow): Cluster {
  return {
    id: row.id,
    organizationId: row.organizationId,
    name: row.name,
    publicDomain: row.publicDomain,
    access: row.access,
    status: row.archivedAt === null ? 'active' : 'archived',
    accessIdentity: {
      publicKey: row.accessPublicKey,
      fingerprint: row.accessFingerprint,
      origin: row.accessOrigin,
      keyId: row.accessKeyId,
      changedAtMs: row.accessChangedAt.getTime(),
    },
    createdAtMs: row.createdAt.getTime(),
    archivedAtMs: row.archivedAt?.getTime() ?? null,
  };
}

export function toAllocationView(onFile: AllocationOnFile): NodeAllocationView {
  const { generation, allocatedMs, releasedMs, releaseEstimated } = onFile;
  return { generation, allocatedMs, releasedMs, estimated: releaseEstimated };
}

/** @param latest what the costs say of the node */
export function toNode(row: NodeRow, latest: AllocationOnFile | null): ClusterNode {
  const { createdAt, lastSeenAt, clusterId: _, ...fields } = row;
  return {
    ...fields,
    status: statusOf(latest),
    allocation: latest === null ? null : toAllocationView(latest),
    createdAtMs: createdAt.getTime(),
    lastSeenMs: lastSeenAt?.getTime() ?? null,
  };
}

function statusOf(latest: AllocationOnFile | null): NodeStatus {
  if (latest === null || latest.allocatedMs === null) return 'registered';
  return latest.releasedMs === null ? 'allocated' : 'released';
}

/** Ids as the costs and outsiders know them. */
export const clusterKey = (clusterId: string): string => formatId('cluster', clusterId);
export const nodeKey = (nodeId: string): string => formatId('node', nodeId);
