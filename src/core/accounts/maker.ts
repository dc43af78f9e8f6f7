import type { Transaction } from '#base/database/database.ts';
import type { OrganizationRole } from './principal.ts';
import { type Role, rolesGivenAs } from './roles.ts';
import { readUserRoles } from './user.ts';

/** Creator of a link that somebody else uses later. Ids are UUIDs. */
export interface Maker {
  readonly userId: string;
  /** Organization in which the link was created, with the creator's rights there. */
  readonly organizationId: string;
  /** True if created with a key: a key acts as admin whatever the role of its user. */
  readonly byKey: boolean;
}

/**
 * Returns the current role of a maker in an organization whose row the transaction has locked, so that no role changes
 * meanwhile. Null for a maker who has left the organization.
 */
export async function roleOfMaker(tx: Transaction, { userId, organizationId, byKey }: Maker): Promise<Role | null> {
  const { isPlatformAdmin, organizationRole: role } = await readUserRoles(tx, organizationId, userId);
  if (isPlatformAdmin) return 'platform_admin';
  return role !== null && byKey ? 'admin' : role;
}

/** Returns the roles that a maker may give now; none for a maker who has left the organization. */
export async function rolesGivenNow(tx: Transaction, maker: Maker): Promise<readonly OrganizationRole[]> {
  const role = await roleOfMaker(tx, maker);
  return role === null ? [] : rolesGivenAs(role);
}
