import { and, asc, eq, inArray, isNull } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { AllocationOnFile, Costs } from '#core/costs/costs.ts';
import { clusterKey, nodeKey } from './cluster.ts';
import { clusterNodes, clusters } from './schema.ts';

/** The values that a run gets about its cluster, named like the variables that modules declare. Contains no secret. */
export interface RunContext {
  readonly cluster_id: string;
  readonly cluster_name: string;
  /** Null if the cluster has no web addresses. */
  readonly public_domain: string | null;
  /** In the order in which they were added. */
  readonly nodes: readonly RunNode[];
  readonly node_addresses: readonly string[];
  /** User of the first node; "root" without nodes. */
  readonly ssh_user: string;
}

export interface RunNode {
  /** `node_…`; survives a rename of the node. */
  readonly id: string;
  readonly name: string;
  readonly address: string;
  readonly private_address: string | null;
  readonly ssh_port: number;
  readonly ssh_user: string;
  readonly host_key: string | null;
  readonly hardware_profile: string;
  readonly gpus: number;
  /** The first node is the head. */
  readonly role: 'head' | 'worker';
}

/** Returns null if the cluster does not exist or is archived. */
export async function readRunContext(db: Db, clusterId: string): Promise<RunContext | null> {
  return db.orm.transaction(
    async (tx) => {
      const [cluster] = await tx.select().from(clusters).where(eq(clusters.id, clusterId));
      if (cluster === undefined || cluster.archivedAt !== null) return null;
      const rows = await tx
        .select()
        .from(clusterNodes)
        .where(eq(clusterNodes.clusterId, clusterId))
        .orderBy(asc(clusterNodes.id));
      const nodes = rows.map((row, index): RunNode => ({
        id: formatId('node', row.id),
        name: row.name,
        address: row.address,
        private_address: row.privateAddress,
        ssh_port: row.sshPort,
        ssh_user: row.sshUser,
        host_key: row.hostKey,
        hardware_profile: row.hardwareProfile,
        gpus: row.gpus,
        role: index === 0 ? 'head' : 'worker',
      }));
      return {
        cluster_id: clusterKey(cluster.id),
        cluster_name: cluster.name,
        public_domain: cluster.publicDomain,
        nodes,
        node_addresses: nodes.map(({ address }) => address),
        ssh_user: nodes[0]?.ssh_user ?? 'root',
      };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}

/** A cluster with what is needed to connect to its nodes. */
export interface ClusterPlace {
  readonly id: string;
  readonly organizationId: string;
  readonly name: string;
  readonly publicDomain: string | null;
  readonly access: 'public' | 'members';
  /** In the order in which they were added. */
  readonly nodes: readonly {
    readonly name: string;
    readonly address: string;
    readonly sshPort: number;
    readonly sshUser: string;
    readonly hostKey: string | null;
    /** True if somebody released the node: silence does not mean that the machine is another's. */
    readonly isGivenBack: boolean;
  }[];
}

/** Returns names and addresses of the nodes of clusters that are not archived, in the order in which they were added. */
export async function readNodeAddresses(
  db: Db,
  clusterIds: readonly string[],
): Promise<readonly { readonly clusterId: string; readonly name: string; readonly address: string }[]> {
  const { clusterId, name, address } = clusterNodes;
  return db.orm
    .select({ clusterId, name, address })
    .from(clusterNodes)
    .innerJoin(clusters, eq(clusters.id, clusterId))
    .where(and(inArray(clusterId, [...clusterIds]), isNull(clusters.archivedAt)))
    .orderBy(asc(clusterNodes.id));
}

export async function readPlaces(
  { db, costs }: { readonly db: Db; readonly costs: Pick<Costs, 'nodeAllocations'> },
  clusterIds: readonly string[],
): Promise<readonly ClusterPlace[]> {
  if (clusterIds.length === 0) return [];
  const chosen = and(inArray(clusters.id, [...clusterIds]), isNull(clusters.archivedAt));
  const { id, organizationId, name, publicDomain, access } = clusters;
  const rows = await db.orm.select({ id, organizationId, name, publicDomain, access }).from(clusters).where(chosen);
  const ids = rows.map((row) => row.id);
  const nodes = await db.orm
    .select()
    .from(clusterNodes)
    .where(inArray(clusterNodes.clusterId, ids))
    .orderBy(asc(clusterNodes.id));
  const latest = await costs.nodeAllocations({ nodeIds: nodes.map((node) => nodeKey(node.id)), which: 'latest' });
  const givenBack = new Set(latest.filter(isGivenBack).map(({ nodeId }) => nodeId));
  return rows.map((row) => ({
    ...row,
    nodes: nodes
      .filter(({ clusterId }) => clusterId === row.id)
      .map(({ id: nodeId, name: node, address, sshPort, sshUser, hostKey }) => ({
        name: node,
        address,
        sshPort,
        sshUser,
        hostKey,
        isGivenBack: givenBack.has(nodeKey(nodeId)),
      })),
  }));
}

/** Ignores a release that waits for its allocation. */
const isGivenBack = ({ allocatedMs, releasedMs, releaseEstimated }: AllocationOnFile): boolean =>
  allocatedMs !== null && releasedMs !== null && !releaseEstimated;

/** An address and port, as registered. */
export interface AddressPort {
  readonly address: string;
  readonly port: number;
}

/** Returns the given ports at which nodes have their SSH server, across all clusters that are not archived. */
export async function readSshPorts(db: Db, ports: readonly AddressPort[]): Promise<readonly AddressPort[]> {
  if (ports.length === 0) return [];
  return db.sql<AddressPort[]>`
    select distinct asked.address, asked.port
    from json_to_recordset(${JSON.stringify(ports)}::text::json) as asked(address text, port integer)
    join cluster_nodes n on n.ssh_port = asked.port and asked.address in (n.address, n.private_address)
    join clusters c on c.id = n.cluster_id and c.archived_at is null`;
}
