import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { ThrottleOptions } from '#base/throttle.ts';
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
  selectLastOrganization,
  selectEnd,
  selectLasting,
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
export { formTokenOf, isFormToken } from './token.ts';

/** Tables that go into no backup: a copy would bring back what has ended since. */
export const sessionTables = ['sessions', 'sign_in_links'] as const;

/**
 * Who is signed in with a browser. A session ends after 12 hours without use, after 7 days in any case, and when it is
 * ended: from the next request on, on every gateway, since each request asks PostgreSQL.
 */
export interface Sessions {
  /**
   * Null for a token of no session that lasts, and where its user is no longer of that organization.
   * @param isUse false for what a page asks by itself, which does not keep a session from ending unused
   */
  find(token: string, isUse?: boolean): Promise<SignedIn | null>;
  /** Why the session of a token is over, as long as sessions are remembered; null for a token of none, and for one that lasts. */
  endOf(token: string): Promise<SessionEnd | null>;
  /** `find` for a session that is known by its id, which no browser proves. */
  findById(id: string): Promise<Session | null>;
  /** Those of these that last, by id; who is a member is not asked. */
  lasting(ids: readonly string[]): Promise<ReadonlySet<string>>;
  /** Those of a user that last, newest first. */
  list(userId: string): Promise<readonly Session[]>;
  /** @returns how many of the user's own ended by this call */
  end(userId: string, choice: SessionChoice, author: Author): Promise<number>;
  /**
   * Begins one for who knows a password: in the organization of the last session, else in the one that was joined first.
   * Null for a wrong password, and for who has none, no account or no active organization: nothing tells them apart.
   * @throws AppError rate_limit_exceeded, overloaded
   */
  openByPassword(guess: Guess): Promise<OpenedSession | null>;
  /** The same for somebody who has proven otherwise who it is; null for who has no active organization. */
  openFor(userId: string, client: Client): Promise<OpenedSession | null>;
  /**
   * In the place of a session: one in another organization of its user, with another token, that ends when the session
   * would have. Null where the user is not in that organization, it is not active, or the session is in it already.
   */
  switchOrganization(session: Session, organizationId: string, author: Author): Promise<OpenedSession | null>;
  /** Ends what was opened by a way in that is no longer there; links that sign in too. */
  endAccessIn(tx: Transaction, end: AccessEnd): Promise<void>;
  /** Whether a link can be used; does not use it. */
  isLinkOpen(token: string): Promise<boolean>;
  /** Signs in by a link, once. Null for one that was used, is too old, or never was. */
  openByLink(token: string, client: Client): Promise<OpenedSession | null>;
  /** Forgets sessions and links that ended long ago. */
  sweep(): Promise<void>;
}

export interface SessionsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'readMember'> & {
    readonly users: Pick<Accounts['users'], 'findSignIn' | 'holdSignIn'>;
  };
  /** Where wrong passwords are counted. */
  readonly guesses: Pick<ThrottleOptions, 'store' | 'prefix'>;
}

/** A session's use is written down at most so often. */
const touchMs = 60_000;

export function createSessions({ db, clock, audit, accounts, guesses }: SessionsOptions): Sessions {
  const now = (): Date => new Date(clock.now());
  const signIn = createPasswordSignIn({
    accounts,
    guesses,
    isKnownAddress: (userId, address) => isKnownAddress(db, userId, address),
  });
  /** @param passwordHash what was proven; absent where it was no password */
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
        // The account before its links, as a change of the password takes them.
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
