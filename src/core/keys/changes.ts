import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import { type Audit, type Author, systemAuthor } from '#core/audit/audit.ts';
import { type KeyRecord, type KeyRow, toKeyRecord } from './api-key.ts';
import {
  type ChangeContext,
  insertKey,
  type KeyHolder,
  keyOf,
  type KeyPatch,
  type KeyRef,
  keyWithHash,
  type NewKey,
  requireActiveAuthor,
  requireKeyQuota,
  revokeAllKeys,
  type Revocation,
  revokeKey,
  updateKey,
  withLimits,
} from './key-rows.ts';
import { defaultKeyLimits } from './defaults.ts';
import type { KeyEvents } from './key-events.ts';
import { hashSecret, importedParts, makeSecret } from './secret.ts';
import type { Verifier } from './verifier.ts';

export interface CreatedKey {
  readonly key: KeyRecord;
  /** Shown once; it is kept nowhere. */
  readonly secret: string;
}

export interface KeyChanges {
  readonly createIn: (tx: Transaction, input: NewKey, author: Author) => Promise<CreatedKey>;
  readonly importIn: (tx: Transaction, secret: string, input: NewKey, author: Author) => Promise<KeyRecord>;
  readonly patch: (ref: KeyRef, patch: KeyPatch, author: Author) => Promise<KeyRow | null>;
  readonly revoke: (ref: KeyRef, author: Author) => Promise<KeyRow | null>;
  readonly revokeAllIn: (tx: Transaction, holder: KeyHolder, author: Author) => Promise<() => Promise<void>>;
  readonly report: (secret: string, requestId: string | null) => Promise<boolean>;
}

export interface KeyChangesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'isMember'>;
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
  readonly verifier: Verifier;
  readonly keyEvents: KeyEvents;
}

/** What changes keys: one transaction each, and after its commit the hot path knows. */
export function createKeyChanges(options: KeyChangesOptions): KeyChanges {
  const { db, clock, audit, verifier, keyEvents } = options;
  const inside = (tx: Transaction): ChangeContext => ({ tx, audit, now: new Date(clock.now()) });
  const broadcast = (row: KeyRow): Promise<void> =>
    keyEvents.broadcast({ organizationId: row.organizationId, keyId: row.id, revoked: row.revokedAt !== null });
  const finish = async ({ row, changed }: Revocation): Promise<KeyRow> => {
    verifier.learn(row);
    if (changed) keyEvents.notify(row.id);
    // Also when it was revoked before: a gateway may have missed the first message.
    await broadcast(row);
    return row;
  };
  return {
    async createIn(tx, input, author) {
      const context = inside(tx);
      const { defaultLimits } = await requireKeyQuota(context, input, options);
      await requireActiveAuthor(context, author);
      const parts = makeSecret(options.keyPrefix, input.projectId);
      const limited = withLimits(input, { ...defaultKeyLimits, ...defaultLimits });
      const row = await insertKey(context, limited, { ...parts, imported: false }, author);
      return { key: toKeyRecord(row), secret: parts.secret };
    },
    async importIn(tx, secret, input, author) {
      const parts = importedParts(secret);
      const limited = withLimits(input, defaultKeyLimits);
      const context = inside(tx);
      await requireActiveAuthor(context, author);
      const row = await insertKey(context, limited, { ...parts, imported: true }, author);
      verifier.allowImported(parts.secretHash);
      return toKeyRecord(row);
    },
    async patch(ref, patch, author) {
      const row = await db.orm.transaction((tx) => updateKey(inside(tx), ref, patch, author));
      if (row === null) return null;
      verifier.learn(row);
      await broadcast(row);
      return row;
    },
    async revoke(ref, author) {
      const done = await db.orm.transaction((tx) => revokeKey(inside(tx), keyOf(ref), 'api_key.revoked', author));
      return done === null ? null : finish(done);
    },
    async revokeAllIn(tx, holder, author) {
      const rows = await revokeAllKeys(inside(tx), holder, author);
      return async () => {
        await Promise.all(rows.map((row) => finish({ row, changed: true })));
      };
    },
    async report(secret, requestId) {
      if (!verifier.isKey(secret)) {
        throw new AppError('invalid_value', {
          message: 'secret: this is no API key of this gateway.',
          param: 'secret',
        });
      }
      const reporter: Author = { ...systemAuthor, requestId };
      const which = keyWithHash(hashSecret(secret));
      const done = await db.orm.transaction((tx) => revokeKey(inside(tx), which, 'api_key.reported', reporter));
      if (done === null) return false;
      await finish(done);
      return done.changed;
    },
  };
}
