import type { Member, Principal } from '#core/accounts/accounts.ts';
import type { UserActor } from '#core/audit/audit.ts';
import type { sessions } from './schema.ts';

/** Where a session is used from. */
export interface Client {
  readonly address: string;
  /** What guesses are counted by: the address, of an IPv6 one its /64. */
  readonly network: string;
  readonly userAgent: string;
}

/** As its user sees it in a list. The id is a UUID. */
export interface Session extends Omit<Client, 'network'> {
  readonly id: string;
  readonly userId: string;
  readonly organizationId: string;
  readonly createdAtMs: number;
  readonly lastSeenAtMs: number;
  /** It ends then at the latest. */
  readonly expiresAtMs: number;
}

/** Why a session is over: somebody ended it, or its time did. */
export type SessionEnd = 'ended' | 'lapsed';

/** Who is signed in, in which organization, and what may be done. */
export interface SignedIn {
  readonly session: Session;
  readonly member: Member;
  readonly principal: Principal<UserActor>;
}

/** How long a session lasts without being used, and however much it is used. */
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

/** A signed-in user may do what the membership allows: a session has no narrower scope. */
export function principalOf(session: Session, member: Member): Principal<UserActor> {
  return {
    actor: { kind: 'user', user: { id: session.userId }, sessionId: session.id },
    organizationId: session.organizationId,
    project: member.project,
    platformRole: member.platformRole,
    organizationRole: member.organizationRole,
    scope: 'management',
  };
}
