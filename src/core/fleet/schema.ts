import { bigint, integer, json, jsonb, pgTable, primaryKey, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' }).notNull();
const count = (name: string) => bigint(name, { mode: 'bigint' }).notNull();

/** Who may change what runs, one gateway for each scope; all moments are the database's own. */
export const fleetLeases = pgTable('fleet_leases', {
  scope: text('scope').primaryKey(),
  gatewayId: uuid('gateway_id').notNull(),
  /** Grows whenever the lease is taken, and never falls: the row of a lease that was given back stays. */
  epoch: count('epoch'),
  expiresAt: moment('expires_at'),
});

/** What the leader of a scope says of its engines. */
export const fleetPublished = pgTable('fleet_published', {
  scope: text('scope').primaryKey(),
  version: count('version'),
  /** Under which it was written; nothing is written under an older one any more. */
  epoch: count('epoch'),
  engines: jsonb('engines').notNull(),
});

/** What each gateway needs of the engines of a scope. */
export const fleetDemands = pgTable(
  'fleet_demands',
  {
    scope: text('scope').notNull(),
    gatewayId: uuid('gateway_id').notNull(),
    seenVersion: count('seen_version'),
    /** Requests that wait there, over all engines. */
    waiting: integer('waiting').notNull(),
    engines: jsonb('engines').notNull(),
    updatedAt: moment('updated_at'),
  },
  (table) => [primaryKey({ columns: [table.scope, table.gatewayId] })],
);

/** Commands of operators that no leader has taken yet. */
export const fleetOrders = pgTable(
  'fleet_orders',
  {
    scope: text('scope').notNull(),
    engineId: text('engine_id').notNull(),
    kind: text('kind', { enum: ['start', 'stop', 'restart', 'reset'] }).notNull(),
    orderedAt: moment('ordered_at'),
  },
  (table) => [primaryKey({ columns: [table.scope, table.engineId] })],
);

/** The newest definition of each engine that passed its checks: what is started while a newer file is refused. */
export const fleetGoodSpecs = pgTable(
  'fleet_good_specs',
  {
    scope: text('scope').notNull(),
    engineId: text('engine_id').notNull(),
    specHash: text('spec_hash').notNull(),
    /** Not jsonb: the hash is made over keys in their order, and jsonb keeps neither that nor every text. */
    definition: json('definition').notNull(),
    /** Grows with every write; what is written names the one that it follows. */
    revision: count('revision'),
    updatedAt: moment('updated_at'),
  },
  (table) => [primaryKey({ columns: [table.scope, table.engineId] })],
);

/** Secrets that all gateways of a database share, by what they are for. */
export const fleetSecrets = pgTable('fleet_secrets', {
  purpose: text('purpose').primaryKey(),
  secret: text('secret').notNull(),
});
