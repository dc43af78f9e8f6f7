import { and, count, eq, inArray, isNull, ne, notInArray } from 'drizzle-orm';
import { isUniqueViolation, type Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import type { ChangeContext, UserChangeContext } from './change.ts';
import { emailKeyOf } from './email.ts';
import { lockOrganization } from './organization.ts';
import type { OrganizationRole } from './principal.ts';
import { invitations, memberships, organizations, users } from './schema.ts';
import { dropIdentities } from './linked-identities.ts';
import { closeResetLinks } from './reset-link.ts';
import { rolesGivenAs } from './roles.ts';
import { toUser, type Membership, type User, type UserRecord, type UserRow } from './user.ts';
import {
  isSelf,
  membershipOf,
  requireMayChange,
  requireMayRemove,
  type UserChanges,
  type UserEditor,
} from './user-editor.ts';
import { lockPlatformAdmins, lockUser } from './user-lock.ts';

export interface NewUser {
  readonly organizationId: string;
  readonly name: string;
  readonly email: string;
  /** Of `hashPassword`; null for who signs in otherwise. */
  readonly passwordHash: string | null;
  readonly role: OrganizationRole;
}

/** Which keys end with a user: those of an organization that he leaves, all of them where it is null. */
export interface UserRemoval {
  readonly userId: string;
  readonly organizationId: string | null;
}

/** What the audit keeps of a user; of his password nothing. */
function auditView({ name, email, platformRole }: UserRow, role: OrganizationRole | null): AuditView {
  return { name, email, role, platform_role: platformRole };
}

/** One account has an address; the answer is the same wherever that account is. */
export async function refusingTakenEmails<T>(change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'users_email_key_unique')) throw error;
    const message = 'There is an account with this e-mail address already.';
    throw new AppError('conflict', { message, param: 'email', cause: error });
  }
}

/** @throws AppError conflict for a closed organization */
export async function insertUser(context: ChangeContext, input: NewUser, author: Author): Promise<User> {
  const { tx, audit, now } = context;
  const { organizationId, role, name, email, passwordHash } = input;
  const organization = await lockOrganization(tx, organizationId);
  if (organization === null) throw new AppError('not_found', { message: 'There is no such organization.' });
  if (organization.status === 'closed') {
    throw new AppError('conflict', { message: 'This organization is closed and gets no new users.' });
  }
  const row: UserRow = {
    id: uuidv7(now.getTime()),
    name,
    email,
    passwordHash,
    emailKey: emailKeyOf(email),
    platformRole: 'user',
    createdAt: now,
  };
  await tx.insert(users).values(row);
  await tx.insert(memberships).values({ organizationId, userId: row.id, role, createdAt: now });
  await audit.record(tx, {
    organizationId,
    author,
    action: 'user.created',
    targetType: 'user',
    targetId: formatId('user', row.id),
    before: null,
    after: auditView(row, role),
  });
  return toUser({ row, memberships: [{ organizationId, role }] }, { organizationId, userId: null });
}

/**
 * Somebody who has an account becomes a member of one more organization. The transaction holds both rows. Links to a new
 * password that administrators of the others have are void: the account is the person's alone from now on.
 */
export async function insertMembership(
  { tx, audit, now }: ChangeContext,
  { organizationId, role, user }: { organizationId: string; role: OrganizationRole; user: UserRow },
  author: Author,
): Promise<void> {
  const row = { organizationId, userId: user.id, role, createdAt: now };
  const added = await tx.insert(memberships).values(row).onConflictDoNothing().returning();
  if (added.length === 0) return;
  await closeResetLinks({ tx, now }, user.id);
  await audit.record(tx, {
    organizationId,
    author,
    action: 'user.joined',
    targetType: 'user',
    targetId: formatId('user', user.id),
    before: null,
    after: auditView(user, role),
  });
}

