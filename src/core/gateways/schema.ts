import { boolean, pgTable, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** Every gateway that runs on this database, by the database's clock. */
export const gateways = pgTable('gateways', {
  id: uuid('id').primaryKey(),
  /** The data folder that it has for itself: a row with the same one is of a gateway that is gone. */
  placeId: uuid('place_id').notNull(),
  startedAt: moment('started_at').notNull(),
  lastSeenAt: moment('last_seen_at').notNull(),
  /** Whether it shares its limits with others through Redis. */
  shares: boolean('shares').notNull(),
});
