import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/db.ts';
import type { UsageSource } from './interval-rows.ts';

/** One change of a cluster's intervals at a time, until the transaction ends. Always in the same order. */
export async function lockClusters(tx: Transaction, source: UsageSource, clusterIds: readonly string[]): Promise<void> {
  for (const clusterId of [...new Set(clusterIds)].toSorted()) {
    await tx.execute(
      sql`select pg_advisory_xact_lock(hashtextextended(${`headgate usage ${source} ${clusterId}`}, 0))`,
    );
  }
}

/** One change of the dated rates at a time, until the transaction ends. */
export async function lockRates(tx: Transaction): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext('headgate rates'))`);
}

/** The database's clock now, not at the begin of the transaction; whole milliseconds since the Unix epoch. */
export async function dbNowMs(tx: Transaction): Promise<number> {
  const [row] = await tx.execute<{ now_ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms`,
  );
  if (row === undefined) throw new Error('the database does not say what time it is');
  return Number(row.now_ms);
}
