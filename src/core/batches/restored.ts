import type { ISql } from 'postgres';

/** Batches in a restored copy of a database. */

/** Counts batches that still have requests to send. */
export async function countOpenBatches(sql: ISql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from batches where status in ('validating', 'in_progress') and ending is null`;
  return row?.count ?? 0;
}

/**
 * Cancels these batches: the next gateway that works on one sends nothing more, and writes the files of existing
 * answers.
 */
export async function cancelOpenBatches(sql: ISql): Promise<void> {
  await sql`
    update batches set status = 'cancelling', cancelling_at = clock_timestamp(), waiting_for = null
    where status in ('validating', 'in_progress') and ending is null`;
}
