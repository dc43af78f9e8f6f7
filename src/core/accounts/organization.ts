import { and, count, desc, eq, inArray, sql } from 'drizzle-orm';
import type { ISql } from 'postgres';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { emailKeyOf } from './email.ts';
import type { OrganizationLimits } from './organization-limits.ts';
import type { PlatformRole } from './principal.ts';
import { insertProject, type Project } from './project.ts';
import { memberships, organizations, users } from './schema.ts';

/**
 * Keys of a suspended organization are rejected until it is active again; a closed organization has no keys and stays
 * closed.
 */
export type OrganizationStatus = 'active' | 'suspended' | 'closed';

/** Owner of a wallet, projects and keys. The id is a UUID. */
export interface Organization extends OrganizationLimits {
  readonly id: string;
  readonly name: string;
  readonly status: OrganizationStatus;
  /** True for the organization that runs the platform. */
  readonly isPlatform: boolean;
  readonly createdAtMs: number;
  readonly closedAtMs: number | null;
  /** Pico-dollars; administrators are notified when the balance falls below. Null: no notification. */
  readonly lowBalance: bigint | null;
  /** Time of the notification; null while the balance is not below. */
  readonly lowBalanceToldAtMs: number | null;
  /** Kinds of alerts that administrators get by email; null: the organization has not chosen. */
  readonly alertEmails: readonly string[] | null;
  /** True if members apply stacks to the organization's clusters; false: only owners and admins. */
  readonly membersMayApply: boolean;
}

export interface NewOrganization {
  readonly name: string;
  /** Null creates an owner who cannot sign in and has no rights beyond the organization. */
  readonly owner: NewOwner | null;
  /** True for the first organization of the installation. */
  readonly isFirst: boolean;
}

export interface NewOwner {
  readonly email: string;
  readonly name: string;
  /** Result of `hashPassword`; null for a user who cannot sign in. */
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

/** An organization being opened, with the parts created so far. */
export interface OrganizationOpening extends OrganizationMade {
  readonly isFirst: boolean;
  readonly author: Author;
}

/** Creates further parts of a new organization in the same transaction; an error undoes everything. */
export type JoinOpening = (tx: Transaction, opening: OrganizationOpening) => Promise<void>;

/** Returns an owner without a real address: the domain is reserved for names that must not exist (RFC 2606). */
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
  const fields = { id: uuidv7(now.getTime()), name: input.name, createdAt: now, platform: input.isFirst };
  const owner = input.owner ?? ownerWithoutAddress(fields.id);
  const ownerId = uuidv7(now.getTime());
  const [organization] = await tx.insert(organizations).values(fields).returning();
  if (organization === undefined) throw new Error('an organization was not inserted');
  await tx.insert(users).values({ id: ownerId, ...owner, emailKey: emailKeyOf(owner.email), createdAt: now });
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

export function toOrganization(row: typeof organizations.$inferSelect): Organization {
  const { createdAt, closedAt, platform, lowBalanceToldAt, ...fields } = row;
  return {
    ...fields,
    isPlatform: platform,
    createdAtMs: createdAt.getTime(),
    closedAtMs: closedAt === null ? null : closedAt.getTime(),
    lowBalanceToldAtMs: lowBalanceToldAt === null ? null : lowBalanceToldAt.getTime(),
  };
}

/** Returns the organizations that exist among these ids. */
export async function readOrganizations(db: Db, organizationIds: readonly string[]): Promise<readonly Organization[]> {
  const rows = await db.orm
    .select()
    .from(organizations)
    .where(inArray(organizations.id, [...organizationIds]));
  return rows.map(toOrganization);
}

/** Returns null before the organization exists. */
export async function readPlatformOrganization(db: Db): Promise<Organization | null> {
  const [row] = await db.orm.select().from(organizations).where(eq(organizations.platform, true)).limit(1);
  return row === undefined ? null : toOrganization(row);
}

/** Returns the owner of an organization, else an administrator; the first if there are several. */
export async function readOwner(db: Db, organizationId: string): Promise<string | null> {
  const [row] = await db.orm
    .select({ userId: memberships.userId })
    .from(memberships)
    .where(and(eq(memberships.organizationId, organizationId), inArray(memberships.role, ['owner', 'admin'])))
    .orderBy(desc(eq(memberships.role, 'owner')), memberships.createdAt, memberships.userId)
    .limit(1);
  return row?.userId ?? null;
}

const openedBefore = (id: string) =>
  sql`(${organizations.createdAt}, ${organizations.id}) < (
    select o.created_at, o.id from ${organizations} o where o.id = ${id}::uuid)`;

export async function listOrganizations(db: Db, limit: number, before: string | null): Promise<OrganizationPage> {
  const rows = await db.orm
    .select()
    .from(organizations)
    .where(before === null ? undefined : openedBefore(before))
    // Ordered by creation time: an id derived from an Idempotency-Key does not contain its time.
    .orderBy(desc(organizations.createdAt), desc(organizations.id))
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

/** Returns the creation time of the first organization, in milliseconds since the Unix epoch; null before that. */
export async function readFirstOrganizationMs(sql: ISql): Promise<number | null> {
  const [first] = await sql<{ atMs: number | null }[]>`
    select extract(epoch from min(created_at))::float8 * 1000 as "atMs" from organizations`;
  return first?.atMs ?? null;
}
