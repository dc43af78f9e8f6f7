import { customType, integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/**
 * Fingerprints of all platform keys ever used; the key with the highest `position` encrypts. No key is stored in plain
 * text: a gateway whose key has another fingerprint must notice before it encrypts secrets that the others cannot read.
 */
export const platformKeys = pgTable('platform_keys', {
  id: text('id').primaryKey(),
  position: integer('position').notNull().unique().generatedAlwaysAsIdentity(),
  /** A copy of the key, encrypted with HEADGATE_BACKUP_PASSPHRASE, for backups; null without a passphrase. */
  sealed: bytes('sealed'),
  createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull().defaultNow(),
});
