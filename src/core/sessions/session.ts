import type { Member, Principal } from '#core/accounts/accounts.ts';
import type { UserActor } from '#core/audit/audit.ts';
import type { sessions } from './schema.ts';

/** The client of a session. */
export interface Client {
  readonly address: string;
  /** Network for counting guesses: the address; for IPv6 its /64. */
  readonly network: string;
  readonly userAgent: string;
}

/** A session as its user sees it in a list. The id is a UUID. */
export interface Session extends Omit<Client, 'network'> {
  readonly id: string;
  readonly userId: string;
  readonly organizationId: string;
  readonly createdAtMs: number;
  readonly lastSeenAtMs: number;
  /** Time at which the session ends at the latest. */
  readonly expiresAtMs: number;
}

/** Reason why a session is over: `ended` by somebody, or `lapsed` by time. */
export type SessionEnd = 'ended' | 'lapsed';

/** The signed-in user, the organization, and the permissions. */
export interface SignedIn {
  readonly session: Session;
  readonly member: Member;
  readonly principal: Principal<UserActor>;
}

/** Time after which an unused session ends; `absoluteMs`: time after which every session ends. */
export const idleMs = 12 * 3_600_000;
export const absoluteMs = 7 * 24 * 3_600_000;

export function toSession(row: typeof sessions.$inferSelect): Session {
  const { id, userId, organizationId, address, userAgent, createdAt, lastSeenAt, expiresAt } = row;
  return {
    id,
    userId,
    organizationId,
    address,
    userAgent,
    createdAtMs: createdAt.getTime(),
    lastSeenAtMs: lastSeenAt.getTime(),
    expiresAtMs: expiresAt.getTime(),
  };
}

/** Returns the permissions of a session: all that the membership allows, since a session has no narrower scope. */
export function principalOf(session: Session, member: Member): Principal<UserActor> {
  return {
    actor: { kind: 'user', user: { id: session.userId }, sessionId: session.id },
    organizationId: session.organizationId,
    project: member.project,
    platformRole: member.platformRole,
    organizationRole: member.organizationRole,
    scope: 'management',
    membersMayApply: member.organization.membersMayApply,
  };
}
