import {
  boolean,
  customType,
  index,
  integer,
  jsonb,
  numeric,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';
import { sql } from 'drizzle-orm';
import type { DefaultLimits } from './organization-limits.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

export const organizations = pgTable('organizations', {
  id: uuid('id').primaryKey(),
  name: text('name').notNull(),
  createdAt: moment('created_at').notNull(),
  status: text('status', { enum: ['active', 'suspended', 'closed'] })
    .notNull()
    .default('active'),
  /** The one that was made with the database: it runs the platform, and can be neither suspended nor closed. */
  platform: boolean('platform').notNull().default(false),
  closedAt: moment('closed_at'),
  /** Limits of its new keys; what is absent is as for every new key. */
  defaultLimits: jsonb('default_limits').$type<DefaultLimits>().notNull().default({}),
  /** Null: as many as the gateway's setting allows. */
  maxActiveKeys: integer('max_active_keys'),
  /** Ids of models; null: all. */
  models: jsonb('models').$type<readonly string[]>(),
  /** Pico-dollars; those who administer it are told once its balance is below. Null: nobody is. */
  lowBalance: numeric('low_balance', { precision: 38, scale: 0, mode: 'bigint' }),
  /** Null while its balance is not below, or nobody was told yet. */
  lowBalanceToldAt: moment('low_balance_told_at'),
  /** Kinds of alerts that owners and admins get by mail; null: those that go by mail where nobody has chosen. */
  alertEmails: jsonb('alert_emails').$type<readonly string[]>(),
});

export const users = pgTable(
  'users',
  {
    id: uuid('id').primaryKey(),
    email: text('email').notNull(),
    /** Of `emailKeyOf`: one account has an address, however it is written. The migration forbids null. */
    emailKey: text('email_key'),
    name: text('name').notNull(),
    /** Null for a user who has no way to sign in, such as the owner made with an organization by the API. */
    passwordHash: text('password_hash'),
    platformRole: text('platform_role', { enum: ['admin', 'user'] }).notNull(),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [uniqueIndex('users_email_key_unique').on(table.emailKey)],
);

export const memberships = pgTable(
  'memberships',
  {
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id),
    role: text('role', { enum: ['owner', 'admin', 'member'] }).notNull(),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.userId] }),
    index('memberships_user_idx').on(table.userId),
  ],
);

export const projects = pgTable(
  'projects',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    name: text('name').notNull(),
    description: text('description').notNull().default(''),
    visibility: text('visibility', { enum: ['private', 'public'] }).notNull(),
    archived: boolean('archived').notNull().default(false),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [uniqueIndex('projects_organization_name_key').on(table.organizationId, sql`lower(${table.name})`)],
);

/** Who acts for a program, in one project. None is of an archived project: it ends with its archiving. */
export const serviceAccounts = pgTable(
  'service_accounts',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    projectId: uuid('project_id')
      .notNull()
      .references(() => projects.id),
    name: text('name').notNull(),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    uniqueIndex('service_accounts_project_name_key').on(table.projectId, sql`lower(${table.name})`),
    index('service_accounts_organization_idx').on(table.organizationId, table.id),
  ],
);

/** Links by which a person sets a new password. */
export const resetLinks = pgTable(
  'reset_links',
  {
    id: uuid('id').primaryKey(),
    /** SHA-256 of the token, as of every link here. */
    tokenHash: bytes('token_hash').notNull(),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /** The user who made it for somebody; null where it was asked for at the sign-in. */
    madeBy: uuid('made_by'),
    /** In which organization. */
    madeIn: uuid('made_in'),
    /** By a key, which acts as admin whatever the role of its user. */
    byKey: boolean('by_key').notNull().default(false),
    /** Or made void: by a change of password, address or role, or by a membership. */
    usedAt: moment('used_at'),
  },
  (table) => [
    uniqueIndex('reset_links_token_hash_key').on(table.tokenHash),
    index('reset_links_user_idx').on(table.userId),
  ],
);

/** Who is asked to become a member of an organization. */
export const invitations = pgTable(
  'invitations',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    email: text('email').notNull(),
    /** Of `emailKeyOf`. */
    emailKey: text('email_key').notNull(),
    role: text('role', { enum: ['owner', 'admin', 'member'] }).notNull(),
    tokenHash: bytes('token_hash').notNull(),
    /** Null: nobody in person. */
    invitedBy: uuid('invited_by'),
    /** By a key, which acts as admin whatever the role of its user. */
    byKey: boolean('by_key').notNull().default(false),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    acceptedAt: moment('accepted_at'),
    revokedAt: moment('revoked_at'),
  },
  (table) => [
    uniqueIndex('invitations_token_hash_key').on(table.tokenHash),
    index('invitations_organization_idx').on(table.organizationId, table.id),
  ],
);

/** Whom an OpenID provider means by a subject. */
export const userIdentities = pgTable(
  'user_identities',
  {
    issuer: text('issuer').notNull(),
    subject: text('subject').notNull(),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.issuer, table.subject] }),
    index('user_identities_user_idx').on(table.userId),
  ],
);
