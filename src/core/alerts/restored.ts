import type { ISql } from 'postgres';

/** Alerts in a restored copy of a database. */

const isUnaddressed = (sql: ISql) => sql`e.addressed_at is null and exists (
  select from webhook_endpoints w where w.organization_id = e.organization_id and w.enabled)`;

/** Counts pending deliveries, and new events of organizations with an enabled endpoint. */
export async function countPendingAlerts(sql: ISql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select ((select count(*) from alert_deliveries where status = 'pending')
      + (select count(*) from alert_events e where ${isUnaddressed(sql)}))::int as count`;
  return row?.count ?? 0;
}

/**
 * Fails pending deliveries, closes new events, and disables webhooks: receivers get the events from the original
 * database.
 */
export async function silenceAlerts(sql: ISql): Promise<void> {
  await sql`update webhook_endpoints set enabled = false where enabled`;
  await sql`
    update alert_deliveries set status = 'failed', next_attempt_at = null, last_error = 'disabled'
    where status = 'pending'`;
  await sql`update alert_events set addressed_at = clock_timestamp() where addressed_at is null`;
}
