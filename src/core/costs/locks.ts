import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import type { UsageSource } from './interval-rows.ts';

/**
 * Locks clusters until the transaction ends: one change of a cluster's intervals at a time. Sorted, to avoid deadlocks.
 */
export async function lockClusters(tx: Transaction, source: UsageSource, clusterIds: readonly string[]): Promise<void> {
  for (const clusterId of [...new Set(clusterIds)].toSorted()) {
    await tx.execute(
      sql`select pg_advisory_xact_lock(hashtextextended(${`headgate usage ${source} ${clusterId}`}, 0))`,
    );
  }
}

/** Locks the dated rates until the transaction ends: one change at a time. */
export async function lockRates(tx: Transaction): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext('headgate rates'))`);
}

/** Returns the database's clock now, not at the start of the transaction; whole milliseconds since the Unix epoch. */
export async function dbNowMs(tx: Transaction): Promise<number> {
  const [row] = await tx.execute<{ now_ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms`,
  );
  if (row === undefined) throw new Error('the database did not return its time');
  return Number(row.now_ms);
}
