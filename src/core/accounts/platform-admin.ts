import { asc, eq } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { memberships, projects, users } from './schema.ts';

/** A platform administrator, with a place for their keys. Ids are UUIDs. */
export interface PlatformAdmin {
  readonly userId: string;
  readonly email: string;
  readonly organizationId: string;
  /** Oldest unarchived project of the organization, else the oldest. */
  readonly projectId: string;
}

/** Lists platform administrators, oldest first; each with their first organization. */
export async function listPlatformAdmins(tx: Transaction): Promise<readonly PlatformAdmin[]> {
  const rows = await tx
    .select({
      userId: users.id,
      email: users.email,
      organizationId: memberships.organizationId,
      projectId: projects.id,
    })
    .from(users)
    .innerJoin(memberships, eq(memberships.userId, users.id))
    .innerJoin(projects, eq(projects.organizationId, memberships.organizationId))
    .where(eq(users.platformRole, 'admin'))
    .orderBy(asc(users.id), asc(memberships.organizationId), asc(projects.archived), asc(projects.id));
  return [...Map.groupBy(rows, ({ userId }) => userId).values()].flatMap((own) => own.slice(0, 1));
}

/** Reads the addresses of platform administrators, and the hashes of their passwords if they have one. */
export async function readAdminSignIns(
  db: Db,
): Promise<readonly { readonly email: string; readonly passwordHash: string | null }[]> {
  return db.orm
    .select({ email: users.email, passwordHash: users.passwordHash })
    .from(users)
    .where(eq(users.platformRole, 'admin'));
}
