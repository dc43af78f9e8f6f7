import { sql } from 'drizzle-orm';
import {
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
import type { VersionMetadata } from '#core/stacks/package/package.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

/** Packages exactly as uploaded, each stored once, by the SHA-256 of its bytes. */
export const stackPackages = pgTable('stack_packages', {
  sha256: text('sha256').primaryKey(),
  bytes: bytes('bytes').notNull(),
  createdAt: moment('created_at').notNull(),
});

/** The catalog. A deleted stack stays while a version of it is pinned. */
export const stacks = pgTable(
  'stacks',
  {
    id: uuid('id').primaryKey(),
    name: text('name').notNull(),
    visibility: text('visibility', { enum: ['global', 'private'] }).notNull(),
    isBuiltin: boolean('is_builtin').notNull().default(false),
    /** User who created the stack; null for built-in stacks. */
    ownerUserId: uuid('owner_user_id'),
    title: text('title').notNull(),
    description: text('description').notNull(),
    category: text('category'),
    icon: text('icon'),
    currentVersionId: uuid('current_version_id').notNull(),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
    deletedAt: moment('deleted_at'),
  },
  (table) => [
    uniqueIndex('stacks_global_name_key')
      .on(table.name)
      .where(sql`${table.visibility} = 'global' and ${table.deletedAt} is null`),
    uniqueIndex('stacks_private_name_key')
      .on(table.ownerUserId, table.name)
      .where(sql`${table.visibility} = 'private' and ${table.deletedAt} is null`),
    check('stacks_owned', sql`${table.isBuiltin} or ${table.ownerUserId} is not null`),
  ],
);

/** Uploaded versions of stacks, numbered from 1. Package and number never change. */
export const stackVersions = pgTable(
  'stack_versions',
  {
    id: uuid('id').primaryKey(),
    stackId: uuid('stack_id')
      .notNull()
      .references(() => stacks.id),
    number: integer('number').notNull(),
    sha256: text('sha256')
      .notNull()
      .references(() => stackPackages.sha256),
    sizeBytes: integer('size_bytes').notNull(),
    metadata: jsonb('metadata').$type<VersionMetadata>().notNull(),
    /** Number of pins: the version exists at least until there are none. */
    pins: integer('pins').notNull().default(0),
    createdByUserId: uuid('created_by_user_id'),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    uniqueIndex('stack_versions_number_key').on(table.stackId, table.number),
    index('stack_versions_sha256_idx').on(table.sha256),
    check('stack_versions_pins', sql`${table.pins} >= 0`),
  ],
);
