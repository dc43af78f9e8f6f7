import { integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/**
 * Fingerprints of the platform keys that were ever used; the one with the highest `position` encrypts. No key is in here:
 * a gateway whose own key has another fingerprint must notice before it encrypts what the others could not read.
 */
export const platformKeys = pgTable('platform_keys', {
  id: text('id').primaryKey(),
  position: integer('position').notNull().unique().generatedAlwaysAsIdentity(),
  createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
});
