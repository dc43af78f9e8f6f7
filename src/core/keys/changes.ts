import { and } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
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
  type NewUserKey,
  type Revocation,
  revokeAllKeys,
  revokeKey,
  updateKey,
  withLimits,
} from './key-rows.ts';
import { defaultKeyLimits } from './defaults.ts';
import { requireActiveAuthor, requireKeyQuota, requireOpen } from './key-requirements.ts';
import { keyWithId, selectHeldKey, selectKeyIds, unusedHeld } from './held-keys.ts';
import type { KeyEvents } from './key-events.ts';
import { hashSecret, importedParts, makeSecret } from './secret.ts';
import { endFormerSecret, rotateKey, type Rotation } from './rotation.ts';
import type { Verifier } from './verifier.ts';

const heldUnusedMs = 30 * 86_400_000;

export interface CreatedKey {
  readonly key: KeyRecord;
  /** Shown once and not stored. */
  readonly secret: string;
}

export interface KeyChanges {
  readonly createIn: (tx: Transaction, input: NewKey, author: Author) => Promise<CreatedKey>;
  /** Returns the row of the key that the gateway itself uses for a user under a name, and creates the key if needed. */
  readonly hold: (input: NewUserKey, author: Author) => Promise<KeyRow>;
  /** Revokes keys that the gateway itself uses for users and that were not used for 30 days. */
  readonly endUnusedHeld: () => Promise<void>;
  readonly importIn: (tx: Transaction, secret: string, input: NewKey, author: Author) => Promise<KeyRecord>;
  readonly patch: (ref: KeyRef, patch: KeyPatch, author: Author) => Promise<KeyRow | null>;
  readonly rotate: (ref: KeyRef, rotation: Rotation, author: Author) => Promise<CreatedKey | null>;
  readonly revoke: (ref: KeyRef, author: Author) => Promise<KeyRow | null>;
  readonly revokeAllIn: (tx: Transaction, holder: KeyHolder, author: Author) => Promise<() => Promise<void>>;
  readonly report: (secret: string, requestId: string | null) => Promise<boolean>;
}

export interface KeyChangesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'isMember' | 'serviceAccounts'>;
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
  readonly verifier: Verifier;
  readonly keyEvents: KeyEvents;
}

interface MadeKey {
  readonly row: KeyRow;
  readonly secret: string;
}

async function makeKey(
  context: ChangeContext,
  input: NewKey,
  author: Author,
  { held, ...options }: KeyChangesOptions & { readonly held: boolean },
): Promise<MadeKey> {
  const allow = held ? requireOpen : requireKeyQuota;
  const { defaultLimits } = await allow(
    context,
    { ...input, serviceAccountId: input.serviceAccountId ?? null },
    options,
  );
  await requireActiveAuthor(context, author);
  const parts = makeSecret(options.keyPrefix, input.projectId);
  const limited = withLimits(input, { ...defaultKeyLimits, ...defaultLimits });
  const row = await insertKey(context, limited, { ...parts, imported: false, held }, author);
  return { row, secret: parts.secret };
}

interface HoldingOptions extends KeyChangesOptions {
  readonly inside: (tx: Transaction) => ChangeContext;
}

async function holdKey(input: NewUserKey, author: Author, options: HoldingOptions): Promise<KeyRow> {
  const { db, clock, accounts, inside } = options;
  const known = await selectHeldKey(db.orm, input, new Date(clock.now()));
  if (known !== null) return known;
  return db.orm.transaction(async (tx) => {
    // The organization's row is locked: of two simultaneous calls, the second finds the key that the first created.
    await accounts.lockOrganization(tx, input.organizationId);
    const made = await selectHeldKey(tx, input, new Date(clock.now()));
    // The secret is thrown away: nobody calls with it.
    return made ?? (await makeKey(inside(tx), input, author, { ...options, held: true })).row;
  });
}

interface AfterCommit {
  /** Applies the row here and notifies all gateways. */
  readonly tell: (row: KeyRow) => Promise<void>;
  /** Like `tell`, and also ends running requests of a key that was revoked. */
  readonly finish: (revocation: Revocation) => Promise<KeyRow>;
}

function afterCommit({ verifier, keyEvents }: Pick<KeyChangesOptions, 'verifier' | 'keyEvents'>): AfterCommit {
  const broadcast = (row: KeyRow): Promise<void> =>
    keyEvents.broadcast({ organizationId: row.organizationId, keyId: row.id, revoked: row.revokedAt !== null });
  return {
    async tell(row) {
      verifier.learn(row);
      await broadcast(row);
    },
    async finish({ row, changed }) {
      verifier.learn(row);
      if (changed) keyEvents.notify(row.id);
      // Also when the key was revoked before: a gateway may have missed the first message.
      await broadcast(row);
      return row;
    },
  };
}

interface RotateOptions extends HoldingOptions, AfterCommit {
  readonly rotation: Rotation;
  readonly author: Author;
}

async function rotate(ref: KeyRef, options: RotateOptions): Promise<CreatedKey | null> {
  const { db, inside, verifier, keyEvents, tell } = options;
  const made = await db.orm.transaction((tx) => rotateKey(inside(tx), ref, options));
  if (made === null) return null;
  verifier.learn(made.row);
  if (made.ended !== null) keyEvents.notifySecret(made.ended);
  await tell(made.row);
  return { key: toKeyRecord(made.row), secret: made.secret };
}

async function reportSecret(
  secret: string,
  requestId: string | null,
  { db, inside, verifier, keyEvents, tell, finish }: HoldingOptions & AfterCommit,
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
  // The key is forgotten before listeners run, so that requests with the secret are rejected from here on.
  verifier.learn(ended.row);
  keyEvents.notifySecret({ keyId: ended.row.id, secretHash: hash });
  await tell(ended.row);
  return ended.changed;
}

/** Changes keys, each in one transaction, and updates the verifier after the commit. */
export function createKeyChanges(options: KeyChangesOptions): KeyChanges {
  const { db, clock, audit, verifier } = options;
  const inside = (tx: Transaction): ChangeContext => ({ tx, audit, now: new Date(clock.now()) });
  const after = afterCommit(options);
  const { tell, finish } = after;
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
    async patch(ref, patch, author) {
      const row = await db.orm.transaction((tx) => updateKey(inside(tx), ref, patch, author));
      if (row === null) return null;
      await tell(row);
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
