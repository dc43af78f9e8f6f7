import { and, asc, eq, inArray } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { memberships, users } from './schema.ts';

/** E-mail addresses of owners and admins; nobody reads the one that an owner without one was given. */
export async function readAdminAddresses({ orm }: Db, organizationId: string): Promise<readonly string[]> {
  const rows = await orm
    .select({ email: users.email })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .where(and(eq(memberships.organizationId, organizationId), inArray(memberships.role, ['owner', 'admin'])))
    .orderBy(asc(users.id));
  return rows.map(({ email }) => email).filter((email) => !email.endsWith('.invalid'));
}
