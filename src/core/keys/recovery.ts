import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { listPlatformAdmins } from '#core/accounts/accounts.ts';
import { type Audit, systemAuthor } from '#core/audit/audit.ts';
import { type KeyRecord, toKeyRecord } from './api-key.ts';
import { defaultKeyLimits, defaultKeyToggles } from './defaults.ts';
import { holdNewKeys } from './key-requirements.ts';
import { insertKey, keyOf, revokeKey, selectActiveKeysOf } from './key-rows.ts';
import { makeSecret } from './secret.ts';

/** Who lost the last key of the platform's admin makes a new one in the database itself. */

export interface RecoveryOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly keyPrefix: string;
  /** Ends every other management key of a platform admin. */
  readonly revokeOthers: boolean;
}

export interface Recovery {
  readonly key: KeyRecord;
  /** Shown once; it is kept nowhere. */
  readonly secret: string;
  /** Of the user whom the key acts for. */
  readonly email: string;
  /** Other management keys of platform admins that were active; they are revoked if that was asked for. */
  readonly others: readonly KeyRecord[];
}

/**
 * Makes a management key of the oldest platform admin, in one transaction with its audit rows. It counts against no
 * limit of active keys: who is locked out can revoke none.
 * @returns null when there is no platform admin: no gateway has started on this database
 */
export async function recoverPlatformKey(options: RecoveryOptions): Promise<Recovery | null> {
  const { db, clock, audit, keyPrefix, revokeOthers } = options;
  return db.orm.transaction(async (tx) => {
    const context = { tx, audit, now: new Date(clock.now()) };
    const admins = await listPlatformAdmins(tx);
    const [admin] = admins;
    if (admin === undefined) return null;
    // A key that is made meanwhile is waited for and found, or finds that the key which makes it is revoked.
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
