import {
  bigint,
  boolean,
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
import { sql } from 'drizzle-orm';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

export const apiKeys = pgTable(
  'api_keys',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The user who made it and whom it acts for; null for a key of a service account. */
    userId: uuid('user_id'),
    /** The service account that it acts for. */
    serviceAccountId: uuid('service_account_id'),
    name: text('name').notNull(),
    /** What may be shown of the secret: its beginning and its last four characters. */
    prefix: text('prefix').notNull(),
    last4: text('last4').notNull(),
    /** SHA-256 of the secret; the secret itself is kept nowhere. */
    secretHash: bytes('secret_hash').notNull(),
    /** When it got that secret, where it is not its first. */
    rotatedAt: moment('rotated_at'),
    /** When the last of those before ends. */
    formerSecretsEndAt: moment('former_secrets_end_at'),
    /** Taken over from the configuration: it has no checksum of ours. */
    imported: boolean('imported').notNull().default(false),
    /** The gateway's own, for its user: its secret is kept nowhere. */
    held: boolean('held').notNull().default(false),
    scope: text('scope', { enum: ['inference', 'management'] }).notNull(),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at'),
    /** Of which expiry somebody was told; null: of none. */
    expiryToldAt: moment('expiry_told_at'),
    lastUsedAt: moment('last_used_at'),
    revokedAt: moment('revoked_at'),
    requestsPerMinute: integer('requests_per_minute'),
    maxConcurrency: integer('max_concurrency'),
    tokensPerMinute: bigint('tokens_per_minute', { mode: 'number' }),
    monthlyTokenLimit: bigint('monthly_token_limit', { mode: 'number' }),
    storeRequests: boolean('store_requests').notNull().default(false),
    cacheResponses: boolean('cache_responses').notNull().default(false),
    /** Whether it is used for its own project only; null: while that project has a hard budget. */
    confined: boolean('confined'),
    /** Ids of models; null: all of its organization. */
    models: jsonb('models').$type<readonly string[]>(),
  },
  (table) => [
    uniqueIndex('api_keys_secret_hash_key').on(table.secretHash),
    index('api_keys_organization_idx').on(table.organizationId, table.id),
    index('api_keys_expiring_idx')
      .on(table.expiresAt)
      .where(sql`${table.revokedAt} is null and ${table.expiresAt} is distinct from ${table.expiryToldAt}`),
    check('api_keys_acts_for_one', sql`(${table.userId} is null) <> (${table.serviceAccountId} is null)`),
    check('api_keys_service_accounts_infer', sql`${table.serviceAccountId} is null or ${table.scope} = 'inference'`),
  ],
);

/** Secrets that keys had before; one works until its end. */
export const formerSecrets = pgTable(
  'api_key_former_secrets',
  {
    /** SHA-256 of the secret. */
    secretHash: bytes('secret_hash').primaryKey(),
    keyId: uuid('key_id').notNull(),
    endsAt: moment('ends_at').notNull(),
    /** When it was ended for good, by a report or a rotation without grace: what runs with it ends, too. */
    revokedAt: moment('revoked_at'),
  },
  (table) => [index('api_key_former_secrets_key_idx').on(table.keyId)],
);
