import type { Transaction } from '#base/db.ts';
import type { OrganizationRole } from './principal.ts';
import { type Role, rolesGivenAs } from './roles.ts';
import { readUserRoles } from './user.ts';

/** Who has made a link that somebody else uses later. Ids are UUIDs. */
export interface Maker {
  readonly userId: string;
  /** Where, and with the rights that count there. */
  readonly organizationId: string;
  /** A key acts as admin whatever the role of its user. */
  readonly byKey: boolean;
}

/**
 * What a maker is now, in an organization whose row the transaction holds: no role changes meanwhile. Null for who is
 * not of it any more.
 */
export async function roleOfMaker(tx: Transaction, { userId, organizationId, byKey }: Maker): Promise<Role | null> {
  const { isPlatformAdmin, organizationRole: role } = await readUserRoles(tx, organizationId, userId);
  if (isPlatformAdmin) return 'platform_admin';
  return role !== null && byKey ? 'admin' : role;
}

/** The roles that a maker may give now; none for who is not of the organization any more. */
export async function rolesGivenNow(tx: Transaction, maker: Maker): Promise<readonly OrganizationRole[]> {
  const role = await roleOfMaker(tx, maker);
  return role === null ? [] : rolesGivenAs(role);
}
