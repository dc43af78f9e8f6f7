import { and, eq, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { type Db, isUniqueViolation, type Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { AllocationOnFile, Costs } from '#core/costs/costs.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { type ClusterRow, nodeKey, type NodeRow } from './cluster.ts';
import { clusterNodes, clusters } from './schema.ts';

/** What changes of clusters are made with. */
export interface ClusterParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization'>;
  readonly costs: Pick<
    Costs,
    'allocate' | 'release' | 'withdrawEstimate' | 'moveCluster' | 'listOpen' | 'nodeAllocations'
  >;
  readonly secrets: Secrets;
  /** Runs of a cluster that wait or go on, by the ids that outsiders know: meanwhile it stays with its organization. */
  readonly runsUnderWay: (tx: Transaction, clusterId: string) => Promise<readonly string[]>;
  /** Runs for a node, which belong to this machine and not to its name. */
  readonly nodeRuns: NodeRuns;
}

interface NamedNode {
  readonly clusterId: string;
  readonly name: string;
}

/** All of it in the transaction that changes the node. */
interface NodeRuns {
  /** By the ids that outsiders know: those that wait or go on, and those that have something on the node. */
  readonly hold: (
    tx: Transaction,
    node: NamedNode,
  ) => Promise<{ readonly underWay: readonly string[]; readonly standing: readonly string[] }>;
  /** What is installed on the node goes with its name. */
  readonly rename: (tx: Transaction, node: NamedNode, name: string) => Promise<void>;
  /** No later node of the name has what was installed on this one. */
  readonly retire: (tx: Transaction, node: NamedNode) => Promise<void>;
}

/** Of one cluster one change happens at a time. Null where there is none. */
export async function lockCluster(tx: Transaction, clusterId: string): Promise<ClusterRow | null> {
  const [row] = await tx.select().from(clusters).where(eq(clusters.id, clusterId)).for('update');
  return row ?? null;
}

/** Whose cluster it is, which stays so until the transaction ends. Null where there is none, or it is archived. */
export async function holdCluster(tx: Transaction, clusterId: string): Promise<string | null> {
  const [row] = await tx.select().from(clusters).where(eq(clusters.id, clusterId)).for('share');
  return row === undefined || row.archivedAt !== null ? null : row.organizationId;
}

/** The same of one that can be changed. @throws AppError conflict for one that is archived */
export async function lockActive(tx: Transaction, clusterId: string): Promise<ClusterRow | null> {
  const row = await lockCluster(tx, clusterId);
  if (row === null || row.archivedAt === null) return row;
  throw new AppError('conflict', { message: 'The cluster is archived: nothing of it can be changed any more.' });
}

/** A node by its id, or by its name, which no id looks like. */
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

/** @throws AppError invalid_value where there is no such organization */
export async function requireOrganization(
  tx: Transaction,
  { accounts }: ClusterParts,
  organizationId: string,
): Promise<Organization> {
  const organization = await accounts.lockOrganization(tx, organizationId);
  if (organization === null) {
    throw new AppError('invalid_value', { message: 'is no organization that there is', param: 'organization_id' });
  }
  if (organization.status === 'active') return organization;
  throw new AppError('conflict', { message: `the organization is ${organization.status}`, param: 'organization_id' });
}

/** Unix milliseconds by the database's clock, whole. */
export async function dbNowMs(tx: Transaction): Promise<number> {
  const [row] = await tx.execute<{ now_ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms`,
  );
  return Number(row?.now_ms ?? Date.now());
}

/** Ends whatever holds these nodes. @returns what held them */
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

/** Names that are taken become refusals. */
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
    message: 'The organization already has a cluster of this name.',
  },
  {
    constraint: 'clusters_domain_name_key',
    param: 'public_domain',
    message: 'Another cluster of this name has this public domain: their web addresses would be the same.',
  },
  {
    constraint: 'cluster_nodes_cluster_name_key',
    param: 'name',
    message: 'The cluster already has a node of this name.',
  },
];
