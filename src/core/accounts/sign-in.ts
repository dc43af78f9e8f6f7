import { and, asc, eq } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { emailKeyOf } from './email.ts';
import type { OrganizationRole } from './principal.ts';
import { memberships, organizations, users } from './schema.ts';

/** What somebody signs in with. Ids are UUIDs. */
export interface SignInRecord {
  readonly userId: string;
  /** Of `hashPassword`; null for who has none. */
  readonly passwordHash: string | null;
  /** Those that are active, the one that was joined first first; none for who may not sign in. */
  readonly organizationIds: readonly string[];
}

/** An organization as a member of it knows it. */
export interface OwnOrganization {
  readonly id: string;
  readonly name: string;
  readonly role: OrganizationRole;
}

/**
 * Keeps password and memberships of a user as they are until the transaction ends: what begins by them and is committed
 * is there for the change that ends it. Both are as they are when the row is held. Null where there is no such user any
 * more.
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

/** The active organizations of a user, the one that was joined first first. */
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

/** Null where no account has the address. */
export async function findSignIn(db: Db, email: string): Promise<SignInRecord | null> {
  const [row] = await db.orm
    .select({ userId: users.id, passwordHash: users.passwordHash })
    .from(users)
    .where(eq(users.emailKey, emailKeyOf(email)));
  // Asked for nobody, too: how long it takes tells nothing.
  const found = await listOrganizationsOf(db, row?.userId ?? '00000000-0000-0000-0000-000000000000');
  return row === undefined ? null : { ...row, organizationIds: idsOf(found) };
}
