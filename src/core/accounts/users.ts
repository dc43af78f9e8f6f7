import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { createThrottle, type Throttle, type ThrottleOptions } from '#base/redis/redis.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { AccessEnd } from './access-end.ts';
import type { UserChangeContext } from './change.ts';
import { hashPassword, verifyPassword } from './password.ts';
import type { OrganizationRole } from './principal.ts';
import type { Paging } from './paging.ts';
import { createIdentities, type Identities } from './identity.ts';
import { createInvitations, type Invitations } from './invitation.ts';
import { createResetLinks, type ResetLinks } from './reset-link.ts';
import { findSignIn, holdSignIn, listOrganizationsOf, type OwnOrganization, type SignInRecord } from './sign-in.ts';
import {
  listUsers,
  readUser,
  toUser,
  type User,
  type UserPage,
  type UserRecord,
  type UserSort,
  type UserView,
} from './user.ts';
import {
  insertUser,
  type NewUser,
  refusingTakenEmails,
  removeUser,
  updateUser,
  type UserRemoval,
} from './user-changes.ts';
import { isSelf, needsPassword, requireMayChange, type UserChanges, type UserEditor } from './user-editor.ts';

/** Fields of a user that can be changed. Absent and undefined fields stay unchanged. */
export interface UserPatch {
  readonly name?: string | undefined;
  readonly email?: string | undefined;
  readonly password?: string | undefined;
  /** Ignored for the editor's own account. */
  readonly role?: OrganizationRole | undefined;
  /** Current password, required from people who change their own sign-in. */
  readonly currentPassword?: string | undefined;
}

/** Manages people with an account, members of organizations. */
export interface Users {
  list(view: UserView, paging: Paging<UserSort>): Promise<UserPage>;
  /** Returns null if there is no such user, or the view does not include them. */
  find(view: UserView, userId: string): Promise<User | null>;
  /**
   * Creates an account that is a member of one organization.
   * @throws AppError conflict for an address that has an account and for a closed organization, overloaded
   */
  create(input: Omit<NewUser, 'passwordHash'> & { readonly password: string }, author: Author): Promise<User>;
  /**
   * Returns null if there is no such user, or the editor does not see them.
   * @throws AppError insufficient_scope, invalid_request_error, overloaded, conflict for an address that has an account
   *   and for the last administrator of an organization
   */
  change(userId: string, patch: UserPatch, editor: UserEditor): Promise<User | null>;
  /** Reads the data that a sign-in is checked against; null if no account has the address. Takes equally long then. */
  findSignIn(email: string): Promise<SignInRecord | null>;
  /**
   * Locks password and memberships of a user until the transaction ends, and returns both as they are then. Null if the
   * user no longer exists.
   */
  holdSignIn(tx: Transaction, userId: string): Promise<SignInRecord | null>;
  /** Lists the active organizations of a user, in the order in which the user joined. */
  organizationsOf(userId: string): Promise<readonly OwnOrganization[]>;
  readonly resetLinks: ResetLinks;
  readonly invitations: Invitations;
  readonly identities: Identities;
  /** See `removeUser`; the caller ends the user's keys. */
  removeIn(tx: Transaction, userId: string, editor: UserEditor): Promise<UserRemoval | null>;
}

export interface UsersOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly endAccess: (tx: Transaction, end: AccessEnd) => Promise<void>;
  /** Store that counts wrong passwords, shared by all gateways. */
  readonly guesses: Pick<ThrottleOptions, 'store' | 'prefix'>;
}

/** Returns the fields of a patch that differ from the current values. */
function changesOf(record: UserRecord, patch: UserPatch, editor: UserEditor): UserChanges {
  const { row, memberships } = record;
  const { name, email, password, role } = patch;
  const [has, ...others] = memberships.filter((one) => [null, one.organizationId].includes(editor.organizationId));
  const isSame = role === undefined || (has?.role === role && others.length === 0);
  return {
    ...(name !== undefined && name !== row.name && { name }),
    ...(email !== undefined && email !== row.email && { email }),
    ...(password !== undefined && { password }),
    ...(!isSame && !isSelf(record, editor) && { role }),
  };
}

/** Wrong passwords per account and hour; the bound keeps guessing from succeeding. */
const wrongPasswordsMax = 10;

/** @throws AppError rate_limit_exceeded */
async function isRight(guesses: Throttle, { row }: UserRecord, given: string): Promise<boolean> {
  const { allowed, resetMs } = await guesses.hit(row.id);
  if (!allowed) {
    throw new AppError('rate_limit_exceeded', {
      message: 'Too many wrong passwords for this account. Try again later.',
      headers: { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) },
      reason: 'wrong_passwords',
    });
  }
  if (!(await verifyPassword(given, row.passwordHash ?? '', row.id))) return false;
  await guesses.giveBack(row.id);
  return true;
}

/** @throws AppError invalid_request_error, rate_limit_exceeded */
async function requirePassword(guesses: Throttle, record: UserRecord, given: string | undefined): Promise<void> {
  if (given !== undefined && (await isRight(guesses, record, given))) return;
  const message =
    given === undefined
      ? 'is missing: it is required to change the email address or the password'
      : 'is not the password of this account';
  throw new AppError('invalid_request_error', { message: `current_password: ${message}`, param: 'current_password' });
}

export function createUsers({ db, clock, audit, endAccess, guesses: counted }: UsersOptions): Users {
  const inside = (tx: Transaction): UserChangeContext => ({
    tx,
    audit,
    now: new Date(clock.now()),
    endAccess: (end) => endAccess(tx, end),
  });
  const guesses = createThrottle({
    kind: 'passwords',
    limit: wrongPasswordsMax,
    windowSeconds: 3600,
    ...counted,
  });
  return {
    list: (view, paging) => listUsers(db, view, paging),
    async find(view, userId) {
      const record = await readUser(db.orm, view, userId);
      return record === null ? null : toUser(record, view);
    },
    async create({ password, ...input }, author) {
      const passwordHash = await hashPassword(password, input.organizationId);
      return refusingTakenEmails(() =>
        db.orm.transaction((tx) => insertUser(inside(tx), { ...input, passwordHash }, author)),
      );
    },
    async change(userId, patch, editor) {
      const checked = await readUser(db.orm, editor, userId);
      if (checked === null) return null;
      const changes = changesOf(checked, patch, editor);
      if (Object.keys(changes).length === 0) return toUser(checked, editor);
      requireMayChange(checked, changes, editor);
      if (needsPassword(checked, changes, editor)) await requirePassword(guesses, checked, patch.currentPassword);
      const { password } = changes;
      // Hashing takes tens of milliseconds, so it runs before rows are locked.
      const passwordHash = password === undefined ? null : await hashPassword(password, editor.ownOrganizationId);
      const given = { changes, passwordHash, checked };
      return refusingTakenEmails(() => db.orm.transaction((tx) => updateUser(inside(tx), userId, given, editor)));
    },
    findSignIn: (email) => findSignIn(db, email),
    holdSignIn,
    organizationsOf: (userId) => listOrganizationsOf(db, userId),
    resetLinks: createResetLinks({ db, clock, inside, counted }),
    identities: createIdentities({ db, inside }),
    invitations: createInvitations({ db, clock, inside, counted }),
    removeIn: (tx, userId, editor) => removeUser(inside(tx), userId, editor),
  };
}
