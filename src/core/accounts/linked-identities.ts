import { and, asc, eq } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Author } from '#core/audit/audit.ts';
import type { ChangeContext } from './change.ts';
import { userIdentities } from './schema.ts';
import { readUser } from './user.ts';

/** A provider's subject that signs in to an account, whatever the account's address is. */
export interface LinkedIdentity {
  readonly issuer: string;
  readonly subject: string;
  readonly linkedAtMs: number;
}

/** Lists a user's identities, oldest first. */
export async function listIdentities(db: Db, userId: string): Promise<readonly LinkedIdentity[]> {
  const rows = await db.orm
    .select()
    .from(userIdentities)
    .where(eq(userIdentities.userId, userId))
    .orderBy(asc(userIdentities.createdAt), asc(userIdentities.issuer), asc(userIdentities.subject));
  return rows.map(({ issuer, subject, createdAt }) => ({ issuer, subject, linkedAtMs: createdAt.getTime() }));
}

/** Returns the organization whose audit log has the events of an account: the one that the user joined first. */
export async function homeOf(tx: Transaction, userId: string): Promise<string | null> {
  const record = await readUser(tx, { organizationId: null, userId: null }, userId);
  return record?.memberships[0]?.organizationId ?? null;
}

/**
 * Removes all identities of a user, or only the named one; the transaction has locked the user's row.
 * @returns the number removed
 */
export async function dropIdentities(
  { tx, audit }: Pick<ChangeContext, 'tx' | 'audit'>,
  userId: string,
  author: Author,
  only?: Pick<LinkedIdentity, 'issuer' | 'subject'>,
): Promise<number> {
  const named =
    only === undefined
      ? undefined
      : and(eq(userIdentities.issuer, only.issuer), eq(userIdentities.subject, only.subject));
  const dropped = await tx
    .delete(userIdentities)
    .where(and(eq(userIdentities.userId, userId), named))
    .returning();
  const organizationId = dropped.length === 0 ? null : await homeOf(tx, userId);
  if (organizationId === null) return dropped.length;
  for (const { issuer, subject } of dropped) {
    await audit.record(tx, {
      organizationId,
      author,
      action: 'user.identity_removed',
      targetType: 'user',
      targetId: formatId('user', userId),
      before: { issuer, subject },
      after: null,
    });
  }
  return dropped.length;
}
