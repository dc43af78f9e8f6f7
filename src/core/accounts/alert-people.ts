import { and, asc, eq, inArray } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { memberships, organizations, users } from './schema.ts';

/** Administrators of an organization, as recipients of its alerts. */
export interface AlertPeople {
  /** Kinds of alerts sent by mail; null: the organization has not chosen. */
  readonly types: readonly string[] | null;
  /** UUIDs of administrators with an email address. */
  readonly userIds: readonly string[];
}

/** Recipient of a mail. */
export interface AlertReader {
  readonly email: string;
  readonly organizationName: string;
}

/** True for real addresses: nobody reads the generated address of an owner without one. */
const isRead = ({ email }: { readonly email: string }): boolean => !email.endsWith('.invalid');

const administers = inArray(memberships.role, ['owner', 'admin']);

/** Returns null for an unknown or closed organization. */
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

/** Reads one recipient from PostgreSQL; null for a user who no longer administers the organization. */
export async function readAlertReader(db: Db, organizationId: string, userId: string): Promise<AlertReader | null> {
  const [row] = await db.orm
    .select({ email: users.email, organizationName: organizations.name })
    .from(memberships)
    .innerJoin(users, eq(users.id, memberships.userId))
    .innerJoin(organizations, eq(organizations.id, memberships.organizationId))
    .where(and(eq(memberships.organizationId, organizationId), eq(users.id, userId), administers));
  return row !== undefined && isRead(row) ? row : null;
}
