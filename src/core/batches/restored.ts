import type { ISql } from 'postgres';

/** Batches of a database that is a copy of another one. */

/** Of which requests are still to be asked. */
export async function countOpenBatches(sql: ISql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from batches where status in ('validating', 'in_progress') and ending is null`;
  return row?.count ?? 0;
}

/** Cancels these: whoever works at them next asks nothing more, and writes the files of what is answered. */
export async function cancelOpenBatches(sql: ISql): Promise<void> {
  await sql`
    update batches set status = 'cancelling', cancelling_at = clock_timestamp(), waiting_for = null
    where status in ('validating', 'in_progress') and ending is null`;
}
