import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  customType,
  date,
  index,
  integer,
  numeric,
  pgEnum,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';
import { usageSources } from '#core/metering/meters/meters.ts';

const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });
const pico = (name: string) => numeric(name, { precision: 38, scale: 0, mode: 'bigint' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const count = (name: string) => bigint(name, { mode: 'number' }).notNull();
const tokens = (name: string) => integer(name).notNull();

export const usageOutcome = pgEnum('usage_outcome', ['completed', 'aborted', 'ended', 'failed']);
export const usageSource = pgEnum('usage_source', usageSources);

/**
 * Organizations, projects, keys and price versions of usage, each with a code that tables store instead; see codes.ts.
 */
export const usageIds = pgTable('usage_ids', {
  code: integer('code').primaryKey().generatedAlwaysAsIdentity(),
  id: uuid('id').notNull().unique(),
});

/** Models and paths, each with a code. */
export const usageNames = pgTable('usage_names', {
  code: integer('code').primaryKey().generatedAlwaysAsIdentity(),
  name: text('name').notNull().unique(),
});

const code = (name: string) => integer(name).notNull();

/**
 * One row per admitted request. Partitioned by month over the request id (UUIDv7), see partitions.ts. Rows are kept
 * small: codes replace ids and names, the column order leaves no gaps, and the most common value of some columns is
 * stored as null. The view `usage_records` shows full rows to people who read them by hand.
 */
export const usageRequests = pgTable(
  'usage_requests',
  {
    /** Links a charged request to the ledger entry that it shares with others; null if it has its own entry. */
    groupId: bigint('group_id', { mode: 'number' }),
    organization: code('organization'),
    project: code('project'),
    key: code('key'),
    priceVersion: code('price_version'),
    model: code('model'),
    endpoint: code('endpoint'),
    inputTokens: tokens('input_tokens'),
    inputCachedTokens: tokens('input_cached_tokens'),
    outputTokens: tokens('output_tokens'),
    outputReasoningTokens: tokens('output_reasoning_tokens'),
    queuedMs: integer('queued_ms').notNull(),
    firstByteMs: integer('first_byte_ms'),
    totalMs: integer('total_ms').notNull(),
    outcome: usageOutcome('outcome').notNull(),
    usageSource: usageSource('usage_source').notNull(),
    status: smallint('status').notNull(),
    stream: boolean('stream').notNull(),
    cacheHit: boolean('cache_hit').notNull(),
    id: uuid('id').notNull(),
    /** Amount charged; cost and writtenOff together are tokens × price. */
    cost: pico('cost').notNull(),
    /** Null for nothing. */
    writtenOff: pico('written_off'),
    /** Null for USD. */
    currency: text('currency'),
    /** Null for `default`. */
    serviceTier: text('service_tier', { enum: ['default', 'flex'] }),
    reason: text('reason'),
    clientRequestId: text('client_request_id'),
    /** Packed as in facts.ts; null for requests older than these facts. */
    facts: bytes('facts'),
    /** Number of answers requested per prompt, for each of which an engine counts the prompt; null for one. */
    choices: smallint('choices'),
    /** The requested model, if another one answered instead; null if `model` was requested. */
    fallbackFor: integer('fallback_for'),
    /**
     * Most tokens that engines may have counted, if the count is unknown; null if it is known, and for older requests.
     */
    promptTokensMax: bigint('prompt_tokens_max', { mode: 'number' }),
    completionTokensMax: bigint('completion_tokens_max', { mode: 'number' }),
    /** Null for 0, and for older requests. */
    inputCacheWriteTokens: integer('input_cache_write_tokens'),
    /** The end user as the request names them; null if it names none, and for older requests. */
    endUser: text('end_user'),
  },
  (table) => [
    primaryKey({ columns: [table.organization, table.id] }),
    index('usage_requests_key_idx').on(table.key, table.id),
    index('usage_requests_group_idx')
      .on(table.groupId)
      .where(sql`${table.groupId} is not null`),
    index('usage_requests_user_idx')
      .on(table.organization, table.endUser, table.id)
      .where(sql`${table.endUser} is not null`),
  ],
);

const requestCount = (name: string) => integer(name).notNull();

const sums = {
  requests: requestCount('requests'),
  completed: requestCount('completed'),
  aborted: requestCount('aborted'),
  ended: requestCount('ended'),
  failed: requestCount('failed'),
  cacheHits: requestCount('cache_hits'),
  inputTokens: count('input_tokens'),
  inputCachedTokens: count('input_cached_tokens'),
  outputTokens: count('output_tokens'),
  outputReasoningTokens: count('output_reasoning_tokens'),
  cost: pico('cost').notNull(),
};

const owner = {
  organization: code('organization'),
  key: code('key'),
  project: code('project'),
  model: code('model'),
};

/** Sums per UTC hour, written by the statement that writes the records. */
export const usageHourly = pgTable('usage_hourly', { ...owner, hour: moment('hour').notNull(), ...sums }, (table) => [
  primaryKey({ columns: [table.organization, table.hour, table.key, table.project, table.model] }),
]);

/** Sums per UTC day. */
export const usageDaily = pgTable('usage_daily', { ...owner, day: date('day').notNull(), ...sums }, (table) => [
  primaryKey({ columns: [table.organization, table.day, table.key, table.project, table.model] }),
]);

/**
 * Histograms of streamed responses per UTC hour: number of requests by measure and bucket, see latency-buckets.ts.
 * Written by the statement that writes the records, and kept for 90 days.
 */
export const usageLatency = pgTable(
  'usage_latency',
  {
    ...owner,
    hour: moment('hour').notNull(),
    /** 1: time to the first token, 2: tokens per second, 3: wait for capacity. */
    measure: smallint('measure').notNull(),
    bucket: smallint('bucket').notNull(),
    requests: requestCount('requests'),
  },
  (table) => [
    primaryKey({
      columns: [table.organization, table.hour, table.key, table.project, table.model, table.measure, table.bucket],
    }),
    index('usage_latency_hour_idx').using('brin', table.hour),
  ],
);

/** Spending of end users per UTC day, only for those that have a budget. */
export const usageUsers = pgTable(
  'usage_users',
  {
    organization: code('organization'),
    day: date('day').notNull(),
    /** The end user as requests name them. */
    endUser: text('end_user').notNull(),
    cost: pico('cost').notNull(),
  },
  (table) => [primaryKey({ columns: [table.organization, table.endUser, table.day] })],
);

/** The same per model, for budgets of some models. */
export const usageUserModels = pgTable(
  'usage_user_models',
  {
    organization: code('organization'),
    model: code('model'),
    day: date('day').notNull(),
    endUser: text('end_user').notNull(),
    cost: pico('cost').notNull(),
  },
  (table) => [primaryKey({ columns: [table.organization, table.endUser, table.day, table.model] })],
);

/** Refusals per minute, so that a rejected client cannot fill a disk. */
export const usageRefusals = pgTable(
  'usage_refusals',
  {
    organizationId: uuid('organization_id').notNull(),
    minute: moment('minute').notNull(),
    keyId: uuid('key_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The catalog id, or '' if the request was rejected before its model was known. */
    model: text('model').notNull(),
    code: text('code').notNull(),
    count: count('count'),
  },
  (table) => [
    primaryKey({
      columns: [table.organizationId, table.minute, table.keyId, table.projectId, table.model, table.code],
    }),
  ],
);

/**
 * The first rejected requests of each minute and organization, each with the error that its client got. The id (UUIDv7)
 * contains the row's age.
 */
export const rejectedRequests = pgTable(
  'rejected_requests',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    keyId: uuid('key_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The catalog id, or '' if the request was rejected before its model was known. */
    model: text('model').notNull(),
    endpoint: text('endpoint').notNull(),
    status: smallint('status').notNull(),
    code: text('code').notNull(),
    param: text('param'),
    message: text('message').notNull(),
    clientRequestId: text('client_request_id'),
    /** The end user as the request names them; null if it names none, or was rejected before it was read. */
    endUser: text('end_user'),
  },
  (table) => [index('rejected_requests_organization_idx').on(table.organizationId, table.id)],
);

/**
 * Records that Postgres rejected individually: kept for an operator, in no sum. A discarded record stays, since a copy
 * may be on some gateway's disk: it must never be recorded.
 */
export const usageQuarantine = pgTable('usage_quarantine', {
  id: uuid('id').primaryKey(),
  organizationId: uuid('organization_id'),
  record: text('record').notNull(),
  error: text('error').notNull(),
  sqlState: text('sql_state'),
  createdAt: moment('created_at').notNull(),
  /** Null while it waits for an operator. */
  discardedAt: moment('discarded_at'),
});
