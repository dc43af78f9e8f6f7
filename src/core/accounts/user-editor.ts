import { AppError } from '#base/errors.ts';
import type { Author } from '#core/audit/audit.ts';
import type { OrganizationRole } from './principal.ts';
import type { Membership, UserRecord, UserView } from './user.ts';

/** An actor that changes users, with the limits of which users. */
export interface UserEditor extends UserView {
  /** UUID of the editor, or of the user whom the editor's key acts for; null for none. */
  readonly selfId: string | null;
  /** Roles that the editor may give, and whose holders the editor may change. */
  readonly gives: readonly OrganizationRole[];
  /** True if the editor may change everybody. */
  readonly isPlatform: boolean;
  /** Organization of the editor, which may differ from the one whose users are changed. */
  readonly ownOrganizationId: string;
  readonly author: Author;
}

/** Changes to apply; absent fields stay unchanged. */
export interface UserChanges {
  readonly name?: string;
  readonly email?: string;
  readonly password?: string;
  readonly role?: OrganizationRole;
}

const refused = (message: string, param?: string): AppError =>
  new AppError('insufficient_scope', { message, ...(param !== undefined && { param }) });

export const isSelf = ({ row }: UserRecord, { selfId }: Pick<UserEditor, 'selfId'>): boolean => row.id === selfId;

/**
 * Returns the membership that a change of the role applies to.
 * @throws AppError invalid_request_error if several could be meant
 */
export function membershipOf({ memberships }: UserRecord, { organizationId }: UserEditor): Membership {
  const those = memberships.filter((one) => organizationId === null || one.organizationId === organizationId);
  const [membership, ...others] = those;
  if (membership !== undefined && others.length === 0) return membership;
  throw new AppError('invalid_request_error', {
    message: 'This user is in several organizations. Set ?organization_id= to the one in which to change the role.',
    param: 'role',
  });
}

/** Rejects changes of platform administrators, and of holders of a role that the editor may not give. */
function requireHigher(record: UserRecord, editor: UserEditor): void {
  const { row, memberships } = record;
  const role = memberships.find(({ organizationId }) => organizationId === editor.organizationId)?.role;
  if (row.platformRole === 'admin') throw refused('Only a platform administrator can change this user.');
  if (role !== undefined && !editor.gives.includes(role)) {
    throw refused(
      `Only an owner of the organization or a platform administrator can change a user with the role "${role}".`,
    );
  }
}

const isSole = ({ memberships }: UserRecord): boolean => memberships.length <= 1;

/** @throws AppError insufficient_scope */
export function requireMayChange(record: UserRecord, changes: UserChanges, editor: UserEditor): void {
  if (editor.isPlatform || isSelf(record, editor)) return;
  requireHigher(record, editor);
  const { role, ...account } = changes;
  if (role !== undefined && !editor.gives.includes(role)) {
    throw refused(
      `Only an owner of the organization or a platform administrator can assign the role "${role}".`,
      'role',
    );
  }
  if (Object.keys(account).length === 0 || isSole(record)) return;
  throw refused('Only the owner of this account can change its name, email address and password.');
}

/** True if a member of an organization may set a new password for another user of it. */
export function mayReset(
  record: UserRecord,
  by: Pick<UserEditor, 'selfId' | 'organizationId' | 'gives' | 'isPlatform'>,
): boolean {
  if (by.isPlatform || isSelf(record, by)) return true;
  const { row, memberships } = record;
  const role = memberships.find(({ organizationId }) => organizationId === by.organizationId)?.role;
  return row.platformRole !== 'admin' && role !== undefined && by.gives.includes(role) && isSole(record);
}

/** @throws AppError insufficient_scope */
export function requireMayRemove(record: UserRecord, editor: UserEditor): void {
  if (!editor.isPlatform && !isSelf(record, editor)) requireHigher(record, editor);
}

/**
 * True if a change requires the account's current password: only the person changes their sign-in, and a key that was
 * given to a program is not the person.
 * @throws AppError insufficient_scope if the account has no password to ask for
 */
export function needsPassword(record: UserRecord, changes: UserChanges, editor: UserEditor): boolean {
  const isSignIn = changes.email !== undefined || changes.password !== undefined;
  if (!isSignIn || !isSelf(record, editor)) return false;
  const { passwordHash } = record.row;
  // With a platform key an administrator can fix a forgotten password; with an unattended browser nobody can.
  if (editor.isPlatform) return passwordHash !== null && editor.author.actor.kind === 'user';
  if (passwordHash !== null) return true;
  // A management key may set the first password, so that an owner created by the API can sign in.
  if (editor.gives.length > 0 && record.row.platformRole === 'user' && isSole(record)) return false;
  throw refused('This account has no password. An administrator of the organization must set the first one.');
}
