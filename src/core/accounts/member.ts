import { and, asc, eq, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import type { Organization } from './organization.ts';
import type { OrganizationRole, PlatformRole } from './principal.ts';
import { type Project, toProject } from './project.ts';
import { memberships, organizations, projects, users } from './schema.ts';

/** A user as a member of an organization. */
export interface Member {
  readonly email: string;
  readonly name: string;
  readonly platformRole: PlatformRole;
  readonly organizationRole: OrganizationRole;
  readonly hasPassword: boolean;
  readonly organization: Pick<Organization, 'id' | 'name' | 'status' | 'membersMayApply'>;
  /** Default project for new keys: the oldest unarchived project, else the oldest. */
  readonly project: Project;
}

/** Reads a member from PostgreSQL; null if the user is not in the organization. */
export async function readMember(db: Db, userId: string, organizationId: string): Promise<Member | null> {
  const [row] = await db.orm
    .select({
      email: users.email,
      name: users.name,
      platformRole: users.platformRole,
      organizationRole: memberships.role,
      hasPassword: sql<boolean>`${users.passwordHash} is not null`,
      organization: {
        id: organizations.id,
        name: organizations.name,
        status: organizations.status,
        membersMayApply: organizations.membersMayApply,
      },
      project: projects,
    })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .innerJoin(organizations, eq(organizations.id, memberships.organizationId))
    .innerJoin(projects, eq(projects.organizationId, memberships.organizationId))
    .where(and(eq(memberships.userId, userId), eq(memberships.organizationId, organizationId)))
    .orderBy(asc(projects.archived), asc(projects.id))
    .limit(1);
  return row === undefined ? null : { ...row, project: toProject(row.project) };
}
