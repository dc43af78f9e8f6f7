import { sql } from 'drizzle-orm';
import {
  bigint,
  index,
  integer,
  json,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

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

const counter = (name: string) => bigint(name, { mode: 'number' });
const mayBe = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/**
 * Every run of a replica: from when it is there, or its counters begin anew, to when it is gone. Counters are vLLM's
 * own, null for an engine that has none.
 */
export const replicaRuns = pgTable(
  'replica_runs',
  {
    id: uuid('id').primaryKey(),
    /** Whose leader writes it. */
    scope: text('scope').notNull(),
    /** Catalog id. */
    model: text('model').notNull(),
    replica: text('replica').notNull(),
    driver: text('driver').notNull(),
    host: text('host').notNull(),
    gpus: jsonb('gpus').notNull(),
    specHash: text('spec_hash').notNull(),
    image: text('image'),
    startedAt: moment('started_at'),
    /** Since when it has its GPUs, where that is before `started_at`: of one that was found, by its own word. */
    heldAt: mayBe('held_at'),
    readyAt: mayBe('ready_at'),
    endedAt: mayBe('ended_at'),
    /** `clean`: its counters were read after its last request. */
    ended: text('ended', { enum: ['clean', 'unclean'] }),
    endReason: text('end_reason'),
    exitCode: integer('exit_code'),
    /** What the counters said before its first request of ours. */
    promptTokensFirst: counter('prompt_tokens_first'),
    generationTokensFirst: counter('generation_tokens_first'),
    requestsFirst: counter('requests_first'),
    promptTokensLast: counter('prompt_tokens_last'),
    generationTokensLast: counter('generation_tokens_last'),
    requestsLast: counter('requests_last'),
    scrapedAt: mayBe('scraped_at'),
    /** When the engine's process began by its own word, in seconds since the Unix epoch. */
    processStartedAt: text('process_started_at'),
  },
  (table) => [
    uniqueIndex('replica_runs_open_key')
      .on(table.scope, table.replica)
      .where(sql`${table.endedAt} is null`),
    index('replica_runs_ended_idx').on(table.endedAt),
  ],
);

/** An engine's counters as they were when they were read last in an hour. */
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
    /** Those of which the engine did not say what it had counted in the end. */
    uncounted: counter('uncounted').notNull(),
    /** What it may have counted of those, all together; null where that has no bound, and of older ones. */
    uncountedPromptTokens: counter('uncounted_prompt_tokens'),
    uncountedCompletionTokens: counter('uncounted_completion_tokens'),
    promptTokens: counter('prompt_tokens').notNull(),
    completionTokens: counter('completion_tokens').notNull(),
    /** When the last of them ended. */
    lastAt: moment('last_at'),
  },
  (table) => [primaryKey({ columns: [table.hour, table.model, table.replica, table.kind] })],
);
