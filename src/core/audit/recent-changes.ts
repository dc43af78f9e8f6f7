import type { Db } from '#base/db.ts';
import { uuidLowerBound } from '#base/id.ts';

/** A row of the audit log, by what it changed. */
export interface RecentChange {
  readonly id: string;
  readonly targetType: string;
  /** As outsiders name it: "key_…". */
  readonly targetId: string;
}

/**
 * Changes of what was there before, whoever made them; oldest first. A range of the primary key is read.
 * @param targetTypes as the log names them: "api_key"
 * @param sinceMs of the clock that wrote them, milliseconds since the Unix epoch
 */
export async function readRecentChanges(
  { sql }: Pick<Db, 'sql'>,
  targetTypes: readonly string[],
  sinceMs: number,
): Promise<readonly RecentChange[]> {
  return sql<RecentChange[]>`
    select id::text, target_type as "targetType", target_id as "targetId" from audit_log
    where id >= ${uuidLowerBound(sinceMs)} and target_type in ${sql([...targetTypes])} and before is not null
    order by id`;
}
