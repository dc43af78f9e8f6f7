import type { Db } from '#base/db.ts';
import { uuidLowerBound } from '#base/id.ts';

/** A row that nobody's key and no user wrote. */
export interface SystemChange {
  readonly id: string;
  /** As outsiders name it: "key_…". */
  readonly targetId: string;
}

/**
 * Changes of one kind that the gateway itself, or a command on its machine, has made and noted.
 * @param sinceMs of the clock that wrote them, milliseconds since the Unix epoch
 */
export async function readSystemChanges(
  { sql }: Pick<Db, 'sql'>,
  action: string,
  sinceMs: number,
): Promise<readonly SystemChange[]> {
  return sql<SystemChange[]>`
    select id::text, target_id as "targetId" from audit_log
    where id >= ${uuidLowerBound(sinceMs)} and action = ${action} and actor_user_id is null and actor_key_id is null
    order by id`;
}
