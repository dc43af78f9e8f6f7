import { count, desc, eq, lt } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import type { PlatformRole } from './principal.ts';
import { insertProject, type Project } from './project.ts';
import { memberships, organizations, users } from './schema.ts';

/** Whoever has a wallet, projects and keys. The id is a UUID. */
export interface Organization {
  readonly id: string;
  readonly name: string;
  readonly createdAtMs: number;
}

export interface NewOrganization {
  readonly name: string;
  /** Null makes an owner who cannot sign in and administers nothing beyond the organization. */
  readonly owner: NewOwner | null;
  /** Of the installation. */
  readonly isFirst: boolean;
}

export interface NewOwner {
  readonly email: string;
  readonly name: string;
  /** Of `hashPassword`; null for a user who cannot sign in. */
  readonly passwordHash: string | null;
  readonly platformRole: PlatformRole;
}

export interface OrganizationMade {
  readonly organization: Organization;
  readonly ownerId: string;
  /** The project `default`. */
  readonly project: Project;
}

export interface OrganizationPage {
  readonly organizations: readonly Organization[];
  readonly more: boolean;
}

/** An organization that is being opened, with what accounts have made of it. */
export interface OrganizationOpening extends OrganizationMade {
  readonly isFirst: boolean;
  readonly author: Author;
}

/** Makes what else an organization begins with, in the same transaction; what it throws undoes all of it. */
export type JoinOpening = (tx: Transaction, opening: OrganizationOpening) => Promise<void>;

/** The address of an owner who has none: the domain is reserved for names that must not exist (RFC 2606). */
const ownerWithoutAddress = (organizationId: string): NewOwner => ({
  email: `owner@${formatId('org', organizationId).replace('_', '-')}.invalid`,
  name: 'Owner',
  passwordHash: null,
  platformRole: 'user',
});

export async function insertOrganization(
  context: ChangeContext,
  input: NewOrganization,
  author: Author,
): Promise<OrganizationMade> {
  const { tx, audit, now } = context;
  const organization = { id: uuidv7(now.getTime()), name: input.name, createdAt: now };
  const owner = input.owner ?? ownerWithoutAddress(organization.id);
  const ownerId = uuidv7(now.getTime());
  await tx.insert(organizations).values(organization);
  await tx.insert(users).values({ id: ownerId, ...owner, createdAt: now });
  const membership = { organizationId: organization.id, userId: ownerId, role: 'owner' as const, createdAt: now };
  await tx.insert(memberships).values(membership);
  await audit.record(tx, {
    organizationId: organization.id,
    author,
    action: 'organization.created',
    targetType: 'organization',
    targetId: formatId('org', organization.id),
    before: null,
    after: { name: organization.name, owner_id: formatId('user', ownerId), owner_platform_role: owner.platformRole },
  });
  const project = await insertProject(
    context,
    { organizationId: organization.id, name: 'default', description: '', visibility: 'private' },
    author,
  );
  return { organization: toOrganization(organization), ownerId, project };
}

function toOrganization(row: typeof organizations.$inferSelect): Organization {
  return { id: row.id, name: row.name, createdAtMs: row.createdAt.getTime() };
}

export async function listOrganizations(db: Db, limit: number, before: string | null): Promise<OrganizationPage> {
  const rows = await db.orm
    .select()
    .from(organizations)
    .where(before === null ? undefined : lt(organizations.id, before))
    .orderBy(desc(organizations.id))
    .limit(limit + 1);
  return { organizations: rows.slice(0, limit).map(toOrganization), more: rows.length > limit };
}

export async function countOrganizations(tx: Transaction): Promise<number> {
  const [row] = await tx.select({ total: count() }).from(organizations);
  return row?.total ?? 0;
}

export async function lockOrganization(tx: Transaction, organizationId: string): Promise<Organization | null> {
  const [row] = await tx.select().from(organizations).where(eq(organizations.id, organizationId)).for('update');
  return row === undefined ? null : toOrganization(row);
}
