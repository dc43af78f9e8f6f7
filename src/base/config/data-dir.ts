import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { ConfigError } from '#base/config-error.ts';

/**
 * Returns the folder for data that must outlive the process, if HEADGATE_DATA_DIR does not name one.
 * @param uid the effective user id of the process; undefined if the system has none
 * @throws ConfigError if the user has no home either
 */
export function defaultDataDir(
  environment: Readonly<Record<string, string | undefined>>,
  uid: number | undefined,
): string {
  if (uid === 0) return '/var/lib/headgate';
  const { XDG_DATA_HOME: dataHome, HOME: home } = environment;
  if (dataHome?.startsWith('/') === true) return join(dataHome, 'headgate');
  if (home?.startsWith('/') === true) return join(home, '.local', 'share', 'headgate');
  throw new ConfigError('HEADGATE_DATA_DIR: set it to a folder, because this user has no home folder.');
}

/**
 * Creates a folder with the folders above it. Others can pass through folders of root but not list them, because
 * PostgreSQL, which does not run as root, has its folder further down. Folders of other users are closed. Existing
 * folders keep their mode.
 * @returns the absolute path
 * @throws ConfigError naming HEADGATE_DATA_DIR if the folder cannot be created or used
 */
export function makeDataDir(dir: string): string {
  const path = resolve(dir);
  try {
    makeWithParents(path, process.geteuid?.() === 0 ? 0o711 : 0o700);
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new ConfigError(`HEADGATE_DATA_DIR: the folder ${path} cannot be used (${reasonOf(error)}).`);
  }
  return path;
}

function makeWithParents(path: string, mode: number): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory() === true) return;
  if (found !== undefined) throw new Error('a file with this name exists');
  makeWithParents(dirname(path), mode);
  try {
    mkdirSync(path);
  } catch (error) {
    if (!isFileError(error, 'EEXIST')) throw error;
    return;
  }
  // Not set by mkdir, because the umask narrows its mode.
  chmodSync(path, mode);
}

/**
 * Locks a folder for this process, until the returned function is called or the process ends for any reason. The lock
 * is the operating system's lock on a file (through SQLite, the only way to such locks in Node), so a killed process
 * leaves no lock.
 * @throws ConfigError naming HEADGATE_DATA_DIR if another process has the folder
 */
export function lockDataDir(dir: string): () => void {
  const path = makeDataDir(dir);
  const release = lockForGateway(path);
  if (release !== null) return release;
  throw new ConfigError(
    `HEADGATE_DATA_DIR: the folder ${path} is in use by a gateway${holderOf(path)}; stop it or set another folder.`,
  );
}

/** Gateways per data folder. File systems without locks report every folder as taken, so the search must end. */
const gatewaysMax = 100;

const gatewayDirOf = (dataDir: string, number: number): string =>
  number === 0 ? dataDir : join(dataDir, 'gateways', String(number));

/** A folder that only one gateway uses. */
export interface GatewayDir {
  readonly path: string;
  readonly release: () => void;
}

/**
 * Locks the first free gateway folder of a data folder: the data folder itself, `gateways/1`, `gateways/2` and so on.
 * A restarted gateway gets its former folder, unless another gateway was faster.
 * @throws ConfigError naming HEADGATE_DATA_DIR when a folder cannot be locked, or 100 gateways use the data folder
 */
export function lockGatewayDir(dataDir: string): GatewayDir {
  for (let number = 0; number < gatewaysMax; number += 1) {
    const path = makeDataDir(gatewayDirOf(dataDir, number));
    const release = lockForGateway(path);
    if (release !== null) return { path, release };
  }
  throw new ConfigError(
    `HEADGATE_DATA_DIR: ${gatewaysMax} gateways use the folder ${dataDir}, or its file system has no locks; set another folder.`,
  );
}

/** Lists the gateway folders that exist in a data folder, in use or not: the data folder itself first. */
export function listGatewayDirs(dataDir: string): string[] {
  const numbers = existsSync(join(dataDir, 'gateways')) ? readdirSync(join(dataDir, 'gateways')) : [];
  return [dataDir, ...numbers.filter((name) => /^\d+$/.test(name)).map((name) => join(dataDir, 'gateways', name))];
}

/**
 * Locks a gateway folder that no gateway uses, to adopt its content.
 * @returns the function that releases the folder; null if a gateway uses it
 * @throws ConfigError naming HEADGATE_DATA_DIR when the folder cannot be locked
 */
export function lockOrphanedDir(path: string): (() => void) | null {
  const database = takeLock(path);
  return database === null ? null : holdLock(database);
}

function lockForGateway(path: string): (() => void) | null {
  const release = lockOrphanedDir(path);
  if (release !== null) writeFileSync(pidFileOf(path), `${process.pid}\n`, { mode: 0o600 });
  return release;
}

const pidFileOf = (path: string): string => join(path, 'gateway.pid');

/** Keeps locked databases referenced: garbage collection closes an unreferenced database, and its lock ends. */
const heldLocks = new Set<DatabaseSync>();

function holdLock(database: DatabaseSync): () => void {
  heldLocks.add(database);
  return () => {
    if (heldLocks.delete(database)) database.close();
  };
}

const addressFile = (dir: string): string => join(dir, 'gateway.url');

/** Writes the URL of a folder's gateway, for commands on this machine. Best effort: a full disk stops no start. */
export function noteAddress(dir: string, url: string): void {
  try {
    writeFileSync(addressFile(dir), `${url}\n`, { mode: 0o600 });
  } catch {
    // Without the file, commands ask for HEADGATE_URL.
  }
}

/** Reads the URL of the last gateway of a folder; null if no gateway has written it. */
export function readAddress(dir: string): string | null {
  try {
    const text = readFileSync(addressFile(dir), 'utf8').trim();
    return /^https?:$/.test(URL.parse(text)?.protocol ?? '') ? text : null;
  } catch {
    return null;
  }
}

/** @returns null while another process has the lock */
function takeLock(path: string): DatabaseSync | null {
  let database: DatabaseSync | null = null;
  const lockFile = join(path, 'gateway.lock');
  try {
    // Mode 600, because every user who can read a file can lock it. Only SQLite opens a file that exists: closing it
    // here would release the lock that this process may have on it (fcntl(2)).
    if (!existsSync(lockFile)) writeFileSync(lockFile, '', { flag: 'a', mode: 0o600 });
    database = new DatabaseSync(lockFile, { timeout: 0 });
    database.exec('PRAGMA journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
    return database;
  } catch (error) {
    database?.close();
    if (isBusy(error)) return null;
    throw new ConfigError(`HEADGATE_DATA_DIR: the folder ${path} cannot be locked (${reasonOf(error)}).`);
  }
}

function isBusy(error: unknown): boolean {
  const sqliteBusy = 5;
  return error instanceof Error && 'errcode' in error && error.errcode === sqliteBusy;
}

/** Returns the process number for the error message only: the file may be older than the lock. */
function holderOf(path: string): string {
  try {
    const pid = readFileSync(pidFileOf(path), 'utf8').trim();
    return /^\d+$/.test(pid) ? ` (process ${pid})` : '';
  } catch {
    return '';
  }
}

/** True if an error is the operating system's error with one of these codes, for example 'ENOENT'. */
export function isFileError(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && codes.some((code) => error.code === code);
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
