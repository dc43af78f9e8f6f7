import { integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/** Good backups of this database: each row is inserted after its backup was written and verified by reading. */
export const backups = pgTable('backups', {
  id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
  /** A file name, or the name that the operator's own tool uses. */
  name: text('name').notNull(),
  /** The moment whose data the backup contains. */
  madeAt: timestamp('made_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
});
