import { and, count, desc, eq, lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { type EndpointRef, type EndpointRow, isEndpoint, originOf } from './endpoint.ts';
import { newDelivery } from './fan-out.ts';
import { checkedData } from './kinds.ts';
import { alertDeliveries, alertEvents, webhookEndpoints } from './schema.ts';

export type DeliveryRow = typeof alertDeliveries.$inferSelect;
type EventRow = typeof alertEvents.$inferSelect;

/** One event for one endpoint. */
export interface Delivery {
  /** Ids are UUIDs. */
  readonly id: string;
  readonly eventId: string;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly status: 'pending' | 'delivered' | 'failed';
  readonly attempts: number;
  readonly createdAtMs: number;
  /** Null if there is no further attempt. */
  readonly nextAttemptAtMs: number | null;
  readonly lastAttemptAtMs: number | null;
  /** HTTP status; null without a response. */
  readonly lastStatus: number | null;
  readonly lastError: string | null;
}

export interface DeliveryListing extends EndpointRef {
  readonly limit: number;
  /** UUID of the last delivery of the previous page; null starts at the first. */
  readonly before: string | null;
}

export interface Deliveries {
  /** Lists deliveries, newest first. Null if there is no such endpoint. */
  list(listing: DeliveryListing): Promise<{ readonly deliveries: readonly Delivery[]; readonly more: boolean } | null>;
  /**
   * Delivers again from now on, like a new delivery but with the same event id. Null if there is no such delivery.
   * @throws AppError conflict if the endpoint is disabled
   */
  replay(ref: EndpointRef, deliveryId: string): Promise<Delivery | null>;
  /**
   * Sends an event of the kind `webhook.test` to one endpoint, in one attempt. Null if there is no such endpoint.
   * @throws AppError conflict
   */
  test(ref: EndpointRef): Promise<Delivery | null>;
}

export interface DeliveriesOptions {
  readonly db: Db;
  readonly clock: Clock;
}

/** Most pending tests of one endpoint, so that tests cannot flood a receiver. */
const testsAtOnceMax = 10;

export function toDelivery(row: DeliveryRow, { type, data }: Pick<EventRow, 'type' | 'data'>): Delivery {
  return {
    id: row.id,
    eventId: row.eventId,
    type,
    data,
    status: row.status,
    attempts: row.attempts,
    createdAtMs: row.createdAt.getTime(),
    nextAttemptAtMs: row.nextAttemptAt?.getTime() ?? null,
    lastAttemptAtMs: row.lastAttemptAt?.getTime() ?? null,
    lastStatus: row.lastStatus,
    lastError: row.lastError,
  };
}

function requireEnabled({ enabled }: EndpointRow): void {
  if (enabled) return;
  throw new AppError('conflict', { message: 'This webhook is disabled. Enable it before you send events.' });
}

export function createDeliveries({ db, clock }: DeliveriesOptions): Deliveries {
  const lockEndpoint = async (tx: Transaction, ref: EndpointRef): Promise<EndpointRow | null> => {
    const [row] = await tx.select().from(webhookEndpoints).where(isEndpoint(ref)).for('update');
    return row ?? null;
  };
  return {
    async list({ limit, before, ...ref }) {
      const [endpoint] = await db.orm.select().from(webhookEndpoints).where(isEndpoint(ref));
      if (endpoint === undefined) return null;
      const rows = await db.orm
        .select({ delivery: alertDeliveries, event: alertEvents })
        .from(alertDeliveries)
        .innerJoin(alertEvents, eq(alertEvents.id, alertDeliveries.eventId))
        .where(
          and(
            eq(alertDeliveries.endpointId, endpoint.id),
            before === null ? undefined : lt(alertDeliveries.id, before),
          ),
        )
        .orderBy(desc(alertDeliveries.id))
        .limit(limit + 1);
      const deliveries = rows.slice(0, limit).map(({ delivery, event }) => toDelivery(delivery, event));
      return { deliveries, more: rows.length > limit };
    },
    replay: (ref, deliveryId) =>
      db.orm.transaction(async (tx) => {
        const endpoint = await lockEndpoint(tx, ref);
        if (endpoint === null) return null;
        const isOne = and(eq(alertDeliveries.id, deliveryId), eq(alertDeliveries.endpointId, endpoint.id));
        const [found] = await tx.select().from(alertDeliveries).where(isOne).for('update');
        if (found === undefined) return null;
        requireEnabled(endpoint);
        const [event] = await tx.select().from(alertEvents).where(eq(alertEvents.id, found.eventId));
        if (event === undefined) return null;
        const anew = {
          status: 'pending',
          tries: 0,
          claim: found.claim + 1,
          nextAttemptAt: new Date(clock.now()),
        } as const;
        const [row] = await tx.update(alertDeliveries).set(anew).where(isOne).returning();
        return row === undefined ? null : toDelivery(row, event);
      }),
    test: (ref) =>
      db.orm.transaction(async (tx) => {
        const endpoint = await lockEndpoint(tx, ref);
        if (endpoint === null) return null;
        requireEnabled(endpoint);
        await requireFewTests(tx, endpoint);
        const now = new Date(clock.now());
        const data = { webhook_id: formatId('wh', endpoint.id), origin: originOf(endpoint.url) };
        const { organizationId } = endpoint;
        const event = {
          id: uuidv7(now.getTime()),
          organizationId,
          type: 'webhook.test',
          data: checkedData({ organizationId, type: 'webhook.test', data }),
          createdAt: now,
          addressedAt: now,
        };
        await tx.insert(alertEvents).values(event);
        const delivery = newDelivery(event, { endpointId: endpoint.id, userId: null }, now);
        const [row] = await tx.insert(alertDeliveries).values(delivery).returning();
        return row === undefined ? null : toDelivery(row, event);
      }),
  };
}

/** @throws AppError conflict if too many tests are pending */
async function requireFewTests(tx: Transaction, { id }: EndpointRow): Promise<void> {
  const [counted] = await tx
    .select({ total: count() })
    .from(alertDeliveries)
    .innerJoin(alertEvents, eq(alertEvents.id, alertDeliveries.eventId))
    .where(
      and(
        eq(alertDeliveries.endpointId, id),
        eq(alertDeliveries.status, 'pending'),
        eq(alertEvents.type, 'webhook.test'),
      ),
    );
  if ((counted?.total ?? 0) < testsAtOnceMax) return;
  throw new AppError('conflict', {
    message: `${testsAtOnceMax} test events of this webhook are pending. Wait until one is sent.`,
  });
}
