import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { isFileError } from '#base/config/config.ts';

/** A key of AES-256-GCM; `id` is its fingerprint, which reveals nothing about the key. */
export interface PlatformKey {
  readonly id: string;
  readonly bytes: Buffer;
}

/** The platform keys that this gateway has. The first key is the preferred one for encryption. */
export interface KeyRing {
  /** Returns the keys; empty if no keys are configured and the file does not exist yet. @throws KeyFileError */
  read(): readonly PlatformKey[];
  /** Creates the file with a first key, or reads a file that another process has just created. @throws KeyFileError */
  make(): readonly PlatformKey[];
  /** Adds missing keys in front of the file's keys. @throws KeyFileError if the keys come from a setting */
  add(keys: readonly PlatformKey[]): void;
  /** Location of the keys, for messages: without the machine's paths, because messages are shown. */
  readonly place: string;
}

/** Thrown if the key file cannot be used; the message contains nothing of the file's content. */
export class KeyFileError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'KeyFileError';
  }
}

const fileName = 'platform.key';
const keyBytes = 32;
const fileMode = 0o600;

export function toPlatformKey(bytes: Buffer): PlatformKey {
  const id = createHash('sha256').update('headgate platform key\0').update(bytes).digest('hex').slice(0, 16);
  return { id, bytes };
}

/** @param given keys of HEADGATE_PLATFORM_KEY; null uses the file `platform.key` in the data folder */
export function createKeyRing(given: readonly Buffer[] | null, dataDir: string): KeyRing {
  const path = join(dataDir, fileName);
  if (given !== null) {
    const keys = given.map(toPlatformKey);
    const add = (): never => {
      throw new KeyFileError('HEADGATE_PLATFORM_KEY is set and replaces other keys: unset it, or add the missing key');
    };
    return { read: () => keys, make: () => keys, add, place: 'HEADGATE_PLATFORM_KEY' };
  }
  return {
    read: () => readKeyFile(path),
    make: () => makeKeyFile(path),
    add: (keys) => addToKeyFile(path, keys),
    place: `${fileName} of its data folder`,
  };
}

/** Reads the file each time: it is short, and added keys take effect without a restart. */
function readKeyFile(path: string): readonly PlatformKey[] {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    if (isFileError(error, 'ENOENT')) return [];
    throw new KeyFileError(`${fileName} cannot be read (${codeOf(error)})`);
  }
  try {
    const { mode } = fstatSync(file);
    if ((mode & 0o077) !== 0) throw new KeyFileError(`other users can read ${fileName}: its mode must be 0600`);
    return parseKeys(readFileSync(file, 'utf8'));
  } finally {
    closeSync(file);
  }
}

function parseKeys(text: string): readonly PlatformKey[] {
  const lines = text.split('\n').map((line) => line.trim());
  const keys = lines.filter((line) => line !== '' && !line.startsWith('#'));
  // 43 digits and optional padding encode 32 bytes.
  const isWhole = keys.length > 0 && keys.every((line) => /^[A-Za-z0-9+/_-]{43}=?$/.test(line));
  if (!isWhole) throw new KeyFileError(`${fileName} must contain one key of ${keyBytes} bytes in base64 per line`);
  return keys.map((line) => toPlatformKey(Buffer.from(line, 'base64')));
}

/** Creates the file atomically: writes another file first, then links it. */
function makeKeyFile(path: string): readonly PlatformKey[] {
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    writeDraft(draft, `${randomBytes(keyBytes).toString('base64')}\n`);
    linkSync(draft, path);
  } catch (error) {
    if (!isFileError(error, 'EEXIST')) throw new KeyFileError(`${fileName} cannot be created (${codeOf(error)})`);
  } finally {
    rmSync(draft, { force: true });
  }
  return readKeyFile(path);
}

/** Replaces the file atomically. Gateways with the same data folder that do this at once write the same content. */
function addToKeyFile(path: string, added: readonly PlatformKey[]): void {
  const own = readKeyFile(path);
  const keys = [...added, ...own.filter(({ id }) => !added.some((key) => key.id === id))];
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    writeDraft(draft, keys.map(({ bytes }) => `${bytes.toString('base64')}\n`).join(''));
    renameSync(draft, path);
  } catch (error) {
    throw new KeyFileError(`${fileName} cannot be written (${codeOf(error)})`);
  } finally {
    rmSync(draft, { force: true });
  }
}

function writeDraft(draft: string, text: string): void {
  const file = openSync(draft, 'wx', fileMode);
  try {
    // Sets the mode explicitly, because the umask restricts the mode of open.
    fchmodSync(file, fileMode);
    writeSync(file, text);
    // PostgreSQL may contain secrets encrypted with this key a moment later.
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}
