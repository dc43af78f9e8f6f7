import { and, count, eq, gt, inArray, isNotNull, isNull, lt, max } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import type { Author } from '#core/audit/audit.ts';
import { type KeyRow, keyStatus, toKeyRecord } from './api-key.ts';
import { type LimitCheck, requireActiveAuthor, requireOpen, shareNewKeys } from './key-requirements.ts';
import type { SecretEnd } from './key-events.ts';
import { type ChangeContext, keyOf, type KeyRef, recordKeyChange } from './key-rows.ts';
import { apiKeys, formerSecrets } from './schema.ts';
import { makeSecret } from './secret.ts';

/** A key gets another secret; those that it had work on until their grace is over. */

export interface RotationOptions extends Pick<LimitCheck, 'accounts'> {
  readonly author: Author;
  readonly keyPrefix: string;
  readonly rotation: Rotation;
}

export interface Rotation {
  /** Milliseconds for which the secret works on that the key has now; 0 ends it at once. */
  readonly graceMs: number;
  /** How the secret ends that the key has now, as who asks knows it; absent where that does not matter. */
  readonly last4?: string | undefined;
}

export interface RotatedKey {
  readonly row: KeyRow;
  readonly secret: string;
  /** The secret that it had before, where there was no grace; null where that one works on. */
  readonly ended: SecretEnd | null;
}

/** Former secrets of a key that still work. */
const formerMax = 8;
/** One that has ended is told from one that never was for so long. */
const endedKeptMs = 30 * 86_400_000;

/**
 * The key counts, acts and is limited as before: it is the same one.
 * @returns null when there is no such key
 * @throws AppError conflict for a key that is not active, is held, was chosen by the operator, has too many secrets, or
 *   has another one than was said
 */
export async function rotateKey(
  context: ChangeContext,
  ref: KeyRef,
  { author, accounts, keyPrefix, rotation: { graceMs, last4: known } }: RotationOptions,
): Promise<RotatedKey | null> {
  const { tx, now } = context;
  const [found] = await tx.select().from(apiKeys).where(keyOf(ref));
  if (found === undefined) return null;
  // In the order in which all others lock them: the organization, all that makes keys, then keys.
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
    ? 'the gateway calls with this key itself, and nobody has its secret'
    : row.imported
      ? 'the secret of this key was chosen by its operator; make another key instead'
      : status !== 'active'
        ? `this key is ${status}; make another one`
        : null;
  if (because !== null) throw new AppError('conflict', { message: `Not rotated: ${because}.` });
}

/** Of two who ask at once, the second finds the secret that the first was given. */
function requireSecret({ last4 }: KeyRow, known: string | undefined): void {
  if (known === undefined || known === last4) return;
  const message = `Not rotated: the secret of this key ends in ${last4}, and not in ${known}: it was rotated since.`;
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
    const message = `Not rotated: ${formerMax} former secrets of this key still work; wait for one to end, or revoke the key.`;
    throw new AppError('conflict', { message });
  }
  await tx.insert(formerSecrets).values({ secretHash, keyId: id, endsAt, revokedAt });
}

/**
 * Ends a former secret that leaked; the key itself, and its secret of today, live on.
 * @returns the key's row; `changed` is false where the secret had ended before. Null where it is no former secret
 */
export async function endFormerSecret(
  context: ChangeContext,
  secretHash: Buffer,
  author: Author,
): Promise<{ readonly row: KeyRow; readonly changed: boolean } | null> {
  const { tx, now } = context;
  const [former] = await tx.select().from(formerSecrets).where(eq(formerSecrets.secretHash, secretHash));
  if (former === undefined) return null;
  const ofKey = eq(apiKeys.id, former.keyId);
  const [before] = await tx.select().from(apiKeys).where(ofKey).for('update');
  if (before === undefined) return null;
  const isIt = eq(formerSecrets.secretHash, secretHash);
  // Also where its grace was over before: what began with it then may be running.
  await tx
    .update(formerSecrets)
    .set({ revokedAt: now })
    .where(and(isIt, isNull(formerSecrets.revokedAt)));
  const working = and(isIt, gt(formerSecrets.endsAt, now));
  const ended = await tx.update(formerSecrets).set({ endsAt: now }).where(working).returning();
  if (ended.length === 0 || before.revokedAt !== null) return { row: before, changed: false };
  const [last] = await tx
    .select({ endsAt: max(formerSecrets.endsAt) })
    .from(formerSecrets)
    .where(eq(formerSecrets.keyId, former.keyId));
  const change = { formerSecretsEndAt: last?.endsAt ?? now };
  const [after] = await tx.update(apiKeys).set(change).where(ofKey).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await recordKeyChange(context, 'api_key.reported', { before, after }, author);
  return { row: after, changed: true };
}

/** Former secrets of these keys that were ended for good. */
export function readRevokedSecrets({ orm }: Db, keyIds: readonly string[]): Promise<readonly SecretEnd[]> {
  return orm
    .select({ keyId: formerSecrets.keyId, secretHash: formerSecrets.secretHash })
    .from(formerSecrets)
    .where(and(inArray(formerSecrets.keyId, [...keyIds]), isNotNull(formerSecrets.revokedAt)));
}
