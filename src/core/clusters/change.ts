import { and, eq, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { type Db, isUniqueViolation, type Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { AllocationOnFile, Costs } from '#core/costs/costs.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { type ClusterRow, nodeKey, type NodeRow, type SilenceNotice } from './cluster.ts';
import { clusterNodes, clusters } from './schema.ts';

/** Dependencies of changes to clusters. */
export interface ClusterParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization'>;
  readonly costs: Pick<
    Costs,
    | 'allocate'
    | 'release'
    | 'withdrawEstimate'
    | 'amend'
    | 'listAllocations'
    | 'moveCluster'
    | 'listOpen'
    | 'nodeAllocations'
    | 'recordLabels'
    | 'renameNode'
    | 'pricedProfiles'
  >;
  readonly secrets: Secrets;
  /** Returns the public ids of a cluster's pending and active runs, which prevent a move of the cluster. */
  readonly runsUnderWay: (tx: Transaction, clusterId: string) => Promise<readonly string[]>;
  /** Runs for a node, which belong to the machine and not to its name. */
  readonly nodeRuns: NodeRuns;
  /** Raises an alert in the transaction of its cause. */
  readonly raiseIn: (tx: Transaction, notice: SilenceNotice) => Promise<void>;
}

interface NamedNode {
  readonly clusterId: string;
  readonly name: string;
}

/** Changes of a node's runs, in the transaction that changes the node. */
interface NodeRuns {
  /** Locks the node's runs. Returns public ids: of pending and active runs, and of runs with resources on the node. */
  readonly hold: (
    tx: Transaction,
    node: NamedNode,
  ) => Promise<{ readonly underWay: readonly string[]; readonly standing: readonly string[] }>;
  /** Renames the installations with their node. */
  readonly rename: (tx: Transaction, node: NamedNode, name: string) => Promise<void>;
  /** Retires the node's installations: no later node of the same name gets them. */
  readonly retire: (tx: Transaction, node: NamedNode) => Promise<void>;
}

/** Locks a cluster: one change at a time. Null if the cluster does not exist. */
export async function lockCluster(tx: Transaction, clusterId: string): Promise<ClusterRow | null> {
  const [row] = await tx.select().from(clusters).where(eq(clusters.id, clusterId)).for('update');
  return row ?? null;
}

/**
 * Returns a cluster's organization, and keeps it until the transaction ends. Null if it does not exist or is archived.
 */
export async function holdCluster(tx: Transaction, clusterId: string): Promise<string | null> {
  const [row] = await tx.select().from(clusters).where(eq(clusters.id, clusterId)).for('share');
  return row === undefined || row.archivedAt !== null ? null : row.organizationId;
}

/** Locks a cluster for a change. Null if it does not exist. @throws AppError conflict if it is archived */
export async function lockActive(tx: Transaction, clusterId: string): Promise<ClusterRow | null> {
  const row = await lockCluster(tx, clusterId);
  if (row === null || row.archivedAt === null) return row;
  throw new AppError('conflict', { message: 'The cluster is archived and can no longer be changed.' });
}

/** A node, by its id or its name. No name has the form of an id. */
export interface NodeRef {
  readonly clusterId: string;
  readonly node: { readonly id: string } | { readonly name: string };
}

export async function findNodeRow(tx: Pick<Transaction, 'select'>, ref: NodeRef): Promise<NodeRow | null> {
  const named = 'id' in ref.node ? eq(clusterNodes.id, ref.node.id) : eq(clusterNodes.name, ref.node.name);
  const [row] = await tx
    .select()
    .from(clusterNodes)
    .where(and(eq(clusterNodes.clusterId, ref.clusterId), named));
  return row ?? null;
}

/** @throws AppError invalid_value if the organization does not exist, conflict if it is not active */
export async function requireOrganization(
  tx: Transaction,
  { accounts }: ClusterParts,
  organizationId: string,
): Promise<Organization> {
  const organization = await accounts.lockOrganization(tx, organizationId);
  if (organization === null) {
    throw new AppError('invalid_value', { message: 'is not an existing organization', param: 'organization_id' });
  }
  if (organization.status === 'active') return organization;
  throw new AppError('conflict', { message: `the organization is ${organization.status}`, param: 'organization_id' });
}

/** Returns the database's clock in whole milliseconds since the Unix epoch. */
export async function dbNowMs(tx: Transaction): Promise<number> {
  const [row] = await tx.execute<{ now_ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms`,
  );
  return Number(row?.now_ms ?? Date.now());
}

/** Ends the open allocations of nodes. @returns these allocations */
export async function releaseAll(
  tx: Transaction,
  { costs }: ClusterParts,
  clusterKey: string,
  nodes: readonly NodeRow[],
): Promise<readonly AllocationOnFile[]> {
  const nodeIds = nodes.map(({ id }) => nodeKey(id));
  const open = await costs.nodeAllocations({ nodeIds, which: 'open' }, tx);
  const ends = open.map(({ nodeId, generation }) => ({ nodeId, generation, atMs: null, estimated: false }));
  if (ends.length > 0) await costs.release(tx, clusterKey, ends);
  return open;
}

/** Turns unique violations of names into conflicts. */
export async function refusingTakenNames<T>(change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    const refusal = takenNames.find(({ constraint }) => isUniqueViolation(error, constraint));
    if (refusal === undefined) throw error;
    throw new AppError('conflict', { message: refusal.message, param: refusal.param, cause: error });
  }
}

const takenNames = [
  {
    constraint: 'clusters_organization_name_key',
    param: 'name',
    message: 'The organization already has a cluster with this name.',
  },
  {
    constraint: 'clusters_domain_name_key',
    param: 'public_domain',
    message:
      'Another cluster with this name has the same public domain, so their web addresses would be the same. Choose another name or domain.',
  },
  {
    constraint: 'cluster_nodes_cluster_name_key',
    param: 'name',
    message: 'The cluster already has a node with this name.',
  },
];
