import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import type { ThrottleOptions } from '#base/redis/redis.ts';
import { hashGiven } from '#base/token.ts';
import type { AccessEnd, Accounts } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { createPasswordSignIn, type Guess, organizationFor } from './password-sign-in.ts';
import {
  endAccess,
  endSessions,
  insertSession,
  isKnownAddress,
  type OpenedSession,
  selectEnd,
  selectLasting,
  selectLastOrganization,
  selectSession,
  selectSessionById,
  selectSessionsOf,
  type SessionChoice,
  sweepSessions,
  touchSession,
} from './session-rows.ts';
import { type Client, principalOf, type Session, type SessionEnd, type SignedIn } from './session.ts';
import { isLinkOpen, readLinkUser, takeLink } from './sign-in-link.ts';

export {
  absoluteMs as absoluteSessionMs,
  type Client,
  type Session,
  type SessionEnd,
  type SignedIn,
} from './session.ts';
export type { Guess } from './password-sign-in.ts';
export type { OpenedSession, SessionChoice, SessionOwner } from './session-rows.ts';
export { makeSignInLink, type SignInLink } from './sign-in-link.ts';

/**
 * Returns the token that a session's forms contain, so that no other site can send one. Derived from the session token,
 * which no page and no script can read.
 */
export function formTokenOf(token: string): string {
  return createHmac('sha256', token).update('form').digest('base64url');
}

export function isFormToken(token: string, given: string): boolean {
  const [expected, actual] = [formTokenOf(token), given].map((text) => createHash('sha256').update(text).digest());
  return expected !== undefined && actual !== undefined && timingSafeEqual(expected, actual);
}

/** Tables excluded from backups: a restored copy would reopen sessions that have ended since. */
export const sessionTables = ['sessions', 'sign_in_links'] as const;

/**
 * Browser sessions. A session ends after 12 hours without use, after 7 days in any case, and when somebody ends it. The
 * end takes effect on every gateway from the next request on, since each request queries PostgreSQL.
 */
export interface Sessions {
  /**
   * Returns null if the token has no active session, or its user is no longer a member of the session's organization.
   * @param isUse false for requests that a page sends by itself; they do not prolong the session
   */
  find(token: string, isUse?: boolean): Promise<SignedIn | null>;
  /**
   * Returns why a token's session is over, while sessions are stored; null for an unknown token or an active session.
   */
  endOf(token: string): Promise<SessionEnd | null>;
  /** `find` for a session by its id, without proof by a browser. */
  findById(id: string): Promise<Session | null>;
  /** Returns the ids of those sessions that are active; memberships are not checked. */
  lasting(ids: readonly string[]): Promise<ReadonlySet<string>>;
  /** Returns a user's active sessions, newest first. */
  list(userId: string): Promise<readonly Session[]>;
  /** Ends sessions of a user. @returns how many this call ended */
  end(userId: string, choice: SessionChoice, author: Author): Promise<number>;
  /**
   * Opens a session for a correct password, in the organization of the last session, or else the one joined first.
   * Returns null for a wrong password, and for a user without a password, an account or an active organization: the
   * caller cannot tell them apart.
   * @throws AppError rate_limit_exceeded, overloaded
   */
  openByPassword(guess: Guess): Promise<OpenedSession | null>;
  /** Opens a session for a user whose identity was proven otherwise; null for a user without an active organization. */
  openFor(userId: string, client: Client): Promise<OpenedSession | null>;
  /**
   * Replaces a session by one in another organization of its user, with a new token and the same absolute end. Returns
   * null if the user is not a member there, the organization is not active, or the session is already in it.
   */
  switchOrganization(session: Session, organizationId: string, author: Author): Promise<OpenedSession | null>;
  /** Ends the sessions, and the sign-in links, of an access that no longer exists. */
  endAccessIn(tx: Transaction, end: AccessEnd): Promise<void>;
  /** True if a link can be used; does not use the link. */
  isLinkOpen(token: string): Promise<boolean>;
  /** Signs in by a link, once. Returns null if the link was used, is too old, or never existed. */
  openByLink(token: string, client: Client): Promise<OpenedSession | null>;
  /** Deletes sessions and links that ended long ago. */
  sweep(): Promise<void>;
}

