import { asc, eq } from 'drizzle-orm';
import type { Transaction } from '#base/db.ts';
import { lockOrganization } from './organization.ts';
import { users } from './schema.ts';
import { readUser, type UserRecord, type UserView } from './user.ts';

/** All of them are held, by id: of two that are removed at once the second one is the last. */
export function lockPlatformAdmins(tx: Transaction): Promise<readonly { readonly id: string }[]> {
  return tx
    .select({ id: users.id })
    .from(users)
    .where(eq(users.platformRole, 'admin'))
    .orderBy(asc(users.id))
    .for('update');
}

/**
 * A user to be changed, with his organizations and then himself held until the transaction ends.
 * @param beside organizations that are held, too
 * @param leaves before one of those who administer the platform all of them are held, in one order for everybody
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
