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
  /** True for the organization created with the database: it runs the platform, and cannot be suspended or closed. */
  platform: boolean('platform').notNull().default(false),
  closedAt: moment('closed_at'),
  /** Limits of new keys; absent fields use the gateway's defaults. */
  defaultLimits: jsonb('default_limits').$type<DefaultLimits>().notNull().default({}),
  /** Most active keys; null uses the gateway's setting. */
  maxActiveKeys: integer('max_active_keys'),
  /** Ids of allowed models; null: all. */
  models: jsonb('models').$type<readonly string[]>(),
  /** Pico-dollars; administrators are notified when the balance falls below. Null: no notification. */
  lowBalance: numeric('low_balance', { precision: 38, scale: 0, mode: 'bigint' }),
  /** Time of the notification; null while the balance is not below, or before the notification. */
  lowBalanceToldAt: moment('low_balance_told_at'),
  /** Kinds of alerts that owners and admins get by email; null: the kinds that are mailed by default. */
  alertEmails: jsonb('alert_emails').$type<readonly string[]>(),
  /** False: only owners and admins apply stacks, and cancel, retry and destroy runs. */
  membersMayApply: boolean('members_may_apply').notNull().default(true),
});

export const users = pgTable(
  'users',
  {
    id: uuid('id').primaryKey(),
    email: text('email').notNull(),
    /** Result of `emailKeyOf`: unique per account, however the address is written. The migration forbids null. */
    emailKey: text('email_key'),
    name: text('name').notNull(),
    /**
     * Null for a user who cannot sign in with a password, such as the owner created with an organization by the API.
     */
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
    /** Name of the group of another program that the project was imported from; null for other projects. */
    importedFrom: text('imported_from'),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    uniqueIndex('projects_organization_name_key').on(table.organizationId, sql`lower(${table.name})`),
    uniqueIndex('projects_imported_from_key').on(table.organizationId, table.importedFrom),
  ],
);

/** Non-human account of a program, in one project. Archiving a project deletes its service accounts. */
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

/** Links with which people set a new password. */
export const resetLinks = pgTable(
  'reset_links',
  {
    id: uuid('id').primaryKey(),
    /** SHA-256 of the token, as for every link here. */
    tokenHash: bytes('token_hash').notNull(),
    userId: uuid('user_id')
      .notNull()
      .references(() => users.id, { onDelete: 'cascade' }),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /** User who created the link for somebody; null if it was requested on the sign-in page. */
    madeBy: uuid('made_by'),
    /** Organization in which the link was created. */
    madeIn: uuid('made_in'),
    /** True if created with a key, which acts as admin whatever the role of its user. */
    byKey: boolean('by_key').notNull().default(false),
    /** Time at which the link was used, or voided by a change of password, address or role, or by a new membership. */
    usedAt: moment('used_at'),
  },
  (table) => [
    uniqueIndex('reset_links_token_hash_key').on(table.tokenHash),
    index('reset_links_user_idx').on(table.userId),
  ],
);

/** Invitations to become a member of an organization. */
export const invitations = pgTable(
  'invitations',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id')
      .notNull()
      .references(() => organizations.id),
    email: text('email').notNull(),
    /** Result of `emailKeyOf`. */
    emailKey: text('email_key').notNull(),
    role: text('role', { enum: ['owner', 'admin', 'member'] }).notNull(),
    tokenHash: bytes('token_hash').notNull(),
    /** User who invited; null if no person did. */
    invitedBy: uuid('invited_by'),
    /** True if created with a key, which acts as admin whatever the role of its user. */
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

/** Accounts that the subjects of OpenID providers sign in to. */
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
