import { and, desc, eq, gt, isNull, lt, ne, or } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { sessions, signInLinks } from './schema.ts';
import { absoluteMs, type Client, idleMs, type Session, toSession } from './session.ts';
import { hashToken, makeToken } from './token.ts';

/** A session that begins; the token goes to the browser and is kept nowhere. */
export interface OpenedSession {
  readonly token: string;
  readonly session: Session;
}

/** Whom a session is for. Ids are UUIDs. */
export interface SessionOwner {
  readonly userId: string;
  readonly organizationId: string;
}

/** Which sessions of a user are ended: one, or all but one. */
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

export async function insertSession(
  { tx, audit, now }: SessionChange,
  owner: SessionOwner,
  client: Client,
): Promise<OpenedSession> {
  const token = makeToken();
  const row: typeof sessions.$inferSelect = {
    id: uuidv7(now.getTime()),
    tokenHash: hashToken(token),
    userId: owner.userId,
    organizationId: owner.organizationId,
    createdAt: now,
    lastSeenAt: now,
    expiresAt: new Date(now.getTime() + absoluteMs),
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

export async function selectSessionsOf(db: Db, userId: string, now: Date): Promise<readonly Session[]> {
  const rows = await db.orm
    .select()
    .from(sessions)
    .where(and(eq(sessions.userId, userId), lasting(now)))
    .orderBy(desc(sessions.id));
  return rows.map(toSession);
}

export async function touchSession(db: Db, id: string, now: Date): Promise<void> {
  await db.orm.update(sessions).set({ lastSeenAt: now }).where(eq(sessions.id, id));
}

/** @returns how many ended */
export async function endSessions(
  { tx, audit, now }: SessionChange,
  userId: string,
  choice: SessionChoice,
  author: Author,
): Promise<number> {
  const which = 'id' in choice ? eq(sessions.id, choice.id) : ne(sessions.id, choice.allBut);
  const ended = await tx
    .update(sessions)
    .set({ endedAt: now })
    .where(and(eq(sessions.userId, userId), which, lasting(now)))
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

/** Forgets what ended long ago. */
export async function sweepSessions(db: Db, now: Date): Promise<void> {
  const before = new Date(now.getTime() - keptMs);
  await db.orm.delete(sessions).where(or(lt(sessions.expiresAt, before), lt(sessions.endedAt, before)));
  await db.orm.delete(signInLinks).where(lt(signInLinks.expiresAt, before));
}
