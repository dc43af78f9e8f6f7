import {
  boolean,
  customType,
  index,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

/** What was asked and answered, for keys that want it kept. The request id (UUIDv7) says how old a row is. */
export const requestContents = pgTable('request_contents', {
  requestId: uuid('request_id').primaryKey(),
  organizationId: uuid('organization_id').notNull(),
  keyId: uuid('key_id').notNull(),
  /** Bodies as they were sent, compressed with Zstandard. */
  request: bytes('request').notNull(),
  response: bytes('response').notNull(),
  /** A body is longer than what was kept of it. */
  requestTruncated: boolean('request_truncated').notNull(),
  responseTruncated: boolean('response_truncated').notNull(),
});

/** Requests that carried an Idempotency-Key: those that run, and the answers of those that are done. */
export const idempotencyKeys = pgTable(
  'idempotency_keys',
  {
    keyId: uuid('key_id').notNull(),
    idempotencyKey: text('idempotency_key').notNull(),
    /** SHA-256 over the route and the body. */
    bodyHash: bytes('body_hash').notNull(),
    requestId: uuid('request_id').notNull(),
    /** The gateway process that runs it. */
    gatewayId: uuid('gateway_id').notNull(),
    state: text('state', { enum: ['running', 'done'] }).notNull(),
    /** While it runs: when its gateway counts as dead; `-infinity` where it is known to be. */
    leaseUntil: moment('lease_until').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /**
     * The answer as it was sent, compressed with Zstandard; null where there was no room for it, and while it runs, but
     * for a large one of a batch, which is kept before it is charged.
     */
    answer: bytes('answer'),
  },
  (table) => [
    primaryKey({ columns: [table.keyId, table.idempotencyKey] }),
    uniqueIndex('idempotency_keys_request_key').on(table.requestId),
    index('idempotency_keys_expiry_idx').on(table.expiresAt),
  ],
);

/** What requests that carried an Idempotency-Key have created. */
export const changeReceipts = pgTable(
  'change_receipts',
  {
    /** A key or a user; text, since the gateway itself has no id. */
    callerId: text('caller_id').notNull(),
    /** SHA-256 of the Idempotency-Key. */
    keyHash: bytes('key_hash').notNull(),
    /** HMAC over method, path, query, project and body, by the Idempotency-Key: bodies may hold passwords. */
    requestHash: bytes('request_hash').notNull(),
    requestId: uuid('request_id').notNull(),
    targetId: text('target_id').notNull(),
    expiresAt: moment('expires_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.callerId, table.keyHash] }),
    index('change_receipts_expiry_idx').on(table.expiresAt),
  ],
);
