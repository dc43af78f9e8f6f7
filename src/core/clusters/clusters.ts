import type { Transaction } from '#base/database/database.ts';
import type { Author } from '#core/audit/audit.ts';
import type { AllocationHistory, AllocationPage } from '#core/costs/costs.ts';
import { type AllocationChange, type AllocationQuery, amendAllocation, listAllocations } from './allocations.ts';
import { openPrivateKey, resealIdentities } from './access-identity.ts';
import { type ClusterParts, holdCluster, type NodeRef } from './change.ts';
import type { ClusterNode, ClusterWithNodes, NodeInput } from './cluster.ts';
import {
  archiveCluster,
  type ClusterPatch,
  createCluster,
  type NewCluster,
  patchCluster,
  rotateAccessIdentity,
} from './cluster-changes.ts';
import {
  type ClusterList,
  type ClusterPage,
  findCluster,
  listClusters,
  readCluster,
  readClusterIds,
} from './cluster-reads.ts';
import { addNode, type NodePatch, patchNode, removeNode } from './node-changes.ts';
import { heartbeat, type NodeEvent, type NodeEventResult, recordEvent } from './node-events.ts';
import {
  type AddressPort,
  type ClusterPlace,
  readPlaces,
  readRunContext,
  readSshPorts,
  type RunContext,
} from './run-context.ts';
import { createSilenceCheck, silenceNoticeMs } from './silence-notices.ts';
import { endSilentNodes } from './silent-nodes.ts';

/**
 * Clusters, their nodes and the keys with which runs log in to them. A node's allocation and its metering are one
 * transaction with the costs. The edge checks permissions; ids are UUIDs. Null and false mean that nothing has the id.
 * While Postgres is unreachable, all methods throw the driver's error.
 */

export type {
  AccessIdentityView,
  Cluster,
  ClusterNode,
  ClusterStatus,
  ClusterSummary,
  ClusterWithNodes,
  NodeAllocationView,
  NodeInput,
  NodeStatus,
} from './cluster.ts';
export type { AllocationChange } from './allocations.ts';
export type { NodeRef } from './change.ts';
export type { ClusterPatch, NewCluster } from './cluster-changes.ts';
export type { ClusterList, ClusterPage } from './cluster-reads.ts';
export { type LabelChanges, type Labels, labelsMax } from './labels.ts';
export type { NodePatch } from './node-changes.ts';
export type { NodeEvent, NodeEventKind, NodeEventResult } from './node-events.ts';
export { type ClusterPlace, readNodeAddresses, type RunContext, type RunNode } from './run-context.ts';
export { countOtherKeysIdentities } from './access-identity.ts';
export { parseHostKey, parsePrivateKey, SshKeyError } from './ssh-keys.ts';

