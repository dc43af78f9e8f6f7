import { sql } from 'drizzle-orm';
import { check, customType, index, integer, pgTable, text, timestamp, uniqueIndex, uuid } from 'drizzle-orm/pg-core';
import { clusterAccess } from './access.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/** Machines that belong together, of one organization. An archived one stays, as what its hours are shown by. */
export const clusters = pgTable(
  'clusters',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    name: text('name').notNull(),
    /** Web addresses of what runs on it lie below; null where it has none. */
    publicDomain: text('public_domain'),
    /** Who may use web addresses of what runs on it; a run may ask for less than everybody. */
    access: text('access', { enum: clusterAccess }).notNull().default('public'),
    createdAt: moment('created_at').notNull(),
    archivedAt: moment('archived_at'),
    /** The line for authorized_keys; it stays when the private key is gone. */
    accessPublicKey: text('access_public_key').notNull(),
    accessFingerprint: text('access_fingerprint').notNull(),
    accessOrigin: text('access_origin', { enum: ['generated', 'given'] }).notNull(),
    accessChangedAt: moment('access_changed_at').notNull(),
    /** The private key, encrypted by the platform key of this id; both null once the cluster is archived. */
    accessKeyId: text('access_key_id'),
    accessSealed: bytes('access_sealed'),
  },
  (table) => [
    uniqueIndex('clusters_organization_name_key')
      .on(table.organizationId, table.name)
      .where(sql`${table.archivedAt} is null`),
    // An address is made of a stack's name, the cluster's and the domain: over all organizations it is one cluster's.
    uniqueIndex('clusters_domain_name_key')
      .on(table.publicDomain, table.name)
      .where(sql`${table.archivedAt} is null`),
    index('clusters_organization_idx').on(table.organizationId, table.id),
    check('clusters_access_sealed', sql`(${table.accessKeyId} is null) = (${table.accessSealed} is null)`),
  ],
);

/** Machines of a cluster. When they were allocated and released stands in the costs alone. */
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
    createdAt: moment('created_at').notNull(),
    lastSeenAt: moment('last_seen_at'),
  },
  (table) => [uniqueIndex('cluster_nodes_cluster_name_key').on(table.clusterId, table.name)],
);
