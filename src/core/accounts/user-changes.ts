import { and, asc, count, eq, inArray, ne } from 'drizzle-orm';
import { isUniqueViolation, type Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { emailKeyOf } from './email.ts';
import { lockOrganization } from './organization.ts';
import type { OrganizationRole } from './principal.ts';
import { memberships, organizations, users } from './schema.ts';
import { readUser, toUser, type Membership, type User, type UserRecord, type UserRow } from './user.ts';
import { membershipOf, requireMayChange, requireMayRemove, type UserChanges, type UserEditor } from './user-editor.ts';

export interface NewUser {
  readonly organizationId: string;
  readonly name: string;
  readonly email: string;
  /** Of `hashPassword`. */
  readonly passwordHash: string;
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
  const { organizationId, role, ...fields } = input;
  const organization = await lockOrganization(tx, organizationId);
  if (organization === null) throw new AppError('not_found', { message: 'There is no such organization.' });
  if (organization.status === 'closed') {
    throw new AppError('conflict', { message: 'This organization is closed and gets no new users.' });
  }
  const row: UserRow = {
    id: uuidv7(now.getTime()),
    ...fields,
    emailKey: emailKeyOf(fields.email),
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

/** All of them are held, by id: of two that are removed at once the second one is the last. */
function lockPlatformAdmins(tx: Transaction): Promise<readonly { readonly id: string }[]> {
  return tx
    .select({ id: users.id })
    .from(users)
    .where(eq(users.platformRole, 'admin'))
    .orderBy(asc(users.id))
    .for('update');
}

/**
 * A user to be changed, with his organizations and then himself held until the transaction ends.
 * @param leaves before one of those who administer the platform all of them are held, in one order for everybody
 */
async function lockUser(
  tx: Transaction,
  editor: UserEditor,
  userId: string,
  { leaves = false }: { readonly leaves?: boolean } = {},
): Promise<UserRecord | null> {
  const seen = await readUser(tx, editor, userId);
  const ids = (seen?.memberships ?? []).map(({ organizationId }) => organizationId).toSorted();
  for (const id of ids) await lockOrganization(tx, id);
  if (leaves && seen?.row.platformRole === 'admin') await lockPlatformAdmins(tx);
  return readUser(tx, editor, userId, { lock: true });
}

/** The changes that a transaction makes, asked again for what may be: something may have changed meanwhile. */
export async function updateUser(
  { tx, audit }: ChangeContext,
  userId: string,
  given: { readonly changes: UserChanges; readonly passwordHash: string | null; readonly checked: UserRecord },
  editor: UserEditor,
): Promise<User | null> {
  const before = await lockUser(tx, editor, userId);
  if (before === null) return null;
  const { changes, passwordHash, checked } = given;
  requireMayChange(before, changes, editor);
  const isSignIn = changes.email !== undefined || changes.password !== undefined;
  if (isSignIn && before.row.passwordHash !== checked.row.passwordHash) {
    throw new AppError('conflict', { message: 'The password of this user was changed at the same time: try again.' });
  }
  const row = await updateAccount(tx, before.row, changes, passwordHash);
  const { memberships: all } = await updateRole(tx, before, changes, editor);
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
  tx: Transaction,
  before: UserRecord,
  { role }: UserChanges,
  editor: UserEditor,
): Promise<UserRecord> {
  if (role === undefined) return before;
  const membership = membershipOf(before, editor);
  if (!manages(role)) await requireOtherAdmin(tx, membership, before.row.id);
  await tx.update(memberships).set({ role }).where(isMembership(before.row.id, membership));
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
  { tx, audit }: ChangeContext,
  userId: string,
  editor: UserEditor,
): Promise<UserRemoval | null> {
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
  if (isLast) await tx.delete(users).where(eq(users.id, userId));
  return { userId, organizationId: isLast ? null : organizationId };
}
