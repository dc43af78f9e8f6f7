import { eq, inArray } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { alertDeliveries, alertEvents, webhookEndpoints } from './schema.ts';

/** Claims of due deliveries by gateways. */

/** Deliveries under way in this gateway, counted by UUID. */
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
  /** Milliseconds after which a gateway that has not reported a claimed delivery is presumed dead. */
  readonly leaseMs: number;
}

/** A delivery claimed by this gateway until the lease ends, with everything needed to send it. */
export interface Claimed {
  readonly delivery: typeof alertDeliveries.$inferSelect;
  readonly event: typeof alertEvents.$inferSelect;
  /** Null for an email. */
  readonly endpoint: typeof webhookEndpoints.$inferSelect | null;
}

/**
 * Claims due deliveries that no other gateway has, within the bounds per endpoint and organization. Organizations with
 * the fewest under way come first, so that a slow receiver delays nobody else.
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
  // A literal, so that PostgreSQL knows how few rows are read: for a parameter it assumes a tenth of all waiting rows,
  // and scans the whole table for each endpoint.
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
