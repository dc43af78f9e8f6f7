import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { uuidLowerBound } from '#base/id.ts';

/** First moment of the UTC month that is `months` after the one of `timeMs`. */
function monthStartMs(timeMs: number, months: number): number {
  const date = new Date(timeMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months, 1);
}

/** Makes the partitions of this month and the two that follow, where they are missing. */
export async function ensurePartitions(db: Db, clock: Clock): Promise<void> {
  for (const months of [0, 1, 2]) {
    const startMs = monthStartMs(clock.now(), months);
    const name = `usage_records_${new Date(startMs).toISOString().slice(0, 7).replace('-', '_')}`;
    const from = uuidLowerBound(startMs);
    const to = uuidLowerBound(monthStartMs(clock.now(), months + 1));
    await db.sql.begin(async (sql) => {
      await sql`select pg_advisory_xact_lock(hashtext('headgate usage partitions'))`;
      const [found] = await sql`select to_regclass(${name}) is not null as there`;
      if (found?.['there'] === true) return;
      await sql.unsafe(`create table ${name} partition of usage_records for values from ('${from}') to ('${to}')`);
    });
  }
}
