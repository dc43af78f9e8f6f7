import { and, desc, eq, gt, inArray, isNull, lt, ne, or, type SQL } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { hashToken, makeToken } from '#base/token.ts';
import type { AccessEnd } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { sessions, signInLinks } from './schema.ts';
import { absoluteMs, type Client, idleMs, type Session, type SessionEnd, toSession } from './session.ts';

/** A new session; the token goes to the browser and is not stored. */
export interface OpenedSession {
  readonly token: string;
  readonly session: Session;
}

/** The user and organization of a session. Ids are UUIDs. */
export interface SessionOwner {
  readonly userId: string;
  readonly organizationId: string;
}

/** Selects the sessions of a user to end: one, or all except one. */
export type SessionChoice = { readonly id: string } | { readonly allBut: string };

export interface SessionChange {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}

const addressMax = 64;
const userAgentMax = 256;
const keptMs = 30 * 24 * 3_600_000;

const printable = (text: string, max: number): string => text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, max);

const lasting = (now: Date) =>
  and(isNull(sessions.endedAt), gt(sessions.expiresAt, now), gt(sessions.lastSeenAt, new Date(now.getTime() - idleMs)));

/** @param since the session that this one continues, absent for a new one: the absolute end counts from the sign-in */
export async function insertSession(
  { tx, audit, now }: SessionChange,
  owner: SessionOwner,
  client: Omit<Client, 'network'>,
  since?: Pick<Session, 'createdAtMs' | 'expiresAtMs'>,
): Promise<OpenedSession> {
  const token = makeToken();
  const row: typeof sessions.$inferSelect = {
    id: uuidv7(now.getTime()),
    tokenHash: hashToken(token),
    userId: owner.userId,
    organizationId: owner.organizationId,
    createdAt: new Date(since?.createdAtMs ?? now.getTime()),
    lastSeenAt: now,
    expiresAt: new Date(since?.expiresAtMs ?? now.getTime() + absoluteMs),
    endedAt: null,
    address: printable(client.address, addressMax),
    userAgent: printable(client.userAgent, userAgentMax),
  };
  await tx.insert(sessions).values(row);
  const actor = { kind: 'user', user: { id: owner.userId }, sessionId: row.id } as const;
  await audit.record(tx, {
    organizationId: owner.organizationId,
    author: { actor, requestId: null },
    action: 'session.opened',
    targetType: 'session',
    targetId: formatId('session', row.id),
    before: null,
    after: { address: row.address, user_agent: row.userAgent },
  });
  return { token, session: toSession(row) };
}

export async function selectSession(db: Db, tokenHash: Buffer, now: Date): Promise<Session | null> {
  const [row] = await db.orm
    .select()
    .from(sessions)
    .where(and(eq(sessions.tokenHash, tokenHash), lasting(now)));
  return row === undefined ? null : toSession(row);
}

export async function selectSessionById(db: Db, id: string, now: Date): Promise<Session | null> {
  const [row] = await db.orm
    .select()
    .from(sessions)
    .where(and(eq(sessions.id, id), lasting(now)));
  return row === undefined ? null : toSession(row);
}

export async function selectLasting(db: Db, ids: readonly string[], now: Date): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set();
  const rows = await db.orm
    .select({ id: sessions.id })
    .from(sessions)
    .where(and(inArray(sessions.id, [...ids]), lasting(now)));
  return new Set(rows.map(({ id }) => id));
}

export async function selectSessionsOf(db: Db, userId: string, now: Date): Promise<readonly Session[]> {
  const rows = await db.orm
    .select()
    .from(sessions)
    .where(and(eq(sessions.userId, userId), lasting(now)))
    .orderBy(desc(sessions.id));
  return rows.map(toSession);
}

/** Returns the organization of a user's last session, even if ended; null if there was none lately. */
export async function selectLastOrganization(db: Db, userId: string): Promise<string | null> {
  const [row] = await db.orm
    .select({ organizationId: sessions.organizationId })
    .from(sessions)
    .where(eq(sessions.userId, userId))
    .orderBy(desc(sessions.id))
    .limit(1);
  return row?.organizationId ?? null;
}

/** True if one of the user's stored sessions was started from the address. */
export async function isKnownAddress(db: Db, userId: string, address: string): Promise<boolean> {
  const found = await db.orm
    .select({ id: sessions.id })
    .from(sessions)
    .where(and(eq(sessions.userId, userId), eq(sessions.address, printable(address, addressMax))))
    .limit(1);
  return found.length > 0;
}

/** Returns why the session of a token is over; null if the session is active, or the token unknown. */
export async function selectEnd(db: Db, tokenHash: Buffer, now: Date): Promise<SessionEnd | null> {
  const [row] = await db.orm
    .select({ endedAt: sessions.endedAt, expiresAt: sessions.expiresAt, lastSeenAt: sessions.lastSeenAt })
    .from(sessions)
    .where(eq(sessions.tokenHash, tokenHash));
  if (row === undefined) return null;
  if (row.endedAt !== null) return 'ended';
  return row.expiresAt > now && row.lastSeenAt.getTime() > now.getTime() - idleMs ? null : 'lapsed';
}

export async function touchSession(db: Db, id: string, now: Date): Promise<void> {
  await db.orm.update(sessions).set({ lastSeenAt: now }).where(eq(sessions.id, id));
}

/** Ends sessions of a user. @returns how many ended */
export function endSessions(
  change: SessionChange,
  userId: string,
  choice: SessionChoice,
  author: Author,
): Promise<number> {
  const which = 'id' in choice ? eq(sessions.id, choice.id) : ne(sessions.id, choice.allBut);
  return endWhere(change, and(eq(sessions.userId, userId), which), author);
}

/** Ends sessions and links of a user whose password changed, or who is no longer a member. */
export async function endAccess(
  change: SessionChange,
  { userId, organizationId, keptSessionId, author }: AccessEnd,
): Promise<void> {
  const ofOrganization = organizationId === null ? undefined : eq(sessions.organizationId, organizationId);
  const others = keptSessionId === null ? undefined : ne(sessions.id, keptSessionId);
  await endWhere(change, and(eq(sessions.userId, userId), ofOrganization, others), author);
  await change.tx
    .update(signInLinks)
    .set({ usedAt: change.now })
    .where(and(eq(signInLinks.userId, userId), isNull(signInLinks.usedAt)));
}

async function endWhere({ tx, audit, now }: SessionChange, which: SQL | undefined, author: Author): Promise<number> {
  const ended = await tx
    .update(sessions)
    .set({ endedAt: now })
    .where(and(which, lasting(now)))
    .returning();
  for (const { id, organizationId, address, userAgent } of ended) {
    await audit.record(tx, {
      organizationId,
      author,
      action: 'session.ended',
      targetType: 'session',
      targetId: formatId('session', id),
      before: { address, user_agent: userAgent },
      after: null,
    });
  }
  return ended.length;
}

/** Deletes sessions and links that ended long ago. */
export async function sweepSessions(db: Db, now: Date): Promise<void> {
  const before = new Date(now.getTime() - keptMs);
  await db.orm.delete(sessions).where(or(lt(sessions.expiresAt, before), lt(sessions.endedAt, before)));
  await db.orm.delete(signInLinks).where(lt(signInLinks.expiresAt, before));
}
