import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import type { AllocationKey, UsageSource } from './interval-rows.ts';

/** The recorded events of one allocation. Milliseconds since the Unix epoch. */
export interface AllocationOnFile extends AllocationKey {
  /** Null if only its release was reported. */
  readonly allocatedMs: number | null;
  readonly releasedMs: number | null;
  readonly releaseEstimated: boolean;
}

export interface NodeAllocations {
  readonly nodeIds: readonly string[];
  /** Per node: all allocations, the open one, or the one that shows its status (the open one, else the last). */
  readonly which: 'all' | 'open' | 'latest';
}

interface Row {
  readonly node_id: string;
  readonly generation: number;
  readonly allocated_ms: string | null;
  readonly released_ms: string | null;
  readonly release_estimated: boolean;
  readonly [column: string]: unknown;
}

const source: UsageSource = 'node';

export async function readNodeAllocations(
  tx: Pick<Transaction, 'execute'>,
  { nodeIds, which }: NodeAllocations,
): Promise<readonly AllocationOnFile[]> {
  if (nodeIds.length === 0) return [];
  const isOpen = sql`(a.allocated_ms is not null and a.released_ms is null)`;
  const rows = await tx.execute<Row>(sql`
    select f.* from json_array_elements_text(${JSON.stringify(nodeIds)}::text::json) as t(id), lateral (
      select a.node_id, a.generation, a.allocated_ms, a.released_ms, a.release_estimated from usage_allocations a
      where a.source = ${source} and a.node_id = t.id ${which === 'open' ? sql`and ${isOpen}` : sql``}
      order by ${which === 'latest' ? sql`${isOpen} desc, a.allocated_ms desc nulls last` : sql`a.generation`}
      limit ${which === 'latest' ? 1 : null}
    ) f order by f.node_id, f.generation`);
  return rows.map((row) => ({
    nodeId: row.node_id,
    generation: row.generation,
    allocatedMs: row.allocated_ms === null ? null : Number(row.allocated_ms),
    releasedMs: row.released_ms === null ? null : Number(row.released_ms),
    releaseEstimated: row.release_estimated,
  }));
}
