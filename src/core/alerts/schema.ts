import { sql } from 'drizzle-orm';
import {
  boolean,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

/** Raised alerts. An event is written with its cause, and delivered afterwards. */
export const alertEvents = pgTable(
  'alert_events',
  {
    /** UUIDv7: deliveries are created in the order of event ids. */
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    type: text('type').notNull(),
    data: jsonb('data').$type<Readonly<Record<string, unknown>>>().notNull(),
    /** Name under which the organization gets only one event; null: no limit. */
    once: text('once'),
    createdAt: moment('created_at').notNull(),
    /** Time at which the deliveries were created; null: not yet. */
    addressedAt: moment('addressed_at'),
  },
  (table) => [
    uniqueIndex('alert_events_once_key').on(table.organizationId, table.once),
    index('alert_events_unaddressed_idx')
      .on(table.id)
      .where(sql`${table.addressedAt} is null`),
  ],
);

export const webhookEndpoints = pgTable(
  'webhook_endpoints',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    url: text('url').notNull(),
    description: text('description').notNull(),
    /** Kinds of alerts to send; null: all. */
    events: jsonb('events').$type<readonly string[]>(),
    enabled: boolean('enabled').notNull(),
    /** Reason why the gateway disabled the endpoint; null if it did not. */
    disabledReason: text('disabled_reason', { enum: ['failing', 'gone'] }),
    /** Time since which nothing was delivered; null if the last attempt succeeded. */
    failingSince: moment('failing_since'),
    /** Failed attempts since the last delivery. */
    failures: integer('failures').notNull().default(0),
    secretKeyId: text('secret_key_id').notNull(),
    secretSealed: bytes('secret_sealed').notNull(),
    /** Previous secret, which signs too until its end. */
    formerKeyId: text('former_key_id'),
    formerSealed: bytes('former_sealed'),
    formerEndsAt: moment('former_ends_at'),
    createdAt: moment('created_at').notNull(),
    rotatedAt: moment('rotated_at'),
  },
  (table) => [index('webhook_endpoints_organization_idx').on(table.organizationId, table.id)],
);

/** One event for one endpoint, or for one person by email. */
export const alertDeliveries = pgTable(
  'alert_deliveries',
  {
    id: uuid('id').primaryKey(),
    eventId: uuid('event_id')
      .notNull()
      .references(() => alertEvents.id, { onDelete: 'cascade' }),
    organizationId: uuid('organization_id').notNull(),
    endpointId: uuid('endpoint_id').references(() => webhookEndpoints.id, { onDelete: 'cascade' }),
    /** User who gets an email; null for an endpoint. */
    userId: uuid('user_id'),
    status: text('status', { enum: ['pending', 'delivered', 'failed'] }).notNull(),
    attempts: integer('attempts').notNull().default(0),
    /** Attempts since the delivery was created or replayed, of those in `attempts`. */
    tries: integer('tries').notNull().default(0),
    /** Grows with every claim, so that a gateway whose claim was overtaken writes nothing. */
    claim: integer('claim').notNull().default(0),
    createdAt: moment('created_at').notNull(),
    /**
     * Time of a pending delivery's next attempt; during an attempt, the time from which other gateways may claim it.
     */
    nextAttemptAt: moment('next_attempt_at'),
    lastAttemptAt: moment('last_attempt_at'),
    /** HTTP status; null without a response. */
    lastStatus: integer('last_status'),
    /** Error code; null if delivered. */
    lastError: text('last_error'),
  },
  (table) => [
    uniqueIndex('alert_deliveries_endpoint_event_key').on(table.endpointId, table.eventId),
    uniqueIndex('alert_deliveries_user_event_key').on(table.userId, table.eventId),
    index('alert_deliveries_event_idx').on(table.eventId),
    index('alert_deliveries_list_idx').on(table.endpointId, table.id),
    index('alert_deliveries_due_idx')
      .on(table.nextAttemptAt)
      .where(sql`${table.status} = 'pending'`),
    index('alert_deliveries_endpoint_due_idx')
      .on(table.endpointId, table.nextAttemptAt)
      .where(sql`${table.status} = 'pending'`),
  ],
);
