import type { Sql } from 'postgres';
import { uuidLowerBound } from '#base/id.ts';

/** How long the log of a run is kept when it has ended; the run itself stays. */
export const logDaysMax = 90;
const dayMs = 86_400_000;
/** Runs whose logs are removed in one statement: each has up to 50,000 lines. */
const runsAtOnce = 20;

/**
 * Removes logs of runs that ended long ago, oldest first.
 * @param nowMs milliseconds since the Unix epoch
 * @returns of how many runs
 */
export async function dropOldLogs(sql: Sql, nowMs: number): Promise<number> {
  const endedBefore = new Date(nowMs - logDaysMax * dayMs).toISOString();
  // No run ends before it is made, and ids say when that was.
  const idBound = uuidLowerBound(nowMs - logDaysMax * dayMs);
  for (let total = 0; ;) {
    const removed = await sql<{ run_id: string }[]>`
      with old as (
        select r.id from runs r
        where r.id < ${idBound} and r.ended_at < ${endedBefore}::text::timestamptz
          and exists (select from run_log l where l.run_id = r.id)
        order by r.id limit ${runsAtOnce}),
      gone as (delete from run_log l using old where l.run_id = old.id returning l.run_id)
      select distinct run_id from gone`;
    total += removed.length;
    if (removed.length < runsAtOnce) return total;
  }
}