export interface SessionsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'readMember'> & {
    readonly users: Pick<Accounts['users'], 'findSignIn' | 'holdSignIn'>;
  };
  /** Store for the counts of wrong passwords. */
  readonly guesses: Pick<ThrottleOptions, 'store' | 'prefix'>;
}

/** Minimum time between two writes of a session's last use. */
const touchMs = 60_000;

export function createSessions({ db, clock, audit, accounts, guesses }: SessionsOptions): Sessions {
  const now = (): Date => new Date(clock.now());
  const signIn = createPasswordSignIn({
    accounts,
    guesses,
    isKnownAddress: (userId, address) => isKnownAddress(db, userId, address),
  });
  /** Opens a session. @param passwordHash hash that the password matched; absent for other proofs */
  const openIn = async (
    { userId, passwordHash }: { readonly userId: string; readonly passwordHash?: string | null },
    client: Client,
  ): Promise<OpenedSession | null> => {
    const lastId = await selectLastOrganization(db, userId);
    return db.orm.transaction(async (tx) => {
      const held = await accounts.users.holdSignIn(tx, userId);
      if (held === null || (passwordHash !== undefined && held.passwordHash !== passwordHash)) return null;
      const owner = organizationFor(held, lastId);
      return owner === null ? null : insertSession({ tx, audit, now: now() }, owner, client);
    });
  };
  return {
    async openByPassword(guess) {
      const found = await signIn(guess);
      return found === null ? null : openIn(found, guess.client);
    },
    openFor: (userId, client) => openIn({ userId }, client),
    async switchOrganization(session, organizationId, author) {
      const { userId } = session;
      if (session.organizationId === organizationId) return null;
      return db.orm.transaction(async (tx) => {
        const change = { tx, audit, now: now() };
        const held = await accounts.users.holdSignIn(tx, userId);
        if (held === null || !held.organizationIds.includes(organizationId)) return null;
        const ended = await endSessions(change, userId, { id: session.id }, author);
        return ended === 0 ? null : insertSession(change, { userId, organizationId }, session, session);
      });
    },
    endAccessIn: (tx, end) => endAccess({ tx, audit, now: now() }, end),
    async find(token, isUse = true) {
      const tokenHash = hashGiven(token);
      const session = tokenHash === null ? null : await selectSession(db, tokenHash, now());
      if (session === null) return null;
      const member = await accounts.readMember(session.userId, session.organizationId);
      if (member === null) return null;
      if (isUse && clock.now() - session.lastSeenAtMs >= touchMs) await touchSession(db, session.id, now());
      return { session, member, principal: principalOf(session, member) };
    },
    async endOf(token) {
      const tokenHash = hashGiven(token);
      return tokenHash === null ? null : selectEnd(db, tokenHash, now());
    },
    findById: async (id) => ofMember(accounts, await selectSessionById(db, id, now())),
    lasting: (ids) => selectLasting(db, ids, now()),
    list: (userId) => selectSessionsOf(db, userId, now()),
    end: (userId, choice, author) =>
      db.orm.transaction((tx) => endSessions({ tx, audit, now: now() }, userId, choice, author)),
    isLinkOpen: (token) => isLinkOpen(db, token, now()),
    openByLink: (token, client) =>
      db.orm.transaction(async (tx) => {
        // Locks the account before its links, in the same order as a change of the password.
        const userId = await readLinkUser(tx, token, now());
        if (userId === null || (await accounts.users.holdSignIn(tx, userId)) === null) return null;
        const owner = await takeLink(tx, token, now());
        return owner === null ? null : insertSession({ tx, audit, now: now() }, owner, client);
      }),
    sweep: () => sweepSessions(db, now()),
  };
}

async function ofMember(accounts: Pick<Accounts, 'readMember'>, session: Session | null): Promise<Session | null> {
  const isMember = session !== null && (await accounts.readMember(session.userId, session.organizationId)) !== null;
  return isMember ? session : null;
}
