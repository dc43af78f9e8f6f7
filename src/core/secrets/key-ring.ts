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
import { isFileError } from '#base/data-dir.ts';

/** A key of AES-256-GCM; `id` is its fingerprint, which says nothing of it. */
export interface PlatformKey {
  readonly id: string;
  readonly bytes: Buffer;
}

/** The platform keys that this gateway has, the one that is to encrypt first. */
export interface KeyRing {
  /** Empty where none was given and the file is not there yet. @throws KeyFileError */
  read(): readonly PlatformKey[];
  /** Makes the file with a first key, or reads the one that another process has just made. @throws KeyFileError */
  make(): readonly PlatformKey[];
  /** Puts keys that are not there yet in front of the file's. @throws KeyFileError where the keys come from a setting */
  add(keys: readonly PlatformKey[]): void;
  /** Where the keys are, for messages: without the machine's paths, since they are shown. */
  readonly place: string;
}

/** The file is there and cannot be used; the message holds nothing of its content. */
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

/** @param given keys of HEADGATE_PLATFORM_KEY; null: those of the file `platform.key` in the data folder */
export function createKeyRing(given: readonly Buffer[] | null, dataDir: string): KeyRing {
  const path = join(dataDir, fileName);
  if (given !== null) {
    const keys = given.map(toPlatformKey);
    const add = (): never => {
      throw new KeyFileError('HEADGATE_PLATFORM_KEY is set and takes no other key: unset it, or add the missing key');
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

/** Read anew each time: it is short, and keys that are added to it count without a restart. */
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
    if ((mode & 0o077) !== 0) throw new KeyFileError(`${fileName} may be read by others: its mode must be 0600`);
    return parseKeys(readFileSync(file, 'utf8'));
  } finally {
    closeSync(file);
  }
}

function parseKeys(text: string): readonly PlatformKey[] {
  const lines = text.split('\n').map((line) => line.trim());
  const keys = lines.filter((line) => line !== '' && !line.startsWith('#'));
  // 43 digits and the padding are 32 bytes.
  const isWhole = keys.length > 0 && keys.every((line) => /^[A-Za-z0-9+/_-]{43}=?$/.test(line));
  if (!isWhole) throw new KeyFileError(`${fileName} must hold a key of ${keyBytes} bytes in base64 in each line`);
  return keys.map((line) => toPlatformKey(Buffer.from(line, 'base64')));
}

/** Whole or not at all: under another name first. */
function makeKeyFile(path: string): readonly PlatformKey[] {
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    writeDraft(draft, `${randomBytes(keyBytes).toString('base64')}\n`);
    linkSync(draft, path);
  } catch (error) {
    if (!isFileError(error, 'EEXIST')) throw new KeyFileError(`${fileName} cannot be made (${codeOf(error)})`);
  } finally {
    rmSync(draft, { force: true });
  }
  return readKeyFile(path);
}

/** Takes the place of the file whole. Gateways of one data folder that do so at once write the same. */
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
    // Not left to open, whose mode the umask narrows.
    fchmodSync(file, fileMode);
    writeSync(file, text);
    // What is encrypted with it may be in PostgreSQL a moment later.
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}