export interface Clusters {
  /** @throws AppError conflict, invalid_value, secrets_unavailable */
  create(input: NewCluster, author: Author): Promise<ClusterWithNodes>;
  list(list: ClusterList): Promise<ClusterPage>;
  find(clusterId: string): Promise<ClusterWithNodes | null>;
  /** The cluster's organization. */
  organizationOf(clusterId: string): Promise<string | null>;
  /** Returns the cluster's organization, and keeps it until the transaction ends; null also for an archived cluster. */
  holdIn(tx: Transaction, clusterId: string): Promise<string | null>;
  /** Ids of all clusters of an organization, including archived ones. */
  idsOf(organizationId: string): Promise<readonly string[]>;
  /** @throws AppError conflict, invalid_value */
  patch(clusterId: string, patch: ClusterPatch, author: Author): Promise<ClusterWithNodes | null>;
  /** Releases all nodes and ends metering; the cluster stays in past reports. */
  archive(clusterId: string, author: Author): Promise<boolean>;
  /**
   * @param privateKey a key that `parsePrivateKey` accepts; null generates one.
   * @throws AppError secrets_unavailable, conflict
   */
  rotateAccessIdentity(clusterId: string, privateKey: string | null, author: Author): Promise<ClusterWithNodes | null>;
  /** @throws AppError conflict */
  addNode(clusterId: string, node: NodeInput, author: Author): Promise<ClusterNode | null>;
  /** @throws AppError conflict */
  patchNode(ref: NodeRef, patch: NodePatch, author: Author): Promise<ClusterNode | null>;
  /** @throws AppError conflict while runs for the node are pending or active, or their resources exist */
  removeNode(ref: NodeRef, author: Author): Promise<boolean>;
  /** @throws AppError conflict, invalid_value */
  record(ref: NodeRef, event: NodeEvent): Promise<NodeEventResult | null>;
  /**
   * Corrects or voids an allocation, also of a removed node. Null if it does not exist.
   * @throws AppError conflict, invalid_value
   */
  amendAllocation(ref: NodeRef, change: AllocationChange): Promise<AllocationHistory | null>;
  /** Allocations with their amendments, latest first. */
  listAllocations(query: AllocationQuery): Promise<AllocationPage>;
  /** @throws AppError conflict */
  heartbeat(ref: NodeRef, author: Author): Promise<boolean>;
  /** The values that a run of this cluster gets; null also for an archived cluster. */
  runContext(clusterId: string): Promise<RunContext | null>;
  /** Clusters with what is needed to connect to their nodes; archived ones are omitted. */
  places(clusterIds: readonly string[]): Promise<readonly ClusterPlace[]>;
  /** The given ports at which nodes have their SSH server, across all clusters that are not archived. */
  sshPorts(ports: readonly AddressPort[]): Promise<readonly AddressPort[]>;
  /** For runs only: the key must reach no log, no response and no environment. @throws AppError secrets_unavailable */
  openPrivateKey(clusterId: string): Promise<string | null>;
  /** Ends metering of nodes that are deleted or silent. @returns the number of intervals ended */
  endSilentNodes(): Promise<number>;
  /** Raises alerts about nodes that fell silent or came back. @returns the number of alerts */
  notifySilence(): Promise<number>;
  /** Encrypts again, with the key in use, what an older platform key encrypted. @returns the number of identities */
  reseal(): Promise<number>;
}

export interface ClustersOptions extends ClusterParts {
  /** Silence after which a node that has sent heartbeats counts as released since its last one; null: never. */
  readonly nodeSilenceMs: number | null;
}

export function createClusters({ nodeSilenceMs, ...parts }: ClustersOptions): Clusters {
  const { db, costs, secrets, log, clock } = parts;
  const startedMs = clock.monotonicMs();
  return {
    create: (input, author) => createCluster(parts, input, author),
    list: (list) => listClusters(db, costs, list),
    find: (clusterId) => findCluster(db, costs, clusterId),
    organizationOf: async (clusterId) => (await readCluster(db, clusterId))?.organizationId ?? null,
    holdIn: holdCluster,
    idsOf: (organizationId) => readClusterIds(db, organizationId),
    patch: (clusterId, patch, author) => patchCluster(parts, clusterId, patch, author),
    archive: (clusterId, author) => archiveCluster(parts, clusterId, author),
    rotateAccessIdentity: (clusterId, privateKey, author) => rotateAccessIdentity(parts, clusterId, privateKey, author),
    addNode: (clusterId, node, author) => addNode(parts, clusterId, node, author),
    patchNode: (ref, patch, author) => patchNode(parts, ref, patch, author),
    removeNode: (ref, author) => removeNode(parts, ref, author),
    record: (ref, event) => recordEvent(parts, ref, event),
    amendAllocation: (ref, change) => amendAllocation(parts, ref, change),
    listAllocations: (query) => listAllocations(parts, query),
    heartbeat: (ref, author) => heartbeat(parts, ref, author),
    runContext: (clusterId) => readRunContext(db, clusterId),
    places: (clusterIds) => readPlaces(parts, clusterIds),
    sshPorts: (ports) => readSshPorts(db, ports),
    openPrivateKey: (clusterId) => openPrivateKey(db, secrets, clusterId),
    endSilentNodes() {
      // While no gateway ran, no heartbeat could arrive: each node gets the whole time again.
      const isHeard = nodeSilenceMs !== null && clock.monotonicMs() - startedMs > nodeSilenceMs;
      return endSilentNodes(parts, isHeard ? nodeSilenceMs : null);
    },
    notifySilence: createSilenceCheck(parts, nodeSilenceMs ?? silenceNoticeMs),
    reseal: () => resealIdentities(db, secrets, log),
  };
}
