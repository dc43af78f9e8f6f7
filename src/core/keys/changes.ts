import { and } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { type Author, systemAuthor } from '#core/audit/audit.ts';
import { type AfterCommit, afterCommit, type HoldingOptions, type KeyChangesOptions } from './after-commit.ts';
import { type KeyRecord, type KeyRow, toKeyRecord } from './api-key.ts';
import { type CreatedKey, insertKey, makeKey, type NewKey, type NewUserKey, withLimits } from './create.ts';
import { defaultKeyLimits } from './defaults.ts';
import { type ForeignSecret, importedKey, type ImportedKey, importKey } from './import.ts';
import { heldUnusedMs, holdKey, keyWithId, selectKeyIds, unusedHeld } from './internal-keys.ts';
import { requireActiveAuthor } from './key-requirements.ts';
import { type ChangeContext, keyOf, type KeyRef } from './key-rows.ts';
import { reportSecret } from './report.ts';
import { type KeyHolder, revokeAllKeys, revokeKey } from './revoke.ts';
import { rotateKey, type Rotation } from './rotate.ts';
import { importedParts } from './secret.ts';
import { type KeyPatch, updateKey } from './update.ts';

export interface KeyChanges {
  readonly createIn: (tx: Transaction, input: NewKey, author: Author) => Promise<CreatedKey>;
  /** Returns the row of the key that the gateway itself uses for a user under a name, and creates the key if needed. */
  readonly hold: (input: NewUserKey, author: Author) => Promise<KeyRow>;
  /** Revokes keys that the gateway itself uses for users and that were not used for 30 days. */
  readonly endUnusedHeld: () => Promise<void>;
  readonly importIn: (tx: Transaction, secret: string, input: NewKey, author: Author) => Promise<KeyRecord>;
  readonly importHashIn: (
    tx: Transaction,
    secret: ForeignSecret,
    input: NewKey,
    author: Author,
  ) => Promise<ImportedKey>;
  readonly patch: (ref: KeyRef, patch: KeyPatch, author: Author) => Promise<KeyRow | null>;
  readonly rotate: (ref: KeyRef, rotation: Rotation, author: Author) => Promise<CreatedKey | null>;
  readonly revoke: (ref: KeyRef, author: Author) => Promise<KeyRow | null>;
  readonly revokeAllIn: (tx: Transaction, holder: KeyHolder, author: Author) => Promise<() => Promise<void>>;
  readonly report: (secret: string, requestId: string | null) => Promise<boolean>;
}

interface RotateOptions extends HoldingOptions, AfterCommit {
  readonly rotation: Rotation;
  readonly author: Author;
}

export async function rotate(ref: KeyRef, options: RotateOptions): Promise<CreatedKey | null> {
  const { db, inside, verifier, keyEvents, notify } = options;
  const made = await db.orm.transaction((tx) => rotateKey(inside(tx), ref, options));
  if (made === null) return null;
  verifier.learn(made.row);
  if (made.ended !== null) keyEvents.notifySecret(made.ended);
  await notify(made.row);
  return { key: toKeyRecord(made.row), secret: made.secret };
}

/** Changes keys, each in one transaction, and updates the verifier after the commit. */
export function createKeyChanges(options: KeyChangesOptions): KeyChanges {
  const { db, clock, audit, verifier } = options;
  const inside = (tx: Transaction): ChangeContext => ({ tx, audit, now: new Date(clock.now()) });
  const after = afterCommit(options);
  const { notify, finish } = after;
  return {
    async createIn(tx, input, author) {
      const { row, secret } = await makeKey(inside(tx), input, author, { ...options, held: false });
      return { key: toKeyRecord(row), secret };
    },
    hold: (input, author) => holdKey(input, author, { ...options, inside }),
    async endUnusedHeld() {
      const nowMs = clock.now();
      const unused = unusedHeld(new Date(nowMs - heldUnusedMs), new Date(nowMs));
      for (const id of await selectKeyIds(db, unused)) {
        // `unused` is checked again: a key that was used in the meantime is not revoked.
        const which = and(keyWithId(id), unused);
        const done = await db.orm.transaction((tx) => revokeKey(inside(tx), which, 'api_key.revoked', systemAuthor));
        if (done !== null) await finish(done);
      }
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
    importHashIn: async (tx, secret, input, author) =>
      importedKey(await importKey(inside(tx), secret, input, { ...options, author }), notify),
    async patch(ref, patch, author) {
      const row = await db.orm.transaction((tx) => updateKey(inside(tx), ref, patch, author));
      if (row === null) return null;
      await notify(row);
      return row;
    },
    rotate: (ref, rotation, author) => rotate(ref, { ...options, ...after, inside, rotation, author }),
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
    report: (secret, requestId) => reportSecret(secret, requestId, { ...options, ...after, inside }),
  };
}
