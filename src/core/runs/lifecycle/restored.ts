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
      ended_at = clock_timestamp()
    where status in ${sql([...idleStatuses])}`;
  await sql`
    update runs set status = 'FAILED', failure_code = 'INTERRUPTED', failure_message = ${message}, fence = fence + 1,
      ended_at = clock_timestamp(), lease_until = null
    where status in ${sql([...activeStatuses])}`;
}

/** Counts applied runs that expire. */
export async function countExpiringRuns(sql: ISql): Promise<number> {
  if (!(await hasExpiry(sql))) return 0;
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from runs
    where status = 'APPLIED' and (expires_after is not null or expires_at is not null)`;
  return row?.count ?? 0;
}

/** Removes the expiry of applied runs, and due notices: the other database destroys their resources, and sends them. */
export async function endExpiries(sql: ISql): Promise<void> {
  if (!(await hasExpiry(sql))) return;
  await sql`update runs set expires_after = null, expires_at = null where status = 'APPLIED'`;
  await sql`update runs set notified = 'end' where notified is distinct from 'end' and ended_at is not null`;
}

/** Stops the regular drift checks of applied runs: the other database makes them, and sends their notices. */
export async function endDriftChecks(sql: ISql): Promise<void> {
  if (await hasColumn(sql, 'check_drift')) await sql`update runs set check_drift = false where status = 'APPLIED'`;
}

const hasExpiry = (sql: ISql): Promise<boolean> => hasColumn(sql, 'expires_after');

/** False in backups of earlier versions, whose migrations come later. */
async function hasColumn(sql: ISql, name: string): Promise<boolean> {
  const [row] = await sql`
    select exists (select from information_schema.columns where table_name = 'runs' and column_name = ${name}) as there`;
  return row?.['there'] === true;
}
