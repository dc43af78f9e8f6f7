import { and, count, eq, gt, inArray, isNotNull, lt } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Author } from '#core/audit/audit.ts';
import { type KeyRow, keyStatus, toKeyRecord } from './api-key.ts';
import type { SecretEnd } from './key-events.ts';
import { type LimitCheck, requireActiveAuthor, requireOpen, shareNewKeys } from './key-requirements.ts';
import { type ChangeContext, keyOf, type KeyRef, recordKeyChange } from './key-rows.ts';
import { apiKeys, formerSecrets } from './schema.ts';
import { makeSecret } from './secret.ts';

/** Replaces the secret of a key; former secrets stay valid until their grace period ends. */

export interface RotationOptions extends Pick<LimitCheck, 'accounts'> {
  readonly author: Author;
  readonly keyPrefix: string;
  readonly rotation: Rotation;
}

export interface Rotation {
  /** Milliseconds that the current secret stays valid; 0 ends it at once. */
  readonly graceMs: number;
  /** Last characters of the current secret as the caller knows it; absent skips the check. */
  readonly last4?: string | undefined;
}

export interface RotatedKey {
  readonly row: KeyRow;
  readonly secret: string;
  /** The previous secret if there was no grace period; null if it stays valid. */
  readonly ended: SecretEnd | null;
}

/** Former secrets per key that may be valid at once. */
const formerMax = 8;

/** Milliseconds for which an ended secret is still stored, and so distinguished from one that never existed. */
const endedKeptMs = 30 * 86_400_000;

/**
 * Rotates the secret of a key; id, limits, owner and counts stay.
 * @returns null if there is no such key
 * @throws AppError conflict for a key that is not active, is used by the gateway itself, has a secret chosen by the
 *   operator, has too many former secrets, or has a different secret than the caller named
 */
export async function rotateKey(
  context: ChangeContext,
  ref: KeyRef,
  { author, accounts, keyPrefix, rotation: { graceMs, last4: known } }: RotationOptions,
): Promise<RotatedKey | null> {
  const { tx, now } = context;
  const [found] = await tx.select().from(apiKeys).where(keyOf(ref));
  if (found === undefined) return null;
  // Locked in the order that everything else uses: the organization, the lock for new keys, then keys.
  await requireOpen(context, found, { accounts });
  await shareNewKeys(context);
  const [before] = await tx.select().from(apiKeys).where(keyOf(ref)).for('update');
  if (before === undefined) return null;
  await requireActiveAuthor(context, author);
  requireRotatable(before, now);
  requireSecret(before, known);
  const endsAt = new Date(now.getTime() + graceMs);
  await keepFormer(context, before, endsAt, graceMs === 0 ? now : null);
  const until = before.formerSecretsEndAt;
  const { secret, secretHash, prefix, last4 } = makeSecret(keyPrefix, before.projectId);
  const formerSecretsEndAt = until !== null && until > endsAt ? until : endsAt;
  const change = { secretHash, prefix, last4, rotatedAt: now, formerSecretsEndAt };
  const [after] = await tx.update(apiKeys).set(change).where(keyOf(ref)).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await recordKeyChange(context, 'api_key.rotated', { before, after }, author);
  const ended = graceMs === 0 ? { keyId: before.id, secretHash: before.secretHash } : null;
  return { row: after, secret, ended };
}

function requireRotatable(row: KeyRow, now: Date): void {
  const status = keyStatus(toKeyRecord(row), now.getTime());
  const because = row.held
    ? 'the gateway uses this key itself, and its secret is not stored'
    : row.imported
      ? 'the operator set the secret of this key; create a new key instead'
      : status !== 'active'
        ? `this key is ${status}; create a new key instead`
        : null;
  if (because !== null) throw new AppError('conflict', { message: `Not rotated: ${because}.` });
}

/** Rejects the second of two simultaneous rotations: its caller knows the secret from before the first. */
function requireSecret({ last4 }: KeyRow, known: string | undefined): void {
  if (known === undefined || known === last4) return;
  const message = `Not rotated: the secret of this key ends in ${last4}, not in ${known}, because it was rotated since.`;
  throw new AppError('conflict', { message, param: 'last4' });
}

async function keepFormer(
  { tx, now }: ChangeContext,
  { id, secretHash }: KeyRow,
  endsAt: Date,
  revokedAt: Date | null,
): Promise<void> {
  const ofKey = eq(formerSecrets.keyId, id);
  await tx.delete(formerSecrets).where(and(ofKey, lt(formerSecrets.endsAt, new Date(now.getTime() - endedKeptMs))));
  const [found] = await tx
    .select({ working: count() })
    .from(formerSecrets)
    .where(and(ofKey, gt(formerSecrets.endsAt, now)));
  if ((found?.working ?? 0) >= formerMax) {
    const message = `Not rotated: ${formerMax} former secrets of this key are still valid. Wait until one expires, or revoke the key.`;
    throw new AppError('conflict', { message });
  }
  await tx.insert(formerSecrets).values({ secretHash, keyId: id, endsAt, revokedAt });
}

/** Returns the former secrets of these keys that were ended permanently. */
export function readRevokedSecrets({ orm }: Db, keyIds: readonly string[]): Promise<readonly SecretEnd[]> {
  return orm
    .select({ keyId: formerSecrets.keyId, secretHash: formerSecrets.secretHash })
    .from(formerSecrets)
    .where(and(inArray(formerSecrets.keyId, [...keyIds]), isNotNull(formerSecrets.revokedAt)));
}
