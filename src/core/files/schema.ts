import { bigint, customType, index, integer, pgTable, primaryKey, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

export const files = pgTable(
  'files',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The key that it is of; null where a user who is signed in sent it. */
    keyId: uuid('key_id'),
    purpose: text('purpose', { enum: ['batch', 'batch_output'] }).notNull(),
    filename: text('filename').notNull(),
    /** While it is written: what it may come to. */
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /** While it is written: when whoever writes it counts as dead. Null once it is whole. */
    writtenUntil: moment('written_until'),
    /** What reads it keeps it until then, also past its expiry. */
    heldUntil: moment('held_until'),
  },
  (table) => [
    index('files_organization_idx').on(table.organizationId, table.id),
    index('files_expiry_idx').on(table.expiresAt),
  ],
);

/** The bytes of a file, in parts of `chunkBytes` but for the last. */
export const fileChunks = pgTable(
  'file_chunks',
  {
    fileId: uuid('file_id').notNull(),
    number: integer('number').notNull(),
    bytes: bytes('bytes').notNull(),
  },
  (table) => [primaryKey({ columns: [table.fileId, table.number] })],
);
