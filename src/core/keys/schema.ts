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
    /** User who created the key and whom it acts for; null for a key of a service account. */
    userId: uuid('user_id'),
    /** Service account that the key acts for; null for a key of a user. */
    serviceAccountId: uuid('service_account_id'),
    name: text('name').notNull(),
    /** Shown parts of the secret: its start and its last four characters. */
    prefix: text('prefix').notNull(),
    last4: text('last4').notNull(),
    /** SHA-256 of the secret; the secret itself is not stored. */
    secretHash: bytes('secret_hash').notNull(),
    /** Time of the last rotation; null if the key still has its first secret. */
    rotatedAt: moment('rotated_at'),
    /** Time at which the key's last former secret ends. */
    formerSecretsEndAt: moment('former_secrets_end_at'),
    /** True if the secret comes from the configuration and has no checksum. */
    imported: boolean('imported').notNull().default(false),
    /** SHA-256 of the first secret, which another program made; null for other keys. A rotation leaves it unchanged. */
    importedHash: bytes('imported_hash'),
    /** True if the gateway itself uses the key for the key's user; its secret is not stored. */
    held: boolean('held').notNull().default(false),
    scope: text('scope', { enum: ['inference', 'management'] }).notNull(),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at'),
    /** Expiry time that a notification was sent for; null: none was sent. */
    expiryToldAt: moment('expiry_told_at'),
    lastUsedAt: moment('last_used_at'),
    revokedAt: moment('revoked_at'),
    requestsPerMinute: integer('requests_per_minute'),
    maxConcurrency: integer('max_concurrency'),
    tokensPerMinute: bigint('tokens_per_minute', { mode: 'number' }),
    monthlyTokenLimit: bigint('monthly_token_limit', { mode: 'number' }),
    storeRequests: boolean('store_requests').notNull().default(false),
    cacheResponses: boolean('cache_responses').notNull().default(false),
    /** Reaction to tools that an engine does not serve. Null: as the engine's file says. */
    unservedTools: text('unserved_tools', { enum: ['reject', 'drop'] }),
    /** True if requests name their end user in a header. */
    endUserFromHeader: boolean('end_user_from_header').notNull().default(false),
    /** True if the key works in its own project only. Null: only while the project has a hard budget. */
    confined: boolean('confined'),
    /** Ids of allowed models; null allows all models of the organization. */
    models: jsonb('models').$type<readonly string[]>(),
  },
  (table) => [
    uniqueIndex('api_keys_secret_hash_key').on(table.secretHash),
    uniqueIndex('api_keys_imported_hash_key').on(table.importedHash),
    index('api_keys_organization_idx').on(table.organizationId, table.id),
    index('api_keys_expiring_idx')
      .on(table.expiresAt)
      .where(sql`${table.revokedAt} is null and ${table.expiresAt} is distinct from ${table.expiryToldAt}`),
    check('api_keys_acts_for_one', sql`(${table.userId} is null) <> (${table.serviceAccountId} is null)`),
    check('api_keys_service_accounts_infer', sql`${table.serviceAccountId} is null or ${table.scope} = 'inference'`),
  ],
);

/** Secrets that keys had before a rotation, each valid until its end. */
export const formerSecrets = pgTable(
  'api_key_former_secrets',
  {
    /** SHA-256 of the secret. */
    secretHash: bytes('secret_hash').primaryKey(),
    keyId: uuid('key_id').notNull(),
    endsAt: moment('ends_at').notNull(),
    /**
     * Time at which a report or a rotation without grace ended the secret permanently; its running requests end too.
     */
    revokedAt: moment('revoked_at'),
  },
  (table) => [index('api_key_former_secrets_key_idx').on(table.keyId)],
);
