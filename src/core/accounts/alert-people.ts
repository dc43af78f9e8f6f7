import { and, asc, eq, inArray } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { memberships, organizations, users } from './schema.ts';

/** Those who administer an organization, as its alerts find them. */
export interface AlertPeople {
  /** Kinds of alerts that they get by mail; null: the organization has not chosen. */
  readonly types: readonly string[] | null;
  /** UUIDs of those with an address. */
  readonly userIds: readonly string[];
}

/** Whom a mail goes to. */
export interface AlertReader {
  readonly email: string;
  readonly organizationName: string;
}

/** Nobody reads the address that an owner without one was given. */
const isRead = ({ email }: { readonly email: string }): boolean => !email.endsWith('.invalid');

const administers = inArray(memberships.role, ['owner', 'admin']);

/** Null when there is no such organization, and for a closed one. */
export async function readAlertPeople(db: Db, organizationId: string): Promise<AlertPeople | null> {
  const [organization] = await db.orm.select().from(organizations).where(eq(organizations.id, organizationId));
  if (organization === undefined || organization.status === 'closed') return null;
  const rows = await db.orm
    .select({ id: users.id, email: users.email })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .where(and(eq(memberships.organizationId, organizationId), administers))
    .orderBy(asc(users.id));
  return { types: organization.alertEmails, userIds: rows.filter(isRead).map(({ id }) => id) };
}

/** As PostgreSQL has it now; null for who does not administer the organization any more. */
export async function readAlertReader(db: Db, organizationId: string, userId: string): Promise<AlertReader | null> {
  const [row] = await db.orm
    .select({ email: users.email, organizationName: organizations.name })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .innerJoin(organizations, eq(organizations.id, memberships.organizationId))
    .where(and(eq(memberships.organizationId, organizationId), eq(users.id, userId), administers));
  return row !== undefined && isRead(row) ? row : null;
}
