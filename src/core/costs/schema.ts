import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  index,
  integer,
  jsonb,
  numeric,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  unique,
  uuid,
} from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
/** Milliseconds since the Unix epoch: a report sums millions of them, and sums of integers cost a third less. */
const ms = (name: string) => bigint(name, { mode: 'number' });
const price = (name: string) => numeric(name, { precision: 20, scale: 10 });
const source = () => text('source', { enum: ['node', 'replica'] }).notNull();

/**
 * Recorded events: one row per node and generation. A release that arrives before its allocation waits here without
 * `allocated_ms`. Intervals are derived only from these rows and from cluster_moves.
 */
export const usageAllocations = pgTable(
  'usage_allocations',
  {
    source: source(),
    nodeId: text('node_id').notNull(),
    generation: integer('generation').notNull(),
    clusterId: text('cluster_id').notNull(),
    clusterName: text('cluster_name'),
    organizationId: uuid('organization_id'),
    organizationName: text('organization_name'),
    nodeName: text('node_name'),
    hardwareProfile: text('hardware_profile'),
    gpus: integer('gpus'),
    /** Part of its card that each GPU is, in 28ths: a MIG slice is less than a card. */
    gpuShare: smallint('gpu_share').notNull().default(28),
    allocatedMs: ms('allocated_ms'),
    /** When a replica became ready; null for nodes, and for a replica that never did. */
    readyMs: ms('ready_ms'),
    releasedMs: ms('released_ms'),
    releaseEstimated: boolean('release_estimated').notNull().default(false),
    /** A voided allocation has no intervals. Its generation is not used again. */
    voided: boolean('voided').notNull().default(false),
  },
  (table) => [
    primaryKey({ columns: [table.source, table.nodeId, table.generation] }),
    // Does not start with the source: a planner with statistics of a small table would read all rows of a source for
    // each node.
    index('usage_allocations_cluster_idx').on(table.clusterId, table.source, table.releasedMs),
    index('usage_allocations_open_idx')
      .on(table.source, table.nodeId, table.generation)
      .where(sql`${table.releasedMs} is null`),
    check(
      'usage_allocations_complete',
      sql`${table.allocatedMs} is null or (${table.clusterName} is not null and ${table.organizationId} is not null
        and ${table.organizationName} is not null and ${table.nodeName} is not null
        and ${table.hardwareProfile} is not null and ${table.gpus} is not null)`,
    ),
    // Keeps a year of milliseconds times GPUs far below the maximum of a bigint.
    check('usage_allocations_gpus', sql`${table.gpus} between 0 and 100000`),
  ],
);

/** Corrections of wrong allocations, with the times before and after. Rows are never changed. */
export const allocationAmendments = pgTable(
  'allocation_amendments',
  {
    id: uuid('id').primaryKey(),
    nodeId: text('node_id').notNull(),
    generation: integer('generation').notNull(),
    kind: text('kind', { enum: ['amended', 'voided'] }).notNull(),
    reason: text('reason').notNull(),
    amendedMs: ms('amended_ms').notNull(),
    allocatedMsBefore: ms('allocated_ms_before'),
    releasedMsBefore: ms('released_ms_before'),
    estimatedBefore: boolean('estimated_before').notNull(),
    /** The times after the correction; null if the allocation was voided. */
    allocatedMsAfter: ms('allocated_ms_after'),
    releasedMsAfter: ms('released_ms_after'),
    estimatedAfter: boolean('estimated_after').notNull(),
  },
  (table) => [index('allocation_amendments_allocation_idx').on(table.nodeId, table.generation, table.id)],
);

/** Moves of clusters: from `moved_ms` on a cluster belongs to another organization. */
export const clusterMoves = pgTable(
  'cluster_moves',
  {
    clusterId: text('cluster_id').notNull(),
    movedMs: ms('moved_ms').notNull(),
    fromOrganizationId: uuid('from_organization_id').notNull(),
    fromOrganizationName: text('from_organization_name').notNull(),
    toOrganizationId: uuid('to_organization_id').notNull(),
    toOrganizationName: text('to_organization_name').notNull(),
  },
  (table) => [primaryKey({ columns: [table.clusterId, table.movedMs] })],
);

