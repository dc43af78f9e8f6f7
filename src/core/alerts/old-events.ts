import type { Db } from '#base/database/database.ts';

/** Milliseconds that events and their deliveries are kept. */
const eventsKeptMs = 30 * 86_400_000;

const deletedAtOnce = 1000;

/** Deletes older events, except those with pending deliveries. */
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
