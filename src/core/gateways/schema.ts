import { sql } from 'drizzle-orm';
import { bigint, boolean, index, integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import type { Published } from './differences.ts';
import type { CountedMost } from './token-watermarks.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** All gateways that run on this database; times are by the database's clock. */
export const gateways = pgTable('gateways', {
  id: uuid('id').primaryKey(),
  /** The exclusive slot of the gateway: another row with this id belongs to a dead gateway. */
  placeId: uuid('place_id').notNull(),
  startedAt: moment('started_at').notNull(),
  lastSeenAt: moment('last_seen_at').notNull(),
  /** True if the gateway shares its limits with others through Redis. */
  shares: boolean('shares').notNull(),
  /** Values that must be equal in all gateways; null for a version that publishes nothing. */
  published: jsonb('published').$type<Published>(),
});

/** All runs of gateways, kept indefinitely: a run that ended uncleanly may have had requests without any record. */
export const gatewayRuns = pgTable(
  'gateway_runs',
  {
    /** The gateway's id in `gateways`: each start creates a new one. */
    id: uuid('id').primaryKey(),
    placeId: uuid('place_id').notNull(),
    /** Host name of the machine. */
    host: text('host').notNull(),
    /** Number of the gateway among those that share the data folder. */
    slot: integer('slot').notNull(),
    version: text('version').notNull(),
    startedAt: moment('started_at').notNull(),
    lastSeenAt: moment('last_seen_at').notNull(),
    /** Null while the gateway lives; for an unclean end, the time of its last heartbeat. */
    endedAt: moment('ended_at'),
    ended: text('ended', { enum: ['clean', 'unclean'] }),
    /** Number of the run's heartbeats in the database: fewer than were acknowledged mean that its history went back. */
    beats: bigint('beats', { mode: 'number' }).notNull().default(0),
    /** Maximum tokens per engine of the requests in progress; null for runs from before this was stored. */
    underWay: jsonb('under_way').$type<Readonly<Record<string, CountedMost>>>(),
  },
  (table) => [
    index('gateway_runs_open_idx')
      .on(table.lastSeenAt)
      .where(sql`${table.endedAt} is null`),
    index('gateway_runs_ended_idx').on(table.endedAt),
  ],
);

/** Changes of the database's history, recorded for later checks of ledger and records. */
export const databaseChanges = pgTable('database_changes', {
  id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
  /** All zeros if no gateway noticed the change. */
  gatewayId: uuid('gateway_id').notNull(),
  /** Another server answers, stored heartbeats are missing, or a backup was restored. */
  change: text('change', { enum: ['server', 'rewound', 'restored'] }).notNull(),
  /**
   * The last heartbeat before the change that is still present, or the time of the backup: later commits may be lost.
   * `-infinity` if no heartbeat of any gateway is left.
   */
  knownAt: moment('known_at').notNull(),
  noticedAt: moment('noticed_at').notNull(),
});