/** Owner and resource of intervals, with their names at that time. Rows are shared by intervals and never changed. */
export const usageSnapshots = pgTable(
  'usage_snapshots',
  {
    id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
    source: source(),
    organizationId: uuid('organization_id').notNull(),
    organizationName: text('organization_name').notNull(),
    clusterId: text('cluster_id').notNull(),
    clusterName: text('cluster_name').notNull(),
    hardwareProfile: text('hardware_profile').notNull(),
  },
  (table) => [
    unique('usage_snapshots_key').on(
      table.organizationId,
      table.clusterId,
      table.source,
      table.hardwareProfile,
      table.clusterName,
      table.organizationName,
    ),
  ],
);

/**
 * Time during which a node was allocated, [started_ms, ended_ms); open while ended_ms is null. One row per allocation,
 * and one more for each move of its cluster meanwhile. The migration adds that no two rows of a node overlap.
 */
export const usageIntervals = pgTable(
  'usage_intervals',
  {
    source: source(),
    nodeId: text('node_id').notNull(),
    generation: integer('generation').notNull(),
    part: smallint('part').notNull(),
    snapshotId: integer('snapshot_id')
      .notNull()
      .references(() => usageSnapshots.id),
    /** 1, or 0 for a replica, which uses GPUs and no node. */
    nodes: smallint('nodes').notNull(),
    gpus: integer('gpus').notNull(),
    gpuShare: smallint('gpu_share').notNull().default(28),
    startedMs: ms('started_ms').notNull(),
    readyMs: ms('ready_ms'),
    endedMs: ms('ended_ms'),
    /** True if the end is inferred, not reported. */
    estimated: boolean('estimated').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.source, table.nodeId, table.generation, table.part] }),
    index('usage_intervals_snapshot_idx').on(table.snapshotId, table.endedMs),
    index('usage_intervals_ended_idx').on(table.endedMs),
    check('usage_intervals_positive', sql`${table.endedMs} is null or ${table.endedMs} > ${table.startedMs}`),
  ],
);

/**
 * Labels of a node with those of its cluster, from `since_ms` on until the next row. They stay when the node is removed.
 */
export const nodeLabels = pgTable(
  'node_labels',
  {
    nodeId: text('node_id').notNull(),
    /** 0 for labels of a new node: they include hours that are reported afterwards. */
    sinceMs: ms('since_ms').notNull(),
    labels: jsonb('labels').$type<Readonly<Record<string, string>>>().notNull(),
  },
  (table) => [primaryKey({ columns: [table.nodeId, table.sinceMs] })],
);

/**
 * Dated prices of an hour. The migration adds that cards of one profile and currency do not overlap, and that ending a
 * row is the only change.
 */
export const rateCards = pgTable(
  'rate_cards',
  {
    id: uuid('id').primaryKey(),
    hardwareProfile: text('hardware_profile').notNull(),
    currency: text('currency').notNull(),
    nodeHour: price('node_hour'),
    gpuHour: price('gpu_hour'),
    effectiveFrom: moment('effective_from').notNull(),
    effectiveTo: moment('effective_to'),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    index('rate_cards_series_idx').on(table.hardwareProfile, table.currency, table.effectiveFrom),
    check('rate_cards_priced', sql`${table.nodeHour} is not null or ${table.gpuHour} is not null`),
    check('rate_cards_not_negative', sql`${table.nodeHour} >= 0 and ${table.gpuHour} >= 0`),
  ],
);

/** The value of one unit of a currency in another, dated like rate cards. */
export const conversionRates = pgTable(
  'conversion_rates',
  {
    id: uuid('id').primaryKey(),
    fromCurrency: text('from_currency').notNull(),
    toCurrency: text('to_currency').notNull(),
    rate: price('rate').notNull(),
    effectiveFrom: moment('effective_from').notNull(),
    effectiveTo: moment('effective_to'),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    index('conversion_rates_series_idx').on(table.fromCurrency, table.toCurrency, table.effectiveFrom),
    check('conversion_rates_positive', sql`${table.rate} > 0 and ${table.fromCurrency} <> ${table.toCurrency}`),
  ],
);

/** The currency in which an organization sees its costs; without a row, the currencies of the rate cards. */
export const billingCurrencies = pgTable('billing_currencies', {
  organizationId: uuid('organization_id').primaryKey(),
  currency: text('currency').notNull(),
  updatedAt: moment('updated_at').notNull(),
});
