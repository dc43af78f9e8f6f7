import { customType, integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/**
 * Fingerprints of the platform keys that were ever used; the one with the highest `position` encrypts. No key is in clear:
 * a gateway whose own key has another fingerprint must notice before it encrypts what the others could not read.
 */
export const platformKeys = pgTable('platform_keys', {
  id: text('id').primaryKey(),
  position: integer('position').notNull().unique().generatedAlwaysAsIdentity(),
  /** A copy of the key under HEADGATE_BACKUP_PASSPHRASE, for backups; null without one. */
  sealed: bytes('sealed'),
  createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
});
