import { and, eq, inArray } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { listPlatformAdmins, type Scope } from '#core/accounts/accounts.ts';
import { type Audit, systemAuthor } from '#core/audit/audit.ts';
import { type KeyRecord, type KeyRow, toKeyRecord } from './api-key.ts';
import { insertKey } from './create.ts';
import { defaultKeyLimits, defaultKeyToggles } from './defaults.ts';
import { holdNewKeys } from './key-requirements.ts';
import { type ChangeContext, keyOf, withStatus } from './key-rows.ts';
import { oldestFirst } from './list.ts';
import { revokeKey } from './revoke.ts';
import { apiKeys } from './schema.ts';
import { makeSecret } from './secret.ts';

/** Returns active keys of these users with a scope, oldest first. */
export async function selectActiveKeysOf(
  { tx, now }: Pick<ChangeContext, 'tx' | 'now'>,
  userIds: readonly string[],
  scope: Scope,
): Promise<KeyRow[]> {
  return tx
    .select()
    .from(apiKeys)
    .where(and(inArray(apiKeys.userId, [...userIds]), eq(apiKeys.scope, scope), withStatus('active', now)))
    .orderBy(...oldestFirst);
}

/**
 * Recovery for an operator who lost the platform administrator's last key: creates a new one directly in the database.
 */

export interface RecoveryOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly keyPrefix: string;
  /** Revokes all other management keys of platform administrators. */
  readonly revokeOthers: boolean;
}

export interface Recovery {
  readonly key: KeyRecord;
  /** Shown once and not stored. */
  readonly secret: string;
  /** Email of the user whom the key acts for. */
  readonly email: string;
  /** Other active management keys of platform administrators; revoked if `revokeOthers` was set. */
  readonly others: readonly KeyRecord[];
}

/**
 * Creates a management key for the oldest platform administrator, in one transaction with its audit rows. No quota
 * applies: an operator without a key cannot revoke others first.
 * @returns null if there is no platform administrator, because no gateway has started on this database
 */
export async function recoverPlatformKey(options: RecoveryOptions): Promise<Recovery | null> {
  const { db, clock, audit, keyPrefix, revokeOthers } = options;
  return db.orm.transaction(async (tx) => {
    const context = { tx, audit, now: new Date(clock.now()) };
    const admins = await listPlatformAdmins(tx);
    const [admin] = admins;
    if (admin === undefined) return null;
    // A key being created is waited for and found, or its creation fails because the creating key is revoked.
    if (revokeOthers) await holdNewKeys(context);
    const { email, ...place } = admin;
    const userIds = admins.map(({ userId }) => userId);
    const others = await selectActiveKeysOf(context, userIds, 'management');
    if (revokeOthers) {
      for (const { id: keyId, organizationId } of others) {
        await revokeKey(context, keyOf({ organizationId, keyId }), 'api_key.revoked', systemAuthor);
      }
    }
    const input = {
      ...place,
      name: 'Recovered management key',
      scope: 'management' as const,
      expires: null,
      limits: defaultKeyLimits,
      models: null,
      toggles: defaultKeyToggles,
    };
    const parts = makeSecret(keyPrefix, admin.projectId);
    const made = { ...parts, imported: false, action: 'api_key.recovered' as const };
    const row = await insertKey(context, input, made, systemAuthor);
    return { key: toKeyRecord(row), secret: parts.secret, email, others: others.map(toKeyRecord) };
  });
}
