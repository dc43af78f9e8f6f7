import { asc, eq } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { memberships, projects, users } from './schema.ts';

/** A user who administers the platform, with a place for keys of theirs. Ids are UUIDs. */
export interface PlatformAdmin {
  readonly userId: string;
  readonly email: string;
  readonly organizationId: string;
  /** The oldest one of the organization that is not archived, else the oldest. */
  readonly projectId: string;
}

/** Oldest first; an admin of several organizations is there with the first of them. */
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

/** What the platform's admins sign in with: their address, and the hash of their password if they have one. */
export async function readAdminSignIns(
  db: Db,
): Promise<readonly { readonly email: string; readonly passwordHash: string | null }[]> {
  return db.orm
    .select({ email: users.email, passwordHash: users.passwordHash })
    .from(users)
    .where(eq(users.platformRole, 'admin'));
}
