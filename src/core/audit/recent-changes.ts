import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';

/** A row of the audit log, identified by the changed object. */
export interface RecentChange {
  readonly id: string;
  readonly targetType: string;
  /** The public id: "key_…". */
  readonly targetId: string;
}

/**
 * Returns changes of existing objects by any actor, oldest first. Reads a range of the primary key.
 * @param targetTypes as the log names them: "api_key"
 * @param sinceMs in the clock of the gateways that wrote the rows, milliseconds since the Unix epoch
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
