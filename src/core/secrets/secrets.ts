import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { desc, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { readKeyState, restoreKeys, storeCopies } from './carried-keys.ts';
import { createKeyRing, KeyFileError, type KeyRing, type PlatformKey } from './key-ring.ts';
import { platformKeys } from './schema.ts';

export { type KeyState, readKeyState, storeCopies } from './carried-keys.ts';
export { createKeyRing, KeyFileError, type KeyRing } from './key-ring.ts';

/**
 * Secrets stored in PostgreSQL, encrypted with AES-256-GCM under a platform key that is never in the database in plain
 * text. All gateways of a database must have the same key. The database stores the fingerprint of the key in use, so
 * that a gateway with another key refuses to encrypt, instead of writing secrets that the others cannot read.
 */
export interface Secrets {
  /**
   * Encrypts a secret.
   * @param purpose the secret's owner, such as "cluster <id>": the secret opens only with the same purpose
   * @throws AppError secrets_unavailable if this gateway does not have the platform key in use
   */
  seal(tx: Transaction, purpose: string, plain: string): Promise<Sealed>;
  /** Decrypts a secret. @throws AppError secrets_unavailable if its key is missing, or the secret was altered */
  open(purpose: string, sealed: Sealed): string;
  /**
   * Returns the id of the key that encrypts; secrets encrypted with another key must be encrypted again. Null if
   * nothing was ever encrypted. A new first key of this gateway becomes the key in use here.
   * @throws AppError secrets_unavailable
   */
  keyInUse(): Promise<string | null>;
  /**
   * Returns the fingerprint of this gateway's first platform key; "none" without a key, "unreadable" for a bad file.
   */
  fingerprint(): string;
  /** Returns why this gateway could not encrypt at the last `check`; null if it could. */
  trouble(): string | null;
  /**
   * With a passphrase: adds the key in use to the ring if only the database has it, and stores copies of the ring's
   * keys. Logs each problem with the key once. Never rejects.
   */
  check(): Promise<void>;
}

/** An encrypted secret, as stored. */
export interface Sealed {
  readonly keyId: string;
  /** Nonce, tag and ciphertext. */
  readonly bytes: Buffer;
}

export interface SecretsOptions {
  readonly db: Db;
  readonly log: Log;
  /** Null uses a file in the data folder, which is created when first needed. */
  readonly keys: readonly Buffer[] | null;
  readonly dataDir: string;
  /** Encrypts copies of the keys in the database, so that backups contain them; null stores no copies. */
  readonly backupPassphrase: string | null;
}

const algorithm = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;

export function createSecrets({ db, log, keys, dataDir, backupPassphrase }: SecretsOptions): Secrets {
  const ring = createKeyRing(keys, dataDir);
  const carry = createCarrying({ db, log, ring, passphrase: backupPassphrase });
  let trouble: string | null = null;

  async function keyInUse(): Promise<string | null> {
    return db.orm.transaction(async (tx) => {
      const inUse = await lockKeyInUse(tx);
      return inUse === null ? null : (await chooseKey(tx, ring, inUse)).id;
    });
  }

  return {
    async seal(tx, purpose, plain) {
      const key = await chooseKey(tx, ring, await lockKeyInUse(tx));
      return { keyId: key.id, bytes: encrypt(key, purpose, plain) };
    },
    open(purpose, { keyId, bytes }) {
      const key = readRing(ring).find(({ id }) => id === keyId);
      if (key === undefined) throw keyMissing(ring, keyId);
      return decrypt(key, purpose, bytes);
    },
    keyInUse,
    fingerprint() {
      try {
        return ring.read()[0]?.id ?? 'none';
      } catch (error) {
        if (error instanceof KeyFileError) return 'unreadable';
        throw error;
      }
    },
    trouble: () => trouble,
    async check() {
      let found: string | null = null;
      try {
        await carry();
        await keyInUse();
        // The key in use may be new: the next backup must contain its copy.
        await carry();
      } catch (error) {
        found = error instanceof AppError ? error.message : `the platform key could not be checked: ${String(error)}`;
      }
      if (found !== null && found !== trouble) {
        log.error(
          { trouble: found },
          'this gateway cannot encrypt secrets (access identities, inputs of runs, webhooks) and starts no runs; restore the platform key',
        );
      }
      if (found === null && trouble !== null) log.info('this gateway can encrypt secrets again');
      trouble = found;
    },
  };
}

interface CarryingOptions extends Pick<SecretsOptions, 'db' | 'log'> {
  readonly ring: KeyRing;
  readonly passphrase: string | null;
}

/** @returns a function to call repeatedly; after its first success it does nothing until the key in use changes */
function createCarrying({ db, log, ring, passphrase }: CarryingOptions): () => Promise<void> {
  let doneFor: string | null = null;
  return async () => {
    if (passphrase === null) return;
    const state = await readKeyState(db.sql, ring).catch(rethrowAsUnavailable);
    if (state === null || (state.isHere && state.isCarried && state.id === doneFor)) return;
    if (!state.isHere && state.isCarried) {
      const restored = await restoreKeys(db.sql, ring, passphrase).catch(rethrowAsUnavailable);
      if (!restored.includes(state.id)) throw copyClosed(state.id);
      log.info({ keyIds: restored }, `platform keys were restored from the database to ${ring.place}`);
    }
    await storeCopies(db.sql, ring, passphrase).catch(rethrowAsUnavailable);
    doneFor = state.id;
  };
}

const copyClosed = (keyId: string): AppError =>
  unavailable(
    `This gateway lacks the platform key with the fingerprint ${keyId}, and HEADGATE_BACKUP_PASSPHRASE does not decrypt ` +
      'its copy in the database. Set the passphrase of the installation that the database comes from.',
  );

/** Locks the choice of the key in use for one gateway, until its transaction ends. */
async function lockKeyInUse(tx: Transaction): Promise<string | null> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext('headgate platform keys'))`);
  const [row] = await tx
    .select({ id: platformKeys.id })
    .from(platformKeys)
    .orderBy(desc(platformKeys.position))
    .limit(1);
  return row?.id ?? null;
}

/**
 * Returns the key for encryption. A first key that was never used becomes the key in use if the ring also has the
 * current key in use. A superseded key never returns, so that two gateways with the same keys in a different order do
 * not alternate.
 */
async function chooseKey(tx: Transaction, ring: KeyRing, inUse: string | null): Promise<PlatformKey> {
  const keys = readRing(ring);
  const current = keys.find(({ id }) => id === inUse);
  if (inUse !== null && current === undefined) throw keyMissing(ring, inUse);
  const [first] = keys.length > 0 ? keys : makeKey(ring);
  if (first === undefined) throw unavailable('The platform key is missing.');
  if (first.id === inUse) return first;
  const added = await tx.insert(platformKeys).values({ id: first.id }).onConflictDoNothing().returning();
  return added.length === 0 && current !== undefined ? current : first;
}

function readRing(ring: KeyRing): readonly PlatformKey[] {
  return withoutFileErrors(() => ring.read());
}

function makeKey(ring: KeyRing): readonly PlatformKey[] {
  return withoutFileErrors(() => ring.make());
}

function withoutFileErrors<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    return rethrowAsUnavailable(error);
  }
}

function rethrowAsUnavailable(error: unknown): never {
  if (error instanceof KeyFileError) throw unavailable(`The platform key cannot be used: ${error.message}.`);
  throw error;
}

function keyMissing(ring: KeyRing, keyId: string): AppError {
  const own = readRing(ring).map(({ id }) => id);
  const has = own.length === 0 ? 'has no key' : `has ${own.join(', ')}`;
  return unavailable(
    `This requires the platform key with the fingerprint ${keyId}, but this gateway ${has} (${ring.place}). All gateways ` +
      'of a database need the same HEADGATE_PLATFORM_KEY, or the same platform.key in their data folders: put the key ' +
      'back, or set the HEADGATE_BACKUP_PASSPHRASE that encrypted its copy in the database.',
  );
}

const unavailable = (message: string): AppError => new AppError('secrets_unavailable', { message });

/** Binds a secret to its key and purpose, so that the secret of one row cannot replace that of another. */
const bindingOf = (key: PlatformKey, purpose: string): Buffer => Buffer.from(`headgate\0${key.id}\0${purpose}`);

function encrypt(key: PlatformKey, purpose: string, plain: string): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv(algorithm, key.bytes, nonce, { authTagLength: tagBytes });
  cipher.setAAD(bindingOf(key, purpose));
  const body = Buffer.concat([cipher.update(plain, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

function decrypt(key: PlatformKey, purpose: string, bytes: Buffer): string {
  const bodyStart = nonceBytes + tagBytes;
  try {
    const decipher = createDecipheriv(algorithm, key.bytes, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes });
    decipher.setAAD(bindingOf(key, purpose));
    decipher.setAuthTag(bytes.subarray(nonceBytes, bodyStart));
    return Buffer.concat([decipher.update(bytes.subarray(bodyStart)), decipher.final()]).toString('utf8');
  } catch (error) {
    const message = 'A secret cannot be decrypted: it was changed in the database, or belongs to another record.';
    throw new AppError('secrets_unavailable', { message, cause: error });
  }
}
