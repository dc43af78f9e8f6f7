import { createCipheriv, createDecipheriv, randomBytes, scrypt } from 'node:crypto';
import type { ISql } from 'postgres';
import { type KeyRing, type PlatformKey, toPlatformKey } from './key-ring.ts';

/**
 * Copies of the platform keys in the database, encrypted with a passphrase: with a backup and the passphrase an
 * operator has the keys as well. Without a passphrase no copy is stored.
 */

const algorithm = 'aes-256-gcm';
/** Cost of scrypt, with 32 MiB of memory: about 0.1 s per guess of a passphrase. */
const cost = { N: 32_768, r: 8, p: 1, maxmem: 67_108_864 };
const saltBytes = 16;
const nonceBytes = 12;
const tagBytes = 16;

const bindingOf = (id: string): Buffer => Buffer.from(`headgate sealed platform key\0${id}`);

function derive(passphrase: string, salt: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    scrypt(passphrase, salt, 32, cost, (error, key) => (error === null ? resolve(key) : reject(error)));
  });
}

/** @returns salt, nonce, tag, and the encrypted key */
async function seal(passphrase: string, { id, bytes }: PlatformKey): Promise<Buffer> {
  const [salt, nonce] = [randomBytes(saltBytes), randomBytes(nonceBytes)];
  const cipher = createCipheriv(algorithm, await derive(passphrase, salt), nonce, { authTagLength: tagBytes });
  cipher.setAAD(bindingOf(id));
  const body = Buffer.concat([cipher.update(bytes), cipher.final()]);
  return Buffer.concat([salt, nonce, cipher.getAuthTag(), body]);
}

/** Returns null if the passphrase is wrong, or the copy was altered. */
async function open(passphrase: string, id: string, sealed: Buffer): Promise<PlatformKey | null> {
  const [nonceStart, tagStart] = [saltBytes, saltBytes + nonceBytes];
  const bodyStart = tagStart + tagBytes;
  const key = await derive(passphrase, sealed.subarray(0, nonceStart));
  try {
    const nonce = sealed.subarray(nonceStart, tagStart);
    const decipher = createDecipheriv(algorithm, key, nonce, { authTagLength: tagBytes });
    decipher.setAAD(bindingOf(id));
    decipher.setAuthTag(sealed.subarray(tagStart, bodyStart));
    const opened = toPlatformKey(Buffer.concat([decipher.update(sealed.subarray(bodyStart)), decipher.final()]));
    return opened.id === id ? opened : null;
  } catch {
    return null;
  }
}

/** The platform key in use, by its fingerprint. */
export interface KeyState {
  readonly id: string;
  /** True if this gateway's key ring has the key. */
  readonly isHere: boolean;
  /** True if the database, and so each backup of it, has an encrypted copy. */
  readonly isCarried: boolean;
}

/** Returns null if no platform key was ever used. Also reads databases of older versions. @throws KeyFileError */
export async function readKeyState(sql: ISql, ring: KeyRing): Promise<KeyState | null> {
  const [row] = await sql<{ id: string; carried: boolean }[]>`
    select id, to_jsonb(k) ->> 'sealed' is not null as carried from platform_keys k order by position desc limit 1`;
  if (row === undefined) return null;
  return { id: row.id, isHere: ring.read().some(({ id }) => id === row.id), isCarried: row.carried };
}

/**
 * Stores a copy of each ring key that was ever used, unless the passphrase opens the stored copy.
 * @throws KeyFileError
 */
export async function storeCopies(sql: ISql, ring: KeyRing, passphrase: string): Promise<void> {
  for (const key of ring.read()) {
    const [row] = await sql<{ sealed: Buffer | null }[]>`select sealed from platform_keys where id = ${key.id}`;
    if (row === undefined || (row.sealed !== null && (await open(passphrase, key.id, row.sealed)) !== null)) continue;
    await sql`update platform_keys set sealed = ${await seal(passphrase, key)} where id = ${key.id}`;
  }
}

/**
 * Adds the keys with copies in the database to the ring, most recently used first.
 * @returns fingerprints of the decrypted keys
 * @throws KeyFileError
 */
export async function restoreKeys(sql: ISql, ring: KeyRing, passphrase: string): Promise<readonly string[]> {
  const rows = await sql<{ id: string; sealed: Buffer }[]>`
    select id, sealed from platform_keys where sealed is not null order by position desc`;
  const opened = await Promise.all(rows.map(({ id, sealed }) => open(passphrase, id, sealed)));
  const keys = opened.filter((key) => key !== null);
  if (keys.length > 0) ring.add(keys);
  return keys.map(({ id }) => id);
}