/** Who has left has asked nobody in, and who has a lower role nobody with a role that he may not give any more. */
async function revokeInvitations(
  { tx, now }: ChangeContext,
  { userId, organizationId }: { readonly userId: string; readonly organizationId: string },
  gives: readonly OrganizationRole[],
): Promise<void> {
  await tx
    .update(invitations)
    .set({ revokedAt: now })
    .where(
      and(
        eq(invitations.organizationId, organizationId),
        eq(invitations.invitedBy, userId),
        isNull(invitations.acceptedAt),
        isNull(invitations.revokedAt),
        gives.length === 0 ? undefined : notInArray(invitations.role, [...gives]),
      ),
    );
}

const manages = (role: OrganizationRole): boolean => role !== 'member';

/** @throws AppError conflict where nobody else administers the organization; a closed one needs nobody */
async function requireOtherAdmin(tx: Transaction, { organizationId, role }: Membership, userId: string): Promise<void> {
  if (!manages(role)) return;
  const [other] = await tx
    .select({ total: count() })
    .from(memberships)
    .where(
      and(
        eq(memberships.organizationId, organizationId),
        ne(memberships.userId, userId),
        inArray(memberships.role, ['owner', 'admin']),
      ),
    );
  if ((other?.total ?? 0) > 0) return;
  const [organization] = await tx
    .select({ status: organizations.status })
    .from(organizations)
    .where(eq(organizations.id, organizationId));
  if (organization?.status === 'closed') return;
  const message = 'Nobody else administers the organization: make another user its owner or administrator first.';
  throw new AppError('conflict', { message });
}

/** @throws AppError conflict */
async function requireOtherPlatformAdmin(tx: Transaction, { row }: UserRecord): Promise<void> {
  if (row.platformRole !== 'admin') return;
  const admins = await lockPlatformAdmins(tx);
  if (admins.some(({ id }) => id !== row.id)) return;
  throw new AppError('conflict', { message: 'Nobody else administers the platform.' });
}

/** The changes that a transaction makes, asked again for what may be: something may have changed meanwhile. */
export async function updateUser(
  context: UserChangeContext,
  userId: string,
  given: { readonly changes: UserChanges; readonly passwordHash: string | null; readonly checked: UserRecord },
  editor: UserEditor,
): Promise<User | null> {
  const { tx, audit } = context;
  const before = await lockUser(tx, editor, userId);
  if (before === null) return null;
  const { changes, passwordHash, checked } = given;
  requireMayChange(before, changes, editor);
  const isSignIn = changes.email !== undefined || changes.password !== undefined;
  if (isSignIn && before.row.passwordHash !== checked.row.passwordHash) {
    throw new AppError('conflict', { message: 'The password of this user was changed at the same time: try again.' });
  }
  const row = await updateAccount(tx, before.row, changes, passwordHash);
  await closeWaysIn(context, before, { isSignIn, isRole: changes.role !== undefined }, editor);
  if (passwordHash !== null) await endOthers(context, before, editor);
  const { memberships: all } = await updateRole(context, before, changes, editor);
  const home = all.find(({ organizationId }) => organizationId === editor.organizationId) ?? all[0];
  const was = before.memberships.find(({ organizationId }) => organizationId === home?.organizationId);
  await audit.record(tx, {
    organizationId: home?.organizationId ?? editor.ownOrganizationId,
    author: editor.author,
    action: 'user.changed',
    targetType: 'user',
    targetId: formatId('user', userId),
    before: auditView(before.row, was?.role ?? null),
    after: { ...auditView(row, home?.role ?? null), ...(passwordHash !== null && { password_changed: true }) },
  });
  return toUser({ row, memberships: all }, editor);
}

