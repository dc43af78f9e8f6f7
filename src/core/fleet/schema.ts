import { sql } from 'drizzle-orm';
import {
  bigint,
  index,
  integer,
  json,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' }).notNull();
const count = (name: string) => bigint(name, { mode: 'bigint' }).notNull();

/** The leader of each scope: one gateway at a time. All moments are of the database's clock. */
export const fleetLeases = pgTable('fleet_leases', {
  scope: text('scope').primaryKey(),
  gatewayId: uuid('gateway_id').notNull(),
  /** Grows whenever the lease is taken, and never falls: the row of a returned lease stays. */
  epoch: count('epoch'),
  expiresAt: moment('expires_at'),
});

/** The published state of a scope's engines. */
export const fleetPublished = pgTable('fleet_published', {
  scope: text('scope').primaryKey(),
  version: count('version'),
  /** Epoch of the leader that wrote the row; no older epoch can overwrite it. */
  epoch: count('epoch'),
  engines: jsonb('engines').notNull(),
});

/** Each gateway's demand for the engines of a scope. */
export const fleetDemands = pgTable(
  'fleet_demands',
  {
    scope: text('scope').notNull(),
    gatewayId: uuid('gateway_id').notNull(),
    seenVersion: count('seen_version'),
    /** Requests that wait at the gateway, over all engines. */
    waiting: integer('waiting').notNull(),
    engines: jsonb('engines').notNull(),
    updatedAt: moment('updated_at'),
  },
  (table) => [primaryKey({ columns: [table.scope, table.gatewayId] })],
);

/** Operators' commands that no leader has taken yet. */
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

/** The newest definition of each engine that passed its checks, started while a newer file is rejected. */
export const fleetGoodSpecs = pgTable(
  'fleet_good_specs',
  {
    scope: text('scope').notNull(),
    engineId: text('engine_id').notNull(),
    specHash: text('spec_hash').notNull(),
    /** Not jsonb: the hash depends on the order of keys, and jsonb keeps neither the order nor every text. */
    definition: json('definition').notNull(),
    /** Grows with every write; a write names the revision that it follows. */
    revision: count('revision'),
    updatedAt: moment('updated_at'),
  },
  (table) => [primaryKey({ columns: [table.scope, table.engineId] })],
);

/** Secrets that all gateways of a database share, by purpose. */
export const fleetSecrets = pgTable('fleet_secrets', {
  purpose: text('purpose').primaryKey(),
  secret: text('secret').notNull(),
});

const counter = (name: string) => bigint(name, { mode: 'number' });
const mayBe = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/**
 * Runs of replicas: from when a replica exists, or its counters restart, until it has ended. Counters are vLLM's own;
 * null for an engine without counters.
 */
export const replicaRuns = pgTable(
  'replica_runs',
  {
    id: uuid('id').primaryKey(),
    /** The scope whose leader writes the run. */
    scope: text('scope').notNull(),
    /** Catalog id. */
    model: text('model').notNull(),
    replica: text('replica').notNull(),
    driver: text('driver').notNull(),
    host: text('host').notNull(),
    gpus: jsonb('gpus').notNull(),
    /** Part of its card that each GPU is, in 28ths: a MIG slice is less than a card. */
    gpuShare: smallint('gpu_share').notNull().default(28),
    specHash: text('spec_hash').notNull(),
    image: text('image'),
    startedAt: moment('started_at'),
    /**
     * When the run got its GPUs, if before `started_at`: for a replica that was found running, as its process reports.
     */
    heldAt: mayBe('held_at'),
    readyAt: mayBe('ready_at'),
    endedAt: mayBe('ended_at'),
    /** `clean`: the counters were read after the last request. */
    ended: text('ended', { enum: ['clean', 'unclean'] }),
    endReason: text('end_reason'),
    exitCode: integer('exit_code'),
    /** The counters before the run's first request of ours. */
    promptTokensFirst: counter('prompt_tokens_first'),
    generationTokensFirst: counter('generation_tokens_first'),
    requestsFirst: counter('requests_first'),
    promptTokensLast: counter('prompt_tokens_last'),
    generationTokensLast: counter('generation_tokens_last'),
    requestsLast: counter('requests_last'),
    scrapedAt: mayBe('scraped_at'),
    /** Start of the engine's process as the engine reports it, in seconds since the Unix epoch. */
    processStartedAt: text('process_started_at'),
  },
  (table) => [
    uniqueIndex('replica_runs_open_key')
      .on(table.scope, table.replica)
      .where(sql`${table.endedAt} is null`),
    index('replica_runs_ended_idx').on(table.endedAt),
  ],
);

/** The counters of an engine at the last reading of an hour. */
export const replicaHours = pgTable(
  'replica_hours',
  {
    runId: uuid('run_id').notNull(),
    hour: moment('hour'),
    promptTokens: counter('prompt_tokens').notNull(),
    generationTokens: counter('generation_tokens').notNull(),
    requests: counter('requests').notNull(),
    scrapedAt: moment('scraped_at'),
  },
  (table) => [primaryKey({ columns: [table.runId, table.hour] }), index('replica_hours_hour_idx').on(table.hour)],
);

/** Requests that an engine counted and no organization is billed for, by the hour in which they began. */
export const engineRequests = pgTable(
  'engine_requests',
  {
    model: text('model').notNull(),
    replica: text('replica').notNull(),
    hour: moment('hour'),
    kind: text('kind', { enum: ['canary', 'probe', 'retry', 'undelivered'] }).notNull(),
    requests: counter('requests').notNull(),
    /** Requests for which the engine did not report its final count. */
    uncounted: counter('uncounted').notNull(),
    /** The most tokens that these requests may have used together; null if there is no bound, and for older rows. */
    uncountedPromptTokens: counter('uncounted_prompt_tokens'),
    uncountedCompletionTokens: counter('uncounted_completion_tokens'),
    promptTokens: counter('prompt_tokens').notNull(),
    completionTokens: counter('completion_tokens').notNull(),
    /** When the last of these requests ended. */
    lastAt: moment('last_at'),
  },
  (table) => [primaryKey({ columns: [table.hour, table.model, table.replica, table.kind] })],
);
