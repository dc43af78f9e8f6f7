import type { Db } from '#base/db.ts';

/** How long events and their deliveries are kept, in milliseconds. */
const eventsKeptMs = 30 * 86_400_000;

const deletedAtOnce = 1000;

/** Takes away what is older, but for what is still to be delivered. */
export async function deleteOldEvents({ sql }: Db, nowMs: number): Promise<void> {
  const before = new Date(nowMs - eventsKeptMs).toISOString();
  for (;;) {
    const { count } = await sql`
      delete from alert_events where id in (
        select id from alert_events e
        where created_at < ${before}::timestamptz and addressed_at is not null
          and not exists (select 1 from alert_deliveries d where d.event_id = e.id and d.status = 'pending')
        order by id limit ${deletedAtOnce})`;
    if (count < deletedAtOnce) return;
  }
}
