import { AppError } from '#base/errors.ts';
import type { Author } from '#core/audit/audit.ts';
import type { OrganizationRole } from './principal.ts';
import type { Membership, UserRecord, UserView } from './user.ts';

/** Somebody who changes users, and which of them he may. */
export interface UserEditor extends UserView {
  /** Who he is himself, or whom his key acts for; null for nobody. */
  readonly selfId: string | null;
  /** The roles that he may give, and whose holders he may change. */
  readonly gives: readonly OrganizationRole[];
  /** May change everybody. */
  readonly isPlatform: boolean;
  /** Of the caller, which may be another one than the one whose users he changes. */
  readonly ownOrganizationId: string;
  readonly author: Author;
}

/** What a change would change. */
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
 * The membership that a change of the role is about.
 * @throws AppError invalid_request_error where it is not said which
 */
export function membershipOf({ memberships }: UserRecord, { organizationId }: UserEditor): Membership {
  const those = memberships.filter((one) => organizationId === null || one.organizationId === organizationId);
  const [membership, ...others] = those;
  if (membership !== undefined && others.length === 0) return membership;
  throw new AppError('invalid_request_error', {
    message: 'This user is in several organizations: say by ?organization_id= in which of them the role is to change.',
    param: 'role',
  });
}

/** An account that belongs to other organizations too is its owner's own, and so is that of who may more. */
function requireHigher(record: UserRecord, editor: UserEditor): void {
  const { row, memberships } = record;
  const role = memberships.find(({ organizationId }) => organizationId === editor.organizationId)?.role;
  if (row.platformRole === 'admin') throw refused('Only a platform administrator may change this user.');
  if (role !== undefined && !editor.gives.includes(role)) {
    throw refused(
      `Who has the role "${role}" is changed by an owner of the organization, or by a platform administrator.`,
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
      `The role "${role}" is given by an owner of the organization, or by a platform administrator.`,
      'role',
    );
  }
  if (Object.keys(account).length === 0 || isSole(record)) return;
  throw refused('Name, e-mail address and password of this account are changed by the person whose it is.');
}

/** Whether somebody of an organization may give a user of it a new password. */
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
 * Whether a change takes the password that the account has: what one signs in with is changed by the person, and a key
 * that was handed to a program is not the person.
 * @throws AppError insufficient_scope where there is no password that could be asked for
 */
export function needsPassword(record: UserRecord, changes: UserChanges, editor: UserEditor): boolean {
  const isSignIn = changes.email !== undefined || changes.password !== undefined;
  if (!isSignIn || !isSelf(record, editor)) return false;
  const { passwordHash } = record.row;
  // A key of the platform mends what its holder has forgotten; a browser that was left open does not.
  if (editor.isPlatform) return passwordHash !== null && editor.author.actor.kind === 'user';
  if (passwordHash !== null) return true;
  // Who opened an organization by the API gives its owner a way to sign in.
  if (editor.gives.length > 0 && record.row.platformRole === 'user' && isSole(record)) return false;
  throw refused('This account has no password: an administrator of the organization sets the first one.');
}
