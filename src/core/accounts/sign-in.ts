import { and, asc, eq } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { emailKeyOf } from './email.ts';
import type { OrganizationRole } from './principal.ts';
import { memberships, organizations, users } from './schema.ts';

/** Data that a sign-in is checked against. Ids are UUIDs. */
export interface SignInRecord {
  readonly userId: string;
  /** Result of `hashPassword`; null for a user without a password. */
  readonly passwordHash: string | null;
  /** Active organizations, in the order in which the user joined; empty for a user who may not sign in. */
  readonly organizationIds: readonly string[];
}

/** An organization as seen by a member. */
export interface OwnOrganization {
  readonly id: string;
  readonly name: string;
  readonly role: OrganizationRole;
}

/**
 * Locks password and memberships of a user until the transaction ends, and returns both as they are under the lock.
 * What starts with them and commits is then visible to the change that ends it. Null if the user no longer exists.
 */
export async function holdSignIn(tx: Transaction, userId: string): Promise<SignInRecord | null> {
  const [row] = await tx
    .select({ userId: users.id, passwordHash: users.passwordHash })
    .from(users)
    .where(eq(users.id, userId))
    .for('share');
  return row === undefined ? null : { ...row, organizationIds: idsOf(await selectOrganizationsOf(tx, userId)) };
}

const idsOf = (own: readonly OwnOrganization[]): readonly string[] => own.map(({ id }) => id);

/** Lists the active organizations of a user, in the order in which the user joined. */
export function listOrganizationsOf(db: Db, userId: string): Promise<readonly OwnOrganization[]> {
  return selectOrganizationsOf(db.orm, userId);
}

function selectOrganizationsOf(
  reader: Pick<Transaction, 'select'>,
  userId: string,
): Promise<readonly OwnOrganization[]> {
  return reader
    .select({ id: organizations.id, name: organizations.name, role: memberships.role })
    .from(memberships)
    .innerJoin(organizations, eq(organizations.id, memberships.organizationId))
    .where(and(eq(memberships.userId, userId), eq(organizations.status, 'active')))
    .orderBy(asc(memberships.createdAt), asc(memberships.organizationId));
}

/** Returns null if no account has the address. */
export async function findSignIn(db: Db, email: string): Promise<SignInRecord | null> {
  const [row] = await db.orm
    .select({ userId: users.id, passwordHash: users.passwordHash })
    .from(users)
    .where(eq(users.emailKey, emailKeyOf(email)));
  // Also runs without an account, so that the response time reveals nothing.
  const found = await listOrganizationsOf(db, row?.userId ?? '00000000-0000-0000-0000-000000000000');
  return row === undefined ? null : { ...row, organizationIds: idsOf(found) };
}
