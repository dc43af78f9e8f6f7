import { and, eq, inArray, isNull, type SQL } from 'drizzle-orm';
import type { Author } from '#core/audit/audit.ts';
import type { KeyRow } from './api-key.ts';
import { type ChangeContext, recordKeyChange } from './key-rows.ts';
import { apiKeys } from './schema.ts';

export interface Revocation {
  readonly row: KeyRow;
  /** False if the key was revoked before. */
  readonly changed: boolean;
}

/** @param which selects at most one key; the result is null if there is none */
export async function revokeKey(
  context: ChangeContext,
  which: SQL | undefined,
  action: 'api_key.revoked' | 'api_key.reported',
  author: Author,
): Promise<Revocation | null> {
  const { tx, now } = context;
  const [before] = await tx.select().from(apiKeys).where(which).for('update');
  if (before === undefined) return null;
  if (before.revokedAt !== null) return { row: before, changed: false };
  const [after] = await tx.update(apiKeys).set({ revokedAt: now }).where(which).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await recordKeyChange(context, action, { before, after }, author);
  return { row: after, changed: true };
}

/** Keys of an organization, of a user, of a user in an organization, or of service accounts. */
export type KeyHolder =
  | { readonly organizationId: string; readonly userId: string | null }
  | { readonly organizationId: null; readonly userId: string }
  | { readonly organizationId: string; readonly userId: undefined; readonly serviceAccountIds: readonly string[] };

function heldBy(holder: KeyHolder): SQL | undefined {
  const { organizationId } = holder;
  const inside = organizationId === null ? undefined : eq(apiKeys.organizationId, organizationId);
  if (holder.userId === undefined) {
    return and(inside, inArray(apiKeys.serviceAccountId, [...holder.serviceAccountIds]));
  }
  return and(inside, holder.userId === null ? undefined : eq(apiKeys.userId, holder.userId));
}

/** Revokes all keys of a holder that are not revoked yet. */
export async function revokeAllKeys(
  context: ChangeContext,
  holder: KeyHolder,
  author: Author,
): Promise<readonly KeyRow[]> {
  const { tx, now } = context;
  const those = and(heldBy(holder), isNull(apiKeys.revokedAt));
  const rows = await tx.select().from(apiKeys).where(those).orderBy(apiKeys.id).for('update');
  if (rows.length > 0) await tx.update(apiKeys).set({ revokedAt: now }).where(those);
  const revoked = rows.map((before) => ({ before, after: { ...before, revokedAt: now } }));
  for (const change of revoked) await recordKeyChange(context, 'api_key.revoked', change, author);
  return revoked.map(({ after }) => after);
}
