import { asc, eq, ne, or } from 'drizzle-orm';
import type { ISql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { purposeOf } from './endpoint.ts';
import { webhookEndpoints } from './schema.ts';

export interface ResealOptions {
  readonly db: Db;
  readonly secrets: Secrets;
  readonly log: Log;
}

const isStale = (keyId: string) => or(ne(webhookEndpoints.secretKeyId, keyId), ne(webhookEndpoints.formerKeyId, keyId));

/**
 * Encrypts secrets again that an older platform key encrypted, with the key in use. Several gateways may do this at
 * once: each takes rows that no other has locked. Secrets that cannot be decrypted stay unchanged and are named in the
 * log.
 */
export async function resealEndpoints({ db, secrets, log }: ResealOptions): Promise<void> {
  const keyId = await keyInUseOrNull(secrets);
  if (keyId === null) return;
  const stale = await db.orm
    .select({ id: webhookEndpoints.id })
    .from(webhookEndpoints)
    .where(isStale(keyId))
    .orderBy(asc(webhookEndpoints.id));
  for (const { id } of stale) {
    try {
      await resealOne(db, secrets, id);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      log.error(
        { webhook: formatId('wh', id), trouble: error.message },
        'the signing secret of a webhook still needs an older platform key; keep that key, or rotate the secret',
      );
    }
  }
  if (stale.length > 0) log.info({ keyId }, 'signing secrets of webhooks are encrypted with the current platform key');
}

/** Counts webhooks with a secret that a platform key other than `keyId` encrypted. */
export async function countOtherKeysWebhooks(sql: ISql, keyId: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from webhook_endpoints where secret_key_id <> ${keyId} or former_key_id <> ${keyId}`;
  return row?.count ?? 0;
}

async function resealOne(db: Db, secrets: Secrets, id: string): Promise<void> {
  await db.orm.transaction(async (tx) => {
    const isOne = eq(webhookEndpoints.id, id);
    const [row] = await tx.select().from(webhookEndpoints).where(isOne).for('update', { skipLocked: true });
    if (row === undefined) return;
    const purpose = purposeOf(id);
    const anew = (keyId: string, bytes: Buffer) => secrets.seal(tx, purpose, secrets.open(purpose, { keyId, bytes }));
    const today = await anew(row.secretKeyId, row.secretSealed);
    const { formerKeyId, formerSealed } = row;
    const former = formerKeyId === null || formerSealed === null ? null : await anew(formerKeyId, formerSealed);
    await tx
      .update(webhookEndpoints)
      .set({
        secretKeyId: today.keyId,
        secretSealed: today.bytes,
        ...(former !== null && { formerKeyId: former.keyId, formerSealed: former.bytes }),
      })
      .where(isOne);
  });
}

/** Returns null if nothing was ever encrypted, or the key is missing on this gateway. */
async function keyInUseOrNull(secrets: Secrets): Promise<string | null> {
  try {
    return await secrets.keyInUse();
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}
