import { asc, eq } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { lockOrganization } from './organization.ts';
import { users } from './schema.ts';
import { readUser, type UserRecord, type UserView } from './user.ts';

/**
 * Locks all platform administrators, ordered by id: of two simultaneous removals, the second finds its user to be the
 * last.
 */
export function lockPlatformAdmins(tx: Transaction): Promise<readonly { readonly id: string }[]> {
  return tx
    .select({ id: users.id })
    .from(users)
    .where(eq(users.platformRole, 'admin'))
    .orderBy(asc(users.id))
    .for('update');
}

/**
 * Reads a user to change, after locking the user's organizations and then the user until the transaction ends.
 * @param beside further organizations to lock
 * @param leaves true locks all platform administrators before one of them, in the same order everywhere
 */
export async function lockUser(
  tx: Transaction,
  view: UserView,
  userId: string,
  { leaves = false, beside = [] }: { readonly leaves?: boolean; readonly beside?: readonly string[] } = {},
): Promise<UserRecord | null> {
  const seen = await readUser(tx, view, userId);
  const own = (seen?.memberships ?? []).map(({ organizationId }) => organizationId);
  const ids = [...new Set([...own, ...beside])].toSorted();
  for (const id of ids) await lockOrganization(tx, id);
  if (leaves && seen?.row.platformRole === 'admin') await lockPlatformAdmins(tx);
  return readUser(tx, view, userId, { lock: true });
}