/** Links that were good for the account as it was. */
async function closeWaysIn(
  context: UserChangeContext,
  before: UserRecord,
  { isSignIn, isRole }: { readonly isSignIn: boolean; readonly isRole: boolean },
  editor: UserEditor,
): Promise<void> {
  const userId = before.row.id;
  if (isSignIn || isRole) await closeResetLinks(context, userId);
  // Whoever had the address or the password set may have signed in by a provider and been linked meanwhile.
  if (isSignIn && !isSelf(before, editor)) await dropIdentities(context, userId, editor.author);
}

/** Who knew the old password is out; who changed the own one stays where it was changed. */
async function endOthers({ endAccess }: UserChangeContext, before: UserRecord, editor: UserEditor): Promise<void> {
  const { actor } = editor.author;
  const keptSessionId = actor.kind === 'user' && isSelf(before, editor) ? actor.sessionId : null;
  await endAccess({ userId: before.row.id, organizationId: null, keptSessionId, author: editor.author });
}

async function updateAccount(
  tx: Transaction,
  before: UserRow,
  { name, email }: UserChanges,
  passwordHash: string | null,
): Promise<UserRow> {
  const fields = {
    ...(name !== undefined && { name }),
    ...(email !== undefined && { email, emailKey: emailKeyOf(email) }),
    ...(passwordHash !== null && { passwordHash }),
  };
  if (Object.keys(fields).length === 0) return before;
  const [row] = await tx.update(users).set(fields).where(eq(users.id, before.id)).returning();
  if (row === undefined) throw new Error('a locked row was not updated');
  return row;
}

async function updateRole(
  context: ChangeContext,
  before: UserRecord,
  { role }: UserChanges,
  editor: UserEditor,
): Promise<UserRecord> {
  if (role === undefined) return before;
  const { tx } = context;
  const membership = membershipOf(before, editor);
  if (!manages(role)) await requireOtherAdmin(tx, membership, before.row.id);
  await tx.update(memberships).set({ role }).where(isMembership(before.row.id, membership));
  const gives = rolesGivenAs(before.row.platformRole === 'admin' ? 'platform_admin' : role);
  const { organizationId } = membership;
  await revokeInvitations(context, { userId: before.row.id, organizationId }, gives);
  const changed = before.memberships.map((one) => (one === membership ? { ...one, role } : one));
  return { ...before, memberships: changed };
}

const isMembership = (userId: string, { organizationId }: Membership) =>
  and(eq(memberships.userId, userId), eq(memberships.organizationId, organizationId));

/**
 * Takes a user out of the organization, and his account away where it was the only one; everywhere for who sees all.
 * Null when there is no such user. His keys are the caller's to end, in the same transaction.
 * @throws AppError insufficient_scope, conflict for the last who administers an organization or the platform
 */
export async function removeUser(
  context: UserChangeContext,
  userId: string,
  editor: UserEditor,
): Promise<UserRemoval | null> {
  const { tx, audit, endAccess } = context;
  const before = await lockUser(tx, editor, userId, { leaves: true });
  if (before === null) return null;
  requireMayRemove(before, editor);
  const { organizationId } = editor;
  const left = before.memberships.filter((one) => organizationId === null || one.organizationId === organizationId);
  const isLast = left.length === before.memberships.length;
  for (const membership of left) await requireOtherAdmin(tx, membership, userId);
  if (isLast) await requireOtherPlatformAdmin(tx, before);
  for (const membership of left) {
    await tx.delete(memberships).where(isMembership(userId, membership));
    await revokeInvitations(context, { userId, organizationId: membership.organizationId }, []);
    await audit.record(tx, {
      organizationId: membership.organizationId,
      author: editor.author,
      action: isLast ? 'user.deleted' : 'user.removed',
      targetType: 'user',
      targetId: formatId('user', userId),
      before: auditView(before.row, membership.role),
      after: null,
    });
  }
  await endAccess({
    userId,
    organizationId: isLast ? null : organizationId,
    keptSessionId: null,
    author: editor.author,
  });
  if (isLast) await tx.delete(users).where(eq(users.id, userId));
  return { userId, organizationId: isLast ? null : organizationId };
}
