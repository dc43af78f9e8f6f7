import { bigint, customType, index, integer, pgTable, primaryKey, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

export const files = pgTable(
  'files',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The key that the file belongs to; null if a signed-in user sent the file. */
    keyId: uuid('key_id'),
    purpose: text('purpose', { enum: ['batch', 'batch_output'] }).notNull(),
    filename: text('filename').notNull(),
    /** Size in bytes; while the file is written, its maximum. */
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    createdAt: moment('created_at').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /** Time at which the writer counts as dead; null for a complete file. */
    writtenUntil: moment('written_until'),
    /** Time until which a reader keeps the file, even past its expiry. */
    heldUntil: moment('held_until'),
  },
  (table) => [
    index('files_organization_idx').on(table.organizationId, table.id),
    index('files_expiry_idx').on(table.expiresAt),
  ],
);

/** The bytes of a file, in chunks of `chunkBytes`; the last may be shorter. */
export const fileChunks = pgTable(
  'file_chunks',
  {
    fileId: uuid('file_id').notNull(),
    number: integer('number').notNull(),
    bytes: bytes('bytes').notNull(),
  },
  (table) => [primaryKey({ columns: [table.fileId, table.number] })],
);
