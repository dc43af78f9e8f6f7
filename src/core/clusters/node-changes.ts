import { isDeepStrictEqual } from 'node:util';
import { count, eq } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import { type ClusterParts, findNodeRow, lockActive, type NodeRef, refusingTakenNames, releaseAll } from './change.ts';
import {
  clusterKey,
  type ClusterNode,
  type ClusterRow,
  type NodeInput,
  nodeKey,
  type NodeRow,
  toNode,
} from './cluster.ts';
import { changeLabels, type LabelChanges, type Labels, labelsMax, labelsOfNode } from './labels.ts';
import { clusterNodes } from './schema.ts';

const nodesMax = 1024;

export type NodePatch = {
  readonly [Field in Exclude<keyof NodeInput, 'labels'>]?: NodeInput[Field] | undefined;
} & { readonly labels?: LabelChanges | undefined };

interface NodesOf {
  readonly cluster: ClusterRow;
  readonly nodes: readonly NodeInput[];
  readonly author: Author;
}

function auditView(row: NodeRow): AuditView {
  return {
    name: row.name,
    address: row.address,
    private_address: row.privateAddress,
    ssh_port: row.sshPort,
    ssh_user: row.sshUser,
    host_key: row.hostKey,
    hardware_profile: row.hardwareProfile,
    gpus: row.gpus,
    labels: row.labels,
  };
}

interface Noted {
  readonly cluster: ClusterRow;
  readonly action: string;
  readonly before: NodeRow | null;
  readonly after: NodeRow | null;
  readonly author: Author;
}

async function note(tx: Transaction, { audit }: ClusterParts, noted: Noted): Promise<void> {
  const { cluster, action, before, after, author } = noted;
  await audit.record(tx, {
    organizationId: cluster.organizationId,
    author,
    action: `cluster_node.${action}`,
    targetType: 'cluster_node',
    targetId: nodeKey((after ?? before)?.id ?? ''),
    before: before === null ? null : auditView(before),
    after: after === null ? null : { cluster_id: clusterKey(cluster.id), ...auditView(after) },
  });
}

/** @throws AppError conflict */
export function requireFewLabels(labels: Labels): Labels {
  if (Object.keys(labels).length <= labelsMax) return labels;
  const message = `A cluster or node can have at most ${labelsMax} labels. Remove one with the value null.`;
  throw new AppError('conflict', { message, param: 'labels' });
}

/** Records labels of nodes for the costs, where they have changed. */
export async function recordLabels(
  tx: Transaction,
  { costs }: ClusterParts,
  { labels }: Pick<ClusterRow, 'labels'>,
  nodes: readonly Pick<NodeRow, 'id' | 'labels'>[],
): Promise<void> {
  await costs.recordLabels(
    tx,
    nodes.map((node) => ({ nodeId: nodeKey(node.id), labels: labelsOfNode(labels, node.labels) })),
  );
}

/** Adds nodes in order. @throws AppError conflict if the cluster would have too many */
export async function insertNodes(
  tx: Transaction,
  parts: ClusterParts,
  { cluster, nodes, author }: NodesOf,
): Promise<readonly NodeRow[]> {
  if (nodes.length === 0) return [];
  const now = new Date(parts.clock.now());
  const rows = nodes.map((node): NodeRow => ({
    id: uuidv7(now.getTime()),
    clusterId: cluster.id,
    ...node,
    labels: changeLabels({}, node.labels),
    createdAt: now,
    lastSeenAt: null,
  }));
  await tx.insert(clusterNodes).values(rows);
  const [counted] = await tx
    .select({ total: count() })
    .from(clusterNodes)
    .where(eq(clusterNodes.clusterId, cluster.id));
  if ((counted?.total ?? 0) > nodesMax) {
    throw new AppError('conflict', { message: `A cluster can have at most ${nodesMax} nodes.`, param: 'nodes' });
  }
  await recordLabels(tx, parts, cluster, rows);
  for (const row of rows) await note(tx, parts, { cluster, action: 'added', before: null, after: row, author });
  return rows;
}

/** Returns null if the cluster does not exist. */
export async function addNode(
  parts: ClusterParts,
  clusterId: string,
  node: NodeInput,
  author: Author,
): Promise<ClusterNode | null> {
  return refusingTakenNames(() =>
    parts.db.orm.transaction(async (tx) => {
      const cluster = await lockActive(tx, clusterId);
      if (cluster === null) return null;
      const [row] = await insertNodes(tx, parts, { cluster, nodes: [node], author });
      if (row === undefined) return null;
      return toNode(row, null, await parts.costs.pricedProfiles(tx, [row.hardwareProfile]));
    }),
  );
}

