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

/** Bodies and answers of requests, for keys that enable storing. The request id (UUIDv7) contains the row's age. */
export const requestContents = pgTable('request_contents', {
  requestId: uuid('request_id').primaryKey(),
  organizationId: uuid('organization_id').notNull(),
  keyId: uuid('key_id').notNull(),
  /** Bodies as they were sent, compressed with Zstandard. */
  request: bytes('request').notNull(),
  response: bytes('response').notNull(),
  /** True if the body is longer than its stored part. */
  requestTruncated: boolean('request_truncated').notNull(),
  responseTruncated: boolean('response_truncated').notNull(),
});

/** Requests with an Idempotency-Key: running ones, and the answers of done ones. */
export const idempotencyKeys = pgTable(
  'idempotency_keys',
  {
    keyId: uuid('key_id').notNull(),
    idempotencyKey: text('idempotency_key').notNull(),
    /** SHA-256 over the route and the body. */
    bodyHash: bytes('body_hash').notNull(),
    requestId: uuid('request_id').notNull(),
    /** The gateway process that runs the request. */
    gatewayId: uuid('gateway_id').notNull(),
    state: text('state', { enum: ['running', 'done'] }).notNull(),
    /** For running requests: when the gateway counts as dead; `-infinity` if it is known to be dead. */
    leaseUntil: moment('lease_until').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /**
     * The answer as sent, compressed with Zstandard; null if there was no room for it, and while the request runs.
     * Large answers in batches are the exception: they are stored before they are charged.
     */
    answer: bytes('answer'),
  },
  (table) => [
    primaryKey({ columns: [table.keyId, table.idempotencyKey] }),
    uniqueIndex('idempotency_keys_request_key').on(table.requestId),
    index('idempotency_keys_expiry_idx').on(table.expiresAt),
  ],
);

/** Objects created by requests with an Idempotency-Key. */
export const changeReceipts = pgTable(
  'change_receipts',
  {
    /** Id of a key or a user; text, because the gateway itself has no id. */
    callerId: text('caller_id').notNull(),
    /** SHA-256 of the Idempotency-Key. */
    keyHash: bytes('key_hash').notNull(),
    /**
     * HMAC over method, path, query, project and body, with the Idempotency-Key as secret: bodies may contain
     * passwords.
     */
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
