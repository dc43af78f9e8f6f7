import { eq, inArray } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { alertDeliveries, alertEvents, webhookEndpoints } from './schema.ts';

/** Which deliveries are due, and whose turn it is. */

/** What is under way in this gateway, by UUIDs. */
export interface UnderWay {
  readonly ofEndpoints: ReadonlyMap<string, number>;
  readonly ofOrganizations: ReadonlyMap<string, number>;
  readonly total: number;
  readonly mails: number;
}

export interface ClaimBounds {
  readonly ofEndpointMax: number;
  readonly ofOrganizationMax: number;
  readonly totalMax: number;
  readonly mailsMax: number;
}

export interface ClaimTimes {
  readonly nowMs: number;
  /** Who took one and was not heard of by then is taken for dead. */
  readonly leaseMs: number;
}

/** A delivery that this gateway has, until its lease is over, with all that is needed to send it. */
export interface Claimed {
  readonly delivery: typeof alertDeliveries.$inferSelect;
  readonly event: typeof alertEvents.$inferSelect;
  /** Null for a mail. */
  readonly endpoint: typeof webhookEndpoints.$inferSelect | null;
}

/**
 * Takes what is due and nobody else has: of each endpoint and each organization only so many as it may have under way,
 * and first of the organizations that have the fewest, so that one whose receiver is slow holds nobody else up.
 */
export async function claimDue(
  { sql, orm }: Db,
  underWay: UnderWay,
  bounds: ClaimBounds,
  { nowMs, leaseMs }: ClaimTimes,
): Promise<readonly Claimed[]> {
  const now = new Date(nowMs).toISOString();
  const [look] = await sql<{ due: boolean }[]>`
    select exists (
      select 1 from alert_deliveries where status = 'pending' and next_attempt_at <= ${now}::timestamptz) as due`;
  if (look?.due !== true) return [];
  const leaseEnd = new Date(nowMs + leaseMs).toISOString();
  const counts = (map: ReadonlyMap<string, number>): string => JSON.stringify(Object.fromEntries(map));
  // A plain number, by which PostgreSQL knows how few are read: of one that it does not know it takes a tenth of all
  // that waits, and reads the whole table for each endpoint.
  const atMost = sql.unsafe(String(bounds.ofEndpointMax));
  const rows = await sql<{ id: string }[]>`
    with due as (
      select d.id, d.next_attempt_at, e.id as endpoint_id, e.organization_id,
        row_number() over (partition by e.id order by d.next_attempt_at, d.id) as place
      from webhook_endpoints e
      cross join lateral (
        select id, next_attempt_at from alert_deliveries
        where endpoint_id = e.id and status = 'pending' and next_attempt_at <= ${now}::timestamptz
        order by next_attempt_at
        limit ${atMost}
        for update skip locked
      ) d
      where e.enabled
    ), candidates as (
      select id, next_attempt_at,
        row_number() over (partition by organization_id order by next_attempt_at, id)
          + coalesce((${counts(underWay.ofOrganizations)}::text::jsonb ->> organization_id::text)::int, 0) as place
      from due
      where place <= ${bounds.ofEndpointMax}::int
        - coalesce((${counts(underWay.ofEndpoints)}::text::jsonb ->> endpoint_id::text)::int, 0)
    ), webhooks as (
      select id from candidates
      where place <= ${bounds.ofOrganizationMax}::int
      order by place, next_attempt_at, id
      limit ${Math.max(0, bounds.totalMax - underWay.total)}
    ), mails as (
      select id from alert_deliveries
      where endpoint_id is null and status = 'pending' and next_attempt_at <= ${now}::timestamptz
      order by next_attempt_at, id
      limit ${Math.max(0, bounds.mailsMax - underWay.mails)}
      for update skip locked
    )
    update alert_deliveries set claim = claim + 1, next_attempt_at = ${leaseEnd}::timestamptz
    where id in (select id from webhooks union all select id from mails)
    returning id`;
  if (rows.length === 0) return [];
  const ids = rows.map(({ id }) => id);
  return orm
    .select({ delivery: alertDeliveries, event: alertEvents, endpoint: webhookEndpoints })
    .from(alertDeliveries)
    .innerJoin(alertEvents, eq(alertEvents.id, alertDeliveries.eventId))
    .leftJoin(webhookEndpoints, eq(webhookEndpoints.id, alertDeliveries.endpointId))
    .where(inArray(alertDeliveries.id, ids));
}
