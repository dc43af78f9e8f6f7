import { and, asc, count, eq, inArray, isNotNull, isNull, type SQL } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Costs } from '#core/costs/costs.ts';
import {
  type ClusterRow,
  type ClusterStatus,
  type ClusterSummary,
  type ClusterWithNodes,
  nodeKey,
  type NodeRow,
  toCluster,
  toNode,
} from './cluster.ts';
import { clusterNodes, clusters } from './schema.ts';

export interface ClusterList {
  /** Null: clusters of all organizations. */
  readonly organizationId: string | null;
  readonly status: ClusterStatus | null;
  /** Counts from 1. */
  readonly page: number;
  readonly limit: number;
}

export interface ClusterPage {
  readonly clusters: readonly ClusterSummary[];
  readonly total: number;
}

type Reading = Pick<Costs, 'nodeAllocations' | 'pricedProfiles'>;

/** Lists clusters, oldest first. */
export async function listClusters(db: Db, costs: Reading, list: ClusterList): Promise<ClusterPage> {
  const { organizationId, status, page, limit } = list;
  const asked = and(
    organizationId === null ? undefined : eq(clusters.organizationId, organizationId),
    status === null ? undefined : statusIs(status),
  );
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.select({ total: count() }).from(clusters).where(asked);
      const rows = await tx
        .select()
        .from(clusters)
        .where(asked)
        .orderBy(asc(clusters.id))
        .limit(limit)
        .offset((page - 1) * limit);
      const nodes = await readNodes(tx, rows);
      const nodeIds = nodes.map(({ id }) => nodeKey(id));
      const open = await costs.nodeAllocations({ nodeIds, which: 'open' }, tx);
      return {
        clusters: summarize(rows, nodes, new Set(open.map(({ nodeId }) => nodeId))),
        total: counted?.total ?? 0,
      };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}

const statusIs = (status: ClusterStatus): SQL =>
  status === 'active' ? isNull(clusters.archivedAt) : isNotNull(clusters.archivedAt);

function summarize(
  rows: readonly ClusterRow[],
  nodes: readonly NodeRow[],
  held: ReadonlySet<string>,
): readonly ClusterSummary[] {
  const byCluster = Map.groupBy(nodes, ({ clusterId }) => clusterId);
  return rows.map((row) => {
    const own = byCluster.get(row.id) ?? [];
    return {
      ...toCluster(row),
      nodesTotal: own.length,
      nodesAllocated: own.filter(({ id }) => held.has(nodeKey(id))).length,
    };
  });
}

/** Reads nodes in the order in which they were added. */
export async function readNodes(
  tx: Pick<Transaction, 'select'>,
  rows: readonly ClusterRow[],
): Promise<readonly NodeRow[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ id }) => id);
  return tx.select().from(clusterNodes).where(inArray(clusterNodes.clusterId, ids)).orderBy(asc(clusterNodes.id));
}

/** Returns null if the cluster does not exist. */
export async function readCluster(db: Db, clusterId: string): Promise<ClusterRow | null> {
  const [row] = await db.orm.select().from(clusters).where(eq(clusters.id, clusterId));
  return row ?? null;
}

export async function readClusterIds(db: Db, organizationId: string): Promise<readonly string[]> {
  const rows = await db.orm
    .select({ id: clusters.id })
    .from(clusters)
    .where(eq(clusters.organizationId, organizationId));
  return rows.map(({ id }) => id);
}

/** Returns a cluster with its nodes, as the transaction sees it. */
export async function withNodes(tx: Transaction, costs: Reading, row: ClusterRow): Promise<ClusterWithNodes> {
  const rows = await readNodes(tx, [row]);
  const nodeIds = rows.map(({ id }) => nodeKey(id));
  const latest = await costs.nodeAllocations({ nodeIds, which: 'latest' }, tx);
  const byNode = new Map(latest.map((one) => [one.nodeId, one]));
  const priced = await costs.pricedProfiles(
    tx,
    rows.map(({ hardwareProfile }) => hardwareProfile),
  );
  const nodes = rows.map((node) => toNode(node, byNode.get(nodeKey(node.id)) ?? null, priced));
  const nodesAllocated = nodes.filter(({ status }) => status === 'allocated').length;
  return { ...toCluster(row), nodesTotal: nodes.length, nodesAllocated, nodes };
}

export async function findCluster(db: Db, costs: Reading, clusterId: string): Promise<ClusterWithNodes | null> {
  return db.orm.transaction(
    async (tx) => {
      const [row] = await tx.select().from(clusters).where(eq(clusters.id, clusterId));
      return row === undefined ? null : withNodes(tx, costs, row);
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
