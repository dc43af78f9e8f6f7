import { and, eq, gt, isNull, max } from 'drizzle-orm';
import { AppError } from '#base/errors.ts';
import { type Author, systemAuthor } from '#core/audit/audit.ts';
import type { AfterCommit, HoldingOptions } from './after-commit.ts';
import type { KeyRow } from './api-key.ts';
import { type ChangeContext, keyWithHash, recordKeyChange } from './key-rows.ts';
import { revokeKey } from './revoke.ts';
import { apiKeys, formerSecrets } from './schema.ts';
import { hashSecret } from './secret.ts';

export async function reportSecret(
  secret: string,
  requestId: string | null,
  { db, inside, verifier, keyEvents, notify, finish }: HoldingOptions & AfterCommit,
): Promise<boolean> {
  if (!verifier.isKey(secret)) {
    throw new AppError('invalid_value', { message: 'secret: not an API key of this gateway.', param: 'secret' });
  }
  const reporter: Author = { ...systemAuthor, requestId };
  const hash = hashSecret(secret);
  const which = keyWithHash(hash);
  const done = await db.orm.transaction((tx) => revokeKey(inside(tx), which, 'api_key.reported', reporter));
  if (done !== null) {
    await finish(done);
    return done.changed;
  }
  const ended = await db.orm.transaction((tx) => endFormerSecret(inside(tx), hash, reporter));
  if (ended === null) return false;
  // The verifier learns the end before listeners run, so that requests with the secret are rejected from here on.
  verifier.learn(ended.row);
  keyEvents.notifySecret({ keyId: ended.row.id, secretHash: hash });
  await notify(ended.row);
  return ended.changed;
}

/**
 * Ends a leaked former secret; the key and its current secret stay valid.
 * @returns the key's row, with `changed` false if the secret had ended before; null if it is no former secret
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
  // Also if its grace period was over: requests that started with the secret before may still run.
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
