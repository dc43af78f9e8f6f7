import { and, asc, eq, isNotNull, isNull, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import type { AllocationKey, UsageSource } from './interval-rows.ts';
import { usageAllocations } from './schema.ts';

/** An allocation that was reported and not released. */
export interface OpenInterval extends AllocationKey {
  readonly clusterId: string;
  /** Milliseconds since the Unix epoch. */
  readonly allocatedMs: number;
}

export interface OpenIntervalRequest {
  readonly source: UsageSource;
  /** The last one of the previous page; null for the first page. */
  readonly after: AllocationKey | null;
  readonly limit: number;
}

/**
 * Lists open intervals by node id. The owners of nodes and replicas check them, and end those whose machine is gone.
 */
export async function listOpenIntervals(db: Db, request: OpenIntervalRequest): Promise<readonly OpenInterval[]> {
  const { source, after, limit } = request;
  const { nodeId, generation, clusterId, allocatedMs, releasedMs } = usageAllocations;
  const open = and(
    eq(usageAllocations.source, source),
    isNotNull(allocatedMs),
    isNull(releasedMs),
    after === null ? undefined : sql`(${nodeId}, ${generation}) > (${after.nodeId}, ${after.generation})`,
  );
  const rows = await db.orm
    .select({ nodeId, generation, clusterId, allocatedMs })
    .from(usageAllocations)
    .where(open)
    .orderBy(asc(nodeId), asc(generation))
    .limit(limit);
  return rows.map((row) => ({ ...row, allocatedMs: row.allocatedMs ?? 0 }));
}
