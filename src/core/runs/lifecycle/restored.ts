import type { ISql } from 'postgres';
import { activeStatuses, idleStatuses, unfinishedStatuses } from './run-status.ts';

/** Runs of a database that was restored from a backup. */

/** Counts pending and active runs. */
export async function countUnfinishedRuns(sql: ISql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from runs where status in ${sql([...unfinishedStatuses])}`;
  return row?.count ?? 0;
}

const message =
  'the database was restored from a backup; if the run continues, then only in the database that was backed up';

/** Cancels pending runs and fails active ones: their processes belong to the other database. */
export async function endUnfinishedRuns(sql: ISql): Promise<void> {
  await sql`
    update runs set status = 'CANCELED', cancel_reason = 'asked', failure_message = ${message},
      ended_at = clock_timestamp(), notified = 'end'
    where status in ${sql([...idleStatuses])}`;
  await sql`
    update runs set status = 'FAILED', failure_code = 'INTERRUPTED', failure_message = ${message}, fence = fence + 1,
      ended_at = clock_timestamp(), lease_until = null, notified = 'end'
    where status in ${sql([...activeStatuses])}`;
}
