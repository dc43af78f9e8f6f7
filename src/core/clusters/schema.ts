import { sql } from 'drizzle-orm';
import {
  check,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
/** Labels by key, without those of the cluster on nodes. */
const labels = () => jsonb('labels').$type<Readonly<Record<string, string>>>().notNull().default({});
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/** Users of web addresses on a cluster: everybody, or those who may see the cluster. */
const clusterAccess = ['public', 'members'] as const;

/** Groups of an organization's machines. An archived cluster stays, because reports of its hours need it. */
export const clusters = pgTable(
  'clusters',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    name: text('name').notNull(),
    /** Parent domain of the cluster's web addresses; null if it has none. */
    publicDomain: text('public_domain'),
    /** Users of the cluster's web addresses; a run may restrict its own further. */
    access: text('access', { enum: clusterAccess }).notNull().default('public'),
    labels: labels(),
    createdAt: moment('created_at').notNull(),
    archivedAt: moment('archived_at'),
    /** The line for authorized_keys; it stays when the private key is deleted. */
    accessPublicKey: text('access_public_key').notNull(),
    accessFingerprint: text('access_fingerprint').notNull(),
    accessOrigin: text('access_origin', { enum: ['generated', 'given'] }).notNull(),
    accessChangedAt: moment('access_changed_at').notNull(),
    /** Id of the platform key that encrypts the private key; both null once the cluster is archived. */
    accessKeyId: text('access_key_id'),
    accessSealed: bytes('access_sealed'),
  },
  (table) => [
    uniqueIndex('clusters_organization_name_key')
      .on(table.organizationId, table.name)
      .where(sql`${table.archivedAt} is null`),
    // An address consists of the stack's name, the cluster's name and the domain, so it must identify one cluster of
    // all organizations.
    uniqueIndex('clusters_domain_name_key')
      .on(table.publicDomain, table.name)
      .where(sql`${table.archivedAt} is null`),
    index('clusters_organization_idx').on(table.organizationId, table.id),
    check('clusters_access_sealed', sql`(${table.accessKeyId} is null) = (${table.accessSealed} is null)`),
  ],
);

/** Machines of a cluster. Only the costs record when they were allocated and released. */
export const clusterNodes = pgTable(
  'cluster_nodes',
  {
    id: uuid('id').primaryKey(),
    clusterId: uuid('cluster_id')
      .notNull()
      .references(() => clusters.id),
    name: text('name').notNull(),
    address: text('address').notNull(),
    privateAddress: text('private_address'),
    sshPort: integer('ssh_port').notNull(),
    sshUser: text('ssh_user').notNull(),
    hostKey: text('host_key'),
    hardwareProfile: text('hardware_profile').notNull(),
    gpus: integer('gpus').notNull(),
    labels: labels(),
    createdAt: moment('created_at').notNull(),
    lastSeenAt: moment('last_seen_at'),
  },
  (table) => [uniqueIndex('cluster_nodes_cluster_name_key').on(table.clusterId, table.name)],
);

/** Nodes whose silence was reported. */
export const silentNodes = pgTable('silent_nodes', {
  nodeId: uuid('node_id')
    .primaryKey()
    .references(() => clusterNodes.id, { onDelete: 'cascade' }),
  /** Time since which the node sends heartbeats again; null while it is silent. */
  heardSince: moment('heard_since'),
});