/**
 * Changes a node. Returns null if it does not exist. Its hardware cannot change while it is allocated, because its
 * hours are metered for that hardware.
 * @throws AppError conflict
 */
export async function patchNode(
  parts: ClusterParts,
  ref: NodeRef,
  patch: NodePatch,
  author: Author,
): Promise<ClusterNode | null> {
  const { db, costs } = parts;
  return refusingTakenNames(() =>
    db.orm.transaction(async (tx) => {
      const cluster = await lockActive(tx, ref.clusterId);
      const before = cluster === null ? null : await findNodeRow(tx, ref);
      if (cluster === null || before === null) return null;
      const [latest = null] = await costs.nodeAllocations({ nodeIds: [nodeKey(before.id)], which: 'latest' }, tx);
      const { labels: labelChanges = {}, ...others } = patch;
      const labels = requireFewLabels(changeLabels(before.labels, labelChanges));
      const fields = {
        ...Object.fromEntries(Object.entries(others).filter(([, value]) => value !== undefined)),
        labels,
      };
      const after: NodeRow = { ...before, ...fields };
      const priced = await costs.pricedProfiles(tx, [before.hardwareProfile, after.hardwareProfile]);
      const current = toNode(before, latest, priced);
      if (isDeepStrictEqual(auditView(after), auditView(before))) return current;
      const isOther = after.hardwareProfile !== before.hardwareProfile || after.gpus !== before.gpus;
      if (isOther && current.status === 'allocated') throw heldNode();
      if (after.name !== before.name) await renameRuns(tx, parts, before, after.name);
      await tx.update(clusterNodes).set(fields).where(eq(clusterNodes.id, before.id));
      await recordLabels(tx, parts, cluster, [after]);
      await note(tx, parts, { cluster, action: 'changed', before, after, author });
      return toNode(after, latest, priced);
    }),
  );
}

function heldNode(): AppError {
  const message =
    'The node is allocated. Release it before you change hardware_profile or gpus, then allocate it again.';
  return new AppError('conflict', { message });
}

/**
 * Renames a node's runs, and the node in the costs. Runs get the names of nodes when they start, so none may be pending or active.
 * @throws AppError conflict
 */
async function renameRuns(
  tx: Transaction,
  { nodeRuns, costs }: ClusterParts,
  node: NodeRow,
  name: string,
): Promise<void> {
  const { underWay } = await nodeRuns.hold(tx, node);
  if (underWay.length > 0) {
    const message = `The node has pending or active runs: ${underWay.join(', ')}. Wait until they finish, or cancel them, before you rename it.`;
    throw new AppError('conflict', { message, param: 'name' });
  }
  await nodeRuns.rename(tx, node, name);
  await costs.renameNode(tx, nodeKey(node.id), name);
}

/**
 * Retires a node's runs, so that a later machine does not get the record of their resources.
 * @throws AppError conflict
 */
async function retireRuns(tx: Transaction, { nodeRuns }: ClusterParts, node: NodeRow): Promise<void> {
  const { underWay, standing } = await nodeRuns.hold(tx, node);
  if (underWay.length > 0) {
    const message = `The node has pending or active runs: ${underWay.join(', ')}. Wait until they finish, or cancel them, before you remove it.`;
    throw new AppError('conflict', { message });
  }
  if (standing.length > 0) {
    const message = `These runs have resources on the node: ${standing.join(', ')}. Destroy them first, or forget them (POST /v1/runs/{id}/forget) if the machine no longer exists.`;
    throw new AppError('conflict', { message });
  }
  await nodeRuns.retire(tx, node);
}

/**
 * Releases a node and removes it from its cluster; its hours stay.
 * @returns false if the node does not exist
 * @throws AppError conflict if runs for the node are pending or active, or their resources exist
 */
export async function removeNode(parts: ClusterParts, ref: NodeRef, author: Author): Promise<boolean> {
  return parts.db.orm.transaction(async (tx) => {
    const cluster = await lockActive(tx, ref.clusterId);
    const node = cluster === null ? null : await findNodeRow(tx, ref);
    if (cluster === null || node === null) return false;
    await retireRuns(tx, parts, node);
    await releaseAll(tx, parts, clusterKey(cluster.id), [node]);
    await tx.delete(clusterNodes).where(eq(clusterNodes.id, node.id));
    await note(tx, parts, { cluster, action: 'removed', before: node, after: null, author });
    return true;
  });
}
