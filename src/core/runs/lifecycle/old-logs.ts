import type { Sql } from 'postgres';
import { uuidLowerBound } from '#base/id.ts';

/** Days that the log and the plan of an ended run are kept; the run itself stays, except a drift check. */
export const logDaysMax = 90;
const dayMs = 86_400_000;
/** Runs whose logs one statement removes: each has up to 50,000 lines. */
const runsAtOnce = 20;

/**
 * Removes logs and plans of runs that ended long ago, oldest first, and drift checks that have a later one. The last
 * check that has completed stays too, because it says whether the run has drifted.
 * @param nowMs milliseconds since the Unix epoch
 * @returns the number of these runs
 */
export async function dropOldLogs(sql: Sql, nowMs: number): Promise<number> {
  const endedBefore = new Date(nowMs - logDaysMax * dayMs).toISOString();
  // A run ends after its creation, and its id contains the time of its creation.
  const idBound = uuidLowerBound(nowMs - logDaysMax * dayMs);
  await sql`
    delete from runs r where r.drift_of is not null and not r.holds_version
      and r.id < ${idBound} and r.ended_at < ${endedBefore}::text::timestamptz
      and exists (select from runs n where n.drift_of = r.drift_of and n.id > r.id
        and (r.status <> 'PLANNED_AND_FINISHED' or n.status = 'PLANNED_AND_FINISHED'))`;
  for (let total = 0; ;) {
    const removed = await sql<{ run_id: string }[]>`
      with old as (
        select r.id from runs r
        where r.id < ${idBound} and r.ended_at < ${endedBefore}::text::timestamptz
          and (exists (select from run_log l where l.run_id = r.id) or exists (select from run_plans p where p.run_id = r.id))
        order by r.id limit ${runsAtOnce}),
      lines as (delete from run_log l using old where l.run_id = old.id),
      plans as (delete from run_plans p using old where p.run_id = old.id)
      select id as run_id from old`;
    total += removed.length;
    if (removed.length < runsAtOnce) return total;
  }
}
