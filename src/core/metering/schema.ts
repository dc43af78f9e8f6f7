import {
  bigint,
  boolean,
  index,
  integer,
  numeric,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';

const pico = (name: string) => numeric(name, { precision: 38, scale: 0, mode: 'bigint' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const count = (name: string) => bigint(name, { mode: 'number' }).notNull();

/** One row per admitted request. Partitioned by month over the request id (UUIDv7), see the migration `usage`. */
export const usageRecords = pgTable(
  'usage_records',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    keyId: uuid('key_id').notNull(),
    model: text('model').notNull(),
    endpoint: text('endpoint').notNull(),
    stream: boolean('stream').notNull(),
    serviceTier: text('service_tier', { enum: ['default', 'flex'] })
      .notNull()
      .default('default'),
    status: integer('status').notNull(),
    outcome: text('outcome', { enum: ['completed', 'aborted', 'ended', 'failed'] }).notNull(),
    reason: text('reason'),
    cacheHit: boolean('cache_hit').notNull(),
    inputTokens: count('input_tokens'),
    inputCachedTokens: count('input_cached_tokens'),
    outputTokens: count('output_tokens'),
    outputReasoningTokens: count('output_reasoning_tokens'),
    usageSource: text('usage_source', { enum: ['engine', 'last_seen', 'none'] }).notNull(),
    /** What was charged; cost and writtenOff together are tokens × price. */
    cost: pico('cost').notNull(),
    writtenOff: pico('written_off').notNull(),
    currency: text('currency').notNull(),
    priceVersionId: uuid('price_version_id').notNull(),
    queuedMs: integer('queued_ms').notNull(),
    firstByteMs: integer('first_byte_ms'),
    totalMs: integer('total_ms').notNull(),
    clientRequestId: text('client_request_id'),
  },
  (table) => [index('usage_records_organization_idx').on(table.organizationId, table.id)],
);

/** Sums per UTC hour, written by the transaction that writes the records. */
export const usageHourly = pgTable(
  'usage_hourly',
  {
    organizationId: uuid('organization_id').notNull(),
    hour: moment('hour').notNull(),
    keyId: uuid('key_id').notNull(),
    projectId: uuid('project_id').notNull(),
    model: text('model').notNull(),
    requests: count('requests'),
    completed: count('completed'),
    aborted: count('aborted'),
    ended: count('ended'),
    failed: count('failed'),
    cacheHits: count('cache_hits'),
    inputTokens: count('input_tokens'),
    inputCachedTokens: count('input_cached_tokens'),
    outputTokens: count('output_tokens'),
    outputReasoningTokens: count('output_reasoning_tokens'),
    cost: pico('cost').notNull(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.hour, table.keyId, table.projectId, table.model] })],
);

/** Refusals per minute, so that a refused client cannot fill a disk. */
export const usageRefusals = pgTable(
  'usage_refusals',
  {
    organizationId: uuid('organization_id').notNull(),
    minute: moment('minute').notNull(),
    keyId: uuid('key_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The catalog id, or '' where the refusal came before a model was known. */
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

/** Records that Postgres refused alone: kept for an operator, in no sum. */
export const usageQuarantine = pgTable('usage_quarantine', {
  id: uuid('id').primaryKey(),
  organizationId: uuid('organization_id'),
  record: text('record').notNull(),
  error: text('error').notNull(),
  sqlState: text('sql_state'),
  createdAt: moment('created_at').notNull(),
});
