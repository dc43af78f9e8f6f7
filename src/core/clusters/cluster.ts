import { formatId } from '#base/id.ts';
import type { AllocationOnFile } from '#core/costs/costs.ts';
import type { Labels } from './labels.ts';
import type { clusterNodes, clusters } from './schema.ts';

export type ClusterRow = typeof clusters.$inferSelect;
export type NodeRow = typeof clusterNodes.$inferSelect;

export type ClusterStatus = 'active' | 'archived';

/** A node as an operator describes it. */
export interface NodeInput {
  readonly name: string;
  readonly address: string;
  readonly privateAddress: string | null;
  readonly sshPort: number;
  readonly sshUser: string;
  /** An OpenSSH public key without a comment; null: clients do not check the host's identity. */
  readonly hostKey: string | null;
  readonly hardwareProfile: string;
  readonly gpus: number;
  /** The node's own; it also has those of its cluster. */
  readonly labels: Labels;
}

/** `registered`: the node was never allocated. */
export type NodeStatus = 'registered' | 'allocated' | 'released';

/** One allocation of a node, as recorded. Milliseconds since the Unix epoch. */
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
  /** The open allocation, else the last one; null if there was none. */
  readonly allocation: NodeAllocationView | null;
  /** True if a rate card prices the hardware profile now. */
  readonly isPriced: boolean;
  readonly createdAtMs: number;
  readonly lastSeenMs: number | null;
}

/** The key pair with which runs log in to the nodes of a cluster; the private key is never shown. */
export interface AccessIdentityView {
  /** Formatted as a line of authorized_keys. */
  readonly publicKey: string;
  readonly fingerprint: string;
  readonly origin: 'generated' | 'given';
  /** Id of the platform key that encrypts the private key; null once the private key is deleted. */
  readonly keyId: string | null;
  readonly changedAtMs: number;
}

export interface Cluster {
  readonly id: string;
  readonly organizationId: string;
  readonly name: string;
  readonly publicDomain: string | null;
  /** Users of web addresses on the cluster. */
  readonly access: ClusterRow['access'];
  readonly labels: Labels;
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
  /** In the order in which they were added. */
  readonly nodes: readonly ClusterNode[];
}

/** An alert about nodes of one cluster. */
export interface SilenceNotice {
  readonly organizationId: string;
  readonly type: 'cluster.nodes_silent' | 'cluster.nodes_back';
  readonly data: {
    readonly cluster_id: string;
    readonly cluster: string;
    readonly count: number;
    /** The first 20. `last_seen_at`: ISO. */
    readonly nodes: readonly { readonly id: string; readonly name: string; readonly last_seen_at: string | null }[];
    readonly silence_seconds: number;
  };
}

export function toCluster(row: ClusterRow): Cluster {
  return {
    id: row.id,
    organizationId: row.organizationId,
    name: row.name,
    publicDomain: row.publicDomain,
    access: row.access,
    labels: row.labels,
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

/**
 * @param latest the node's latest recorded allocation
 * @param priced profiles that rate cards price now
 */
export function toNode(row: NodeRow, latest: AllocationOnFile | null, priced: ReadonlySet<string>): ClusterNode {
  const { createdAt, lastSeenAt, clusterId: _, ...fields } = row;
  return {
    ...fields,
    status: statusOf(latest),
    allocation: latest === null ? null : toAllocationView(latest),
    isPriced: priced.has(row.hardwareProfile),
    createdAtMs: createdAt.getTime(),
    lastSeenMs: lastSeenAt?.getTime() ?? null,
  };
}

function statusOf(latest: AllocationOnFile | null): NodeStatus {
  if (latest === null || latest.allocatedMs === null) return 'registered';
  return latest.releasedMs === null ? 'allocated' : 'released';
}

/** Public ids, which costs use too. */
export const clusterKey = (clusterId: string): string => formatId('cluster', clusterId);
export const nodeKey = (nodeId: string): string => formatId('node', nodeId);
