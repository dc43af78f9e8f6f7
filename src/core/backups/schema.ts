import { integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/** Good backups of this database: each row is inserted after its backup was written and read again. */
export const backups = pgTable('backups', {
  id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
  /** A file name, or what the operator's own tool calls it. */
  name: text('name').notNull(),
  /** The moment whose data the backup holds. */
  madeAt: timestamp('made_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
});
