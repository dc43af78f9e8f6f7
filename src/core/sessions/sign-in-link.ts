import { and, eq, gt, isNull } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { hashGiven, hashToken, makeToken } from '#base/token.ts';
import { listPlatformAdmins } from '#core/accounts/accounts.ts';
import { type Audit, systemAuthor } from '#core/audit/audit.ts';
import { signInLinks } from './schema.ts';

/**
 * Links that sign the platform's admin in once: for the first start, and for operators on the machine without a key.
 */

const linkLifeMs = 600_000;

export interface SignInLink {
  /** Shown once; only its hash is stored. */
  readonly token: string;
  readonly email: string;
  readonly expiresAtMs: number;
}

export interface SignInLinkOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
}

/**
 * Creates a link for the oldest platform admin; null if there is none, because no gateway has started on this database.
 */
export function makeSignInLink({ db, clock, audit }: SignInLinkOptions): Promise<SignInLink | null> {
  return db.orm.transaction(async (tx) => {
    const [admin] = await listPlatformAdmins(tx);
    if (admin === undefined) return null;
    const at = new Date(clock.now());
    const expiresAt = new Date(at.getTime() + linkLifeMs);
    const token = makeToken();
    const tokenHash = hashToken(token);
    const { userId, organizationId, email } = admin;
    const id = uuidv7(at.getTime());
    await tx.insert(signInLinks).values({ id, tokenHash, userId, organizationId, createdAt: at, expiresAt });
    await audit.record(tx, {
      organizationId,
      author: systemAuthor,
      action: 'sign_in_link.made',
      targetType: 'user',
      targetId: formatId('user', userId),
      before: null,
      after: { expires_at: expiresAt.toISOString() },
    });
    return { token, email, expiresAtMs: expiresAt.getTime() };
  });
}

const openWith = (tokenHash: Buffer, now: Date) =>
  and(eq(signInLinks.tokenHash, tokenHash), isNull(signInLinks.usedAt), gt(signInLinks.expiresAt, now));

export async function isLinkOpen(db: Db, token: string, now: Date): Promise<boolean> {
  const tokenHash = hashGiven(token);
  if (tokenHash === null) return false;
  const found = await db.orm.select({ id: signInLinks.id }).from(signInLinks).where(openWith(tokenHash, now));
  return found.length > 0;
}

/** Returns the user of an open link; null if the link is not open. */
export async function readLinkUser(tx: Transaction, token: string, now: Date): Promise<string | null> {
  const tokenHash = hashGiven(token);
  if (tokenHash === null) return null;
  const [found] = await tx.select({ userId: signInLinks.userId }).from(signInLinks).where(openWith(tokenHash, now));
  return found?.userId ?? null;
}

/** Uses a link. Only one of several parallel calls succeeds: the others wait for its row, and find the link used. */
export async function takeLink(
  tx: Transaction,
  token: string,
  now: Date,
): Promise<{ readonly userId: string; readonly organizationId: string } | null> {
  const tokenHash = hashGiven(token);
  if (tokenHash === null) return null;
  const { userId, organizationId } = signInLinks;
  const [taken] = await tx
    .update(signInLinks)
    .set({ usedAt: now })
    .where(openWith(tokenHash, now))
    .returning({ userId, organizationId });
  return taken ?? null;
}
