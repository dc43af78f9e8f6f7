import { and, count, eq, inArray, isNull, ne, notInArray } from 'drizzle-orm';
import { isUniqueViolation, type Transaction } from '#base/database/database.ts';
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
import { type Membership, toUser, type User, type UserRecord, type UserRow } from './user.ts';
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
  /** Result of `hashPassword`; null for a user who signs in through a provider. */
  readonly passwordHash: string | null;
  readonly role: OrganizationRole;
}

/** Keys that end with a user's removal: those in the organization that the user leaves, or all keys if null. */
export interface UserRemoval {
  readonly userId: string;
  readonly organizationId: string | null;
}

/** Returns the fields of a user that the audit log stores; nothing of the password. */
function auditView({ name, email, platformRole }: UserRow, role: OrganizationRole | null): AuditView {
  return { name, email, role, platform_role: platformRole };
}

/** Rejects an address that another account has, with the same error wherever that account is. */
export async function refusingTakenEmails<T>(change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'users_email_key_unique')) throw error;
    const message = 'An account with this email address already exists.';
    throw new AppError('conflict', { message, param: 'email', cause: error });
  }
}

/** @throws AppError not_found for an unknown organization, conflict for a closed one */
export async function insertUser(context: ChangeContext, input: NewUser, author: Author): Promise<User> {
  const { tx, audit, now } = context;
  const { organizationId, role, name, email, passwordHash } = input;
  const organization = await lockOrganization(tx, organizationId);
  if (organization === null) throw new AppError('not_found', { message: 'There is no such organization.' });
  if (organization.status === 'closed') {
    throw new AppError('conflict', { message: 'This organization is closed and cannot get new users.' });
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
 * Makes the user of an account a member of another organization. The transaction has locked both rows. Reset links made
 * by administrators of the user's other organizations become void: from now on only the person may change the account.
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

/** Revokes open invitations by a user who has left, or who may no longer give the invitation's role. */
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

/** @throws AppError conflict if nobody else administers the organization, unless it is closed */
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
  const message = "This user is the organization's last administrator. Make another user owner or administrator first.";
  throw new AppError('conflict', { message });
}

/** @throws AppError conflict */
async function requireOtherPlatformAdmin(tx: Transaction, { row }: UserRecord): Promise<void> {
  if (row.platformRole !== 'admin') return;
  const admins = await lockPlatformAdmins(tx);
  if (admins.some(({ id }) => id !== row.id)) return;
  throw new AppError('conflict', {
    message: 'This user is the last platform administrator. Make another user platform administrator first.',
  });
}

/** Applies changes in a transaction, and checks permissions again: they may have changed in the meantime. */
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
    throw new AppError('conflict', { message: 'The password of this user was changed at the same time. Try again.' });
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

/** Voids reset links and identities that were valid for the account before the change. */
async function closeWaysIn(
  context: UserChangeContext,
  before: UserRecord,
  { isSignIn, isRole }: { readonly isSignIn: boolean; readonly isRole: boolean },
  editor: UserEditor,
): Promise<void> {
  const userId = before.row.id;
  if (isSignIn || isRole) await closeResetLinks(context, userId);
  // A person who knew the previous address or password may have linked a provider in the meantime.
  if (isSignIn && !isSelf(before, editor)) await dropIdentities(context, userId, editor.author);
}

/** Ends sessions opened with the old password, except the session in which users change their own password. */
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
 * Removes a user from the editor's organization, and deletes the account if that was its only one; if the editor sees
 * all organizations, removes the user from all. Null if there is no such user. The caller ends the user's keys in the
 * same transaction.
 * @throws AppError insufficient_scope, conflict for the last administrator of an organization or the platform
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
  const removed = before.memberships.filter((one) => organizationId === null || one.organizationId === organizationId);
  const isLast = removed.length === before.memberships.length;
  for (const membership of removed) await requireOtherAdmin(tx, membership, userId);
  if (isLast) await requireOtherPlatformAdmin(tx, before);
  for (const membership of removed) {
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
