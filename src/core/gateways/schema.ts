import { sql } from 'drizzle-orm';
import { bigint, boolean, index, integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import type { Published } from './published.ts';
import type { CountedMost } from './under-way.ts';

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
  /** What it must have in common with the others; null of a version that publishes nothing. */
  published: jsonb('published').$type<Published>(),
});

/** Every run of a gateway, for ever: one that ended uncleanly may have had requests that no book knows. */
export const gatewayRuns = pgTable(
  'gateway_runs',
  {
    /** That of the gateway among the others: each start makes a new one. */
    id: uuid('id').primaryKey(),
    placeId: uuid('place_id').notNull(),
    /** Of the machine. */
    host: text('host').notNull(),
    /** Which of the gateways that share the data folder. */
    slot: integer('slot').notNull(),
    version: text('version').notNull(),
    startedAt: moment('started_at').notNull(),
    lastSeenAt: moment('last_seen_at').notNull(),
    /** Null while it lives; of an unclean end when it was seen last. */
    endedAt: moment('ended_at'),
    ended: text('ended', { enum: ['clean', 'unclean'] }),
    /** Heartbeats that the database has of it: fewer than were taken say that its history went back. */
    beats: bigint('beats', { mode: 'number' }).notNull().default(0),
    /** By engine the tokens that its requests under way may come to; null of runs from before that was kept. */
    underWay: jsonb('under_way').$type<Readonly<Record<string, CountedMost>>>(),
  },
  (table) => [
    index('gateway_runs_open_idx')
      .on(table.lastSeenAt)
      .where(sql`${table.endedAt} is null`),
    index('gateway_runs_ended_idx').on(table.endedAt),
  ],
);

/** What gateways have noticed of the history of the database, for whoever proves the books later. */
export const databaseChanges = pgTable('database_changes', {
  id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
  /** All zeros where no gateway has noticed it. */
  gatewayId: uuid('gateway_id').notNull(),
  /** Another server answers, heartbeats are gone that PostgreSQL had taken, or a backup was restored. */
  change: text('change', { enum: ['server', 'rewound', 'restored'] }).notNull(),
  /**
   * The last heartbeat before the change that is still there, or the moment of the backup: what was committed later may
   * be lost. `-infinity` where no heartbeat of any gateway is left.
   */
  knownAt: moment('known_at').notNull(),
  noticedAt: moment('noticed_at').notNull(),
});
