import { customType, index, pgTable, text, timestamp, uniqueIndex, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

export const sessions = pgTable(
  'sessions',
  {
    id: uuid('id').primaryKey(),
    /** SHA-256 of the token; the token itself is only in the browser. */
    tokenHash: bytes('token_hash').notNull(),
    userId: uuid('user_id').notNull(),
    organizationId: uuid('organization_id').notNull(),
    createdAt: moment('created_at').notNull(),
    lastSeenAt: moment('last_seen_at').notNull(),
    /** Absolute end of the session, however much it is used. */
    expiresAt: moment('expires_at').notNull(),
    endedAt: moment('ended_at'),
    /** Client address at sign-in, so that the user recognizes the session in a list. */
    address: text('address').notNull(),
    userAgent: text('user_agent').notNull(),
  },
  (table) => [
    uniqueIndex('sessions_token_hash_key').on(table.tokenHash),
    index('sessions_user_idx').on(table.userId, table.id),
    index('sessions_expires_idx').on(table.expiresAt),
  ],
);

/** Links that each sign a user in once. */
export const signInLinks = pgTable(
  'sign_in_links',
  {
    id: uuid('id').primaryKey(),
    tokenHash: bytes('token_hash').notNull(),
    userId: uuid('user_id').notNull(),
    organizationId: uuid('organization_id').notNull(),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    usedAt: moment('used_at'),
  },
  (table) => [uniqueIndex('sign_in_links_token_hash_key').on(table.tokenHash)],
);
