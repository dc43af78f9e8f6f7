import type { Clock } from '#base/clock.ts';
import { type Db, isDatabaseUnavailable } from '#base/db.ts';
import { parseId } from '#base/id.ts';
import { listPlatformAdmins } from '#core/accounts/accounts.ts';
import { type Audit, readSystemChanges, systemAuthor } from '#core/audit/audit.ts';
import { type KeyRecord, toKeyRecord } from './api-key.ts';
import { defaultKeyLimits, defaultKeyToggles } from './defaults.ts';
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

export interface SystemRevocationsOptions {
  readonly db: Db;
  readonly clock: Clock;
  /** Takes over what PostgreSQL says of a key. */
  readonly refresh: (keyId: string) => Promise<void>;
}

/** How far two clocks may be apart, and how long a transaction may take to be seen. */
const overlapMs = 60_000;

/**
 * Finds keys that were revoked on the machine itself, without a gateway that could have told the others.
 * @returns what looks once; while PostgreSQL is away it finds nothing
 */
export function watchSystemRevocations({ db, clock, refresh }: SystemRevocationsOptions): () => Promise<void> {
  let sinceMs = clock.now() - overlapMs;
  let seen: ReadonlySet<string> = new Set();
  return async () => {
    const nowMs = clock.now();
    try {
      const changes = await readSystemChanges(db, 'api_key.revoked', sinceMs);
      for (const { targetId } of changes.filter(({ id }) => !seen.has(id))) {
        const keyId = parseId('key', targetId);
        if (keyId !== null) await refresh(keyId);
      }
      seen = new Set(changes.map(({ id }) => id));
      sinceMs = nowMs - overlapMs;
    } catch (error) {
      // The heartbeat says it, and a known key is read again by itself once PostgreSQL is back.
      if (!isDatabaseUnavailable(error)) throw error;
    }
  };
}
