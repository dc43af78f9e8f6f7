import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import {
  endSessions,
  insertSession,
  type OpenedSession,
  selectSession,
  selectSessionsOf,
  type SessionChoice,
  type SessionOwner,
  sweepSessions,
  touchSession,
} from './session-rows.ts';
import { type Client, principalOf, type Session, type SignedIn } from './session.ts';
import { isLinkOpen, takeLink } from './sign-in-link.ts';
import { hashGiven } from './token.ts';

export { absoluteMs as absoluteSessionMs, type Client, type Session, type SignedIn } from './session.ts';
export type { OpenedSession, SessionChoice, SessionOwner } from './session-rows.ts';
export { makeSignInLink, type SignInLink } from './sign-in-link.ts';
export { formTokenOf, isFormToken } from './token.ts';

/**
 * Who is signed in with a browser. A session ends after 12 hours without use, after 7 days in any case, and when it is
 * ended: from the next request on, on every gateway, since each request asks PostgreSQL.
 */
export interface Sessions {
  /** Begins one for somebody who has proven who it is; writes `session.opened`. */
  open(owner: SessionOwner, client: Client): Promise<OpenedSession>;
  /**
   * Null for a token of no session that lasts, and where its user is no longer of that organization.
   * @param isUse false for what a page asks by itself, which does not keep a session from ending unused
   */
  find(token: string, isUse?: boolean): Promise<SignedIn | null>;
  /** Those of a user that last, newest first. */
  list(userId: string): Promise<readonly Session[]>;
  /** @returns how many of the user's own ended by this call */
  end(userId: string, choice: SessionChoice, author: Author): Promise<number>;
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
  readonly accounts: Pick<Accounts, 'readMember'>;
}

/** A session's use is written down at most so often. */
const touchMs = 60_000;

export function createSessions({ db, clock, audit, accounts }: SessionsOptions): Sessions {
  const now = (): Date => new Date(clock.now());
  return {
    open: (owner, client) => db.orm.transaction((tx) => insertSession({ tx, audit, now: now() }, owner, client)),
    async find(token, isUse = true) {
      const tokenHash = hashGiven(token);
      const session = tokenHash === null ? null : await selectSession(db, tokenHash, now());
      if (session === null) return null;
      const member = await accounts.readMember(session.userId, session.organizationId);
      if (member === null) return null;
      if (isUse && clock.now() - session.lastSeenAtMs >= touchMs) await touchSession(db, session.id, now());
      return { session, member, principal: principalOf(session, member) };
    },
    list: (userId) => selectSessionsOf(db, userId, now()),
    end: (userId, choice, author) =>
      db.orm.transaction((tx) => endSessions({ tx, audit, now: now() }, userId, choice, author)),
    isLinkOpen: (token) => isLinkOpen(db, token, now()),
    openByLink: (token, client) =>
      db.orm.transaction(async (tx) => {
        const owner = await takeLink(tx, token, now());
        return owner === null ? null : insertSession({ tx, audit, now: now() }, owner, client);
      }),
    sweep: () => sweepSessions(db, now()),
  };
}
