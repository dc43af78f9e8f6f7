import { and, asc, eq, inArray, isNull } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { uuidv7 } from '#base/id.ts';
import type { Accounts, AlertPeople } from '#core/accounts/accounts.ts';
import { isChosen, mailedTypes } from './kinds.ts';
import { alertDeliveries, alertEvents, webhookEndpoints } from './schema.ts';

/** Creates deliveries for raised events, one per recipient. */

export interface FanOutOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly accounts: Pick<Accounts, 'readAlertPeople'>;
  /** True if email is sent at all. */
  readonly isMailed: boolean;
}

type EventRow = typeof alertEvents.$inferSelect;
type NewDelivery = typeof alertDeliveries.$inferInsert;

const eventsAtOnceMax = 100;
/** Rows per statement; a statement may have 65,535 parameters. */
const rowsAtOnceMax = 1000;

/**
 * Creates the deliveries of new events, in their order; several gateways work on different events. @returns true if
 * there may be more
 */
export async function fanOut(options: FanOutOptions): Promise<boolean> {
  const { db, clock } = options;
  const people = await readPeople(options);
  if (people === null) return false;
  return db.orm.transaction(async (tx) => {
    const events = await tx
      .select()
      .from(alertEvents)
      .where(isNull(alertEvents.addressedAt))
      .orderBy(asc(alertEvents.id))
      .limit(eventsAtOnceMax)
      .for('update', { skipLocked: true });
    // Events of organizations whose recipients were not read wait for the next call.
    const known = events.filter(({ organizationId }) => people.has(organizationId));
    if (known.length === 0) return false;
    const rows = await deliveriesOf(tx, known, people, options);
    for (let from = 0; from < rows.length; from += rowsAtOnceMax) {
      await tx
        .insert(alertDeliveries)
        .values(rows.slice(from, from + rowsAtOnceMax))
        .onConflictDoNothing();
    }
    const ids = known.map(({ id }) => id);
    await tx
      .update(alertEvents)
      .set({ addressedAt: new Date(clock.now()) })
      .where(inArray(alertEvents.id, ids));
    return events.length === eventsAtOnceMax;
  });
}

/**
 * Reads the recipients of organizations with new events. Null without new events; null values for unknown and closed
 * organizations, which get no deliveries.
 */
async function readPeople({ db, accounts }: FanOutOptions): Promise<ReadonlyMap<string, AlertPeople | null> | null> {
  const waiting = await db.orm
    .select({ organizationId: alertEvents.organizationId })
    .from(alertEvents)
    .where(isNull(alertEvents.addressedAt))
    .orderBy(asc(alertEvents.id))
    .limit(eventsAtOnceMax);
  if (waiting.length === 0) return null;
  const people = new Map<string, AlertPeople | null>();
  for (const { organizationId } of waiting) {
    if (!people.has(organizationId)) people.set(organizationId, await accounts.readAlertPeople(organizationId));
  }
  return people;
}

async function deliveriesOf(
  tx: Transaction,
  events: readonly EventRow[],
  people: ReadonlyMap<string, AlertPeople | null>,
  { clock, isMailed }: FanOutOptions,
): Promise<NewDelivery[]> {
  const organizations = [...new Set(events.map(({ organizationId }) => organizationId))];
  // Locked for share: an endpoint is deleted either before this, or together with the deliveries written here.
  const endpoints = await tx
    .select()
    .from(webhookEndpoints)
    .where(and(inArray(webhookEndpoints.organizationId, organizations), eq(webhookEndpoints.enabled, true)))
    .orderBy(asc(webhookEndpoints.id))
    .for('share');
  const now = new Date(clock.now());
  return events.flatMap((event): NewDelivery[] => {
    const recipients = people.get(event.organizationId) ?? null;
    if (recipients === null) return [];
    // An endpoint gets no events from before its creation.
    const isWanted = ({ organizationId, createdAt, events: wanted }: (typeof endpoints)[number]): boolean =>
      organizationId === event.organizationId &&
      createdAt <= event.createdAt &&
      (wanted === null || isChosen(wanted, event.type));
    const mailed: readonly string[] = recipients.types ?? mailedTypes;
    const readers = isMailed && isChosen(mailed, event.type) ? recipients.userIds : [];
    return [
      ...endpoints.filter(isWanted).map(({ id }) => newDelivery(event, { endpointId: id, userId: null }, now)),
      ...readers.map((userId) => newDelivery(event, { endpointId: null, userId }, now)),
    ];
  });
}

export function newDelivery(
  { id: eventId, organizationId }: Pick<EventRow, 'id' | 'organizationId'>,
  receiver: { readonly endpointId: string | null; readonly userId: string | null },
  now: Date,
): NewDelivery & { readonly id: string } {
  return {
    id: uuidv7(now.getTime()),
    eventId,
    organizationId,
    ...receiver,
    status: 'pending',
    createdAt: now,
    nextAttemptAt: now,
  };
}
