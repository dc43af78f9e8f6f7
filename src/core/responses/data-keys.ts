import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { desc, eq, ne } from 'drizzle-orm';
import type { ISql } from 'postgres';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { responseKeys } from './schema.ts';

/**
 * Keys of stored responses. The platform key encrypts only these keys and not each response: to use the platform key
 * takes a transaction with a lock, and its rotation would rewrite all responses.
 */
export interface DataKeys {
  /** Returns the key for new responses; creates the first one. @throws AppError secrets_unavailable */
  current(): Promise<DataKey>;
  /** @throws AppError secrets_unavailable if the platform key of this data key is missing */
  byId(id: string): Promise<DataKey>;
  /**
   * Encrypts data keys with the platform key in use, and then creates a new data key: responses from now on cannot be
   * read with the older platform key. Several gateways may do this at once.
   */
  reseal(): Promise<void>;
}

export interface DataKey {
  readonly id: string;
  readonly bytes: Buffer;
}

export interface DataKeysOptions {
  readonly db: Db;
  readonly secrets: Secrets;
  readonly log: Log;
}

const keyBytes = 32;
const purposeOf = (id: string): string => `responses ${id}`;

export function createDataKeys({ db, secrets, log }: DataKeysOptions): DataKeys {
  const known = new Map<string, DataKey>();
  let newest: DataKey | null = null;

  const open = ({ id, platformKeyId, sealed }: KeyRow): DataKey => {
    const text = secrets.open(purposeOf(id), { keyId: platformKeyId, bytes: sealed });
    const key = known.get(id) ?? { id, bytes: Buffer.from(text, 'base64') };
    known.set(id, key);
    return key;
  };
  /** Returns null also if the platform key of the newest data key is lost: a new data key replaces it. */
  const readNewest = async (from: Pick<Transaction, 'select'>): Promise<DataKey | null> => {
    const [row] = await from.select().from(responseKeys).orderBy(desc(responseKeys.id)).limit(1);
    return row === undefined ? null : openOrNull(open, row);
  };
  const create = async (tx: Transaction): Promise<DataKey> => {
    const key = { id: uuidv7(), bytes: randomBytes(keyBytes) };
    const sealed = await secrets.seal(tx, purposeOf(key.id), key.bytes.toString('base64'));
    await tx.insert(responseKeys).values({ id: key.id, platformKeyId: sealed.keyId, sealed: sealed.bytes });
    known.set(key.id, key);
    return key;
  };

  return {
    async current() {
      newest ??= await readNewest(db.orm);
      newest ??= await db.orm.transaction(async (tx) => {
        // Locks the choice of the platform key, and with it this choice: of several gateways one creates the first key.
        await secrets.seal(tx, purposeOf(''), '');
        return (await readNewest(tx)) ?? create(tx);
      });
      return newest;
    },
    async byId(id) {
      const key = known.get(id);
      if (key !== undefined) return key;
      const [row] = await db.orm.select().from(responseKeys).where(eq(responseKeys.id, id));
      if (row === undefined) throw new AppError('secrets_unavailable', { message: `The data key ${id} is missing.` });
      return open(row);
    },
    async reseal() {
      newest = null;
      const platformKeyId = await keyInUseOrNull(secrets);
      if (platformKeyId === null) return;
      const isStale = ne(responseKeys.platformKeyId, platformKeyId);
      const resealed = await db.orm.transaction(async (tx) => {
        const stale = await tx.select().from(responseKeys).where(isStale).for('update', { skipLocked: true });
        const readable = stale.flatMap((row) => openOrNull(open, row) ?? []);
        for (const { id, bytes } of readable) {
          const sealed = await secrets.seal(tx, purposeOf(id), bytes.toString('base64'));
          const now = { platformKeyId: sealed.keyId, sealed: sealed.bytes };
          await tx.update(responseKeys).set(now).where(eq(responseKeys.id, id));
        }
        if (readable.length > 0) await create(tx);
        return readable.length;
      });
      if (resealed > 0)
        log.info({ resealed, platformKeyId }, 'keys of stored responses are encrypted with the current platform key');
    },
  };
}

type KeyRow = typeof responseKeys.$inferSelect;

function openOrNull(open: (row: KeyRow) => DataKey, row: KeyRow): DataKey | null {
  try {
    return open(row);
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}

/** Counts data keys that a platform key other than `keyId` encrypted. */
export async function countOtherKeysResponses(sql: ISql, keyId: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from response_keys where platform_key_id <> ${keyId}`;
  return row?.count ?? 0;
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

const algorithm = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;

/** @param binding the place of the text, such as "<organization> <response> input": it opens only there */
export function encrypt({ bytes }: DataKey, binding: string, plain: Buffer): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv(algorithm, bytes, nonce, { authTagLength: tagBytes });
  cipher.setAAD(Buffer.from(binding));
  const body = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

/** @throws AppError secrets_unavailable if the text was altered, or belongs to another place */
export function decrypt({ bytes }: DataKey, binding: string, sealed: Buffer): Buffer {
  const bodyStart = nonceBytes + tagBytes;
  try {
    const nonce = sealed.subarray(0, nonceBytes);
    const decipher = createDecipheriv(algorithm, bytes, nonce, { authTagLength: tagBytes });
    decipher.setAAD(Buffer.from(binding));
    decipher.setAuthTag(sealed.subarray(nonceBytes, bodyStart));
    return Buffer.concat([decipher.update(sealed.subarray(bodyStart)), decipher.final()]);
  } catch (error) {
    const message = 'A stored response cannot be decrypted: it was changed in the database.';
    throw new AppError('secrets_unavailable', { message, cause: error });
  }
}
