import { closeSync, openSync, readSync } from 'node:fs';
import { ConfigError } from '#base/config-error.ts';
import type { Environment } from './values.ts';

/**
 * Reads secrets from files, as Docker, Swarm and systemd provide them: `NAME_FILE` is the path of a file whose content
 * is the value of `NAME`. Neither `docker inspect` nor the environment of a process shows these secrets.
 */

/** Headgate's variables whose value may be in a file, in any folder. */
const ownNames = [
  'DATABASE_URL',
  'REDIS_URL',
  'HEADGATE_BOOTSTRAP_EMAIL',
  'HEADGATE_BOOTSTRAP_PASSWORD',
  'HEADGATE_BOOTSTRAP_KEY',
  'HEADGATE_API_KEY',
  'HEADGATE_PLATFORM_KEY',
  'HEADGATE_BACKUP_PASSPHRASE',
  'HEADGATE_SMTP_URL',
  'HEADGATE_OIDC_CLIENT_SECRET',
  'HF_TOKEN',
] as const;

/** Names the file of the password for a DATABASE_URL without one; PostgreSQL's own image uses the same name. */
const passwordFile = 'POSTGRES_PASSWORD_FILE';

/** Parameter of a database URL: the file from which the password is read again for each connection. */
export const passwordFileParameter = 'password_file';

/** Folder in which Docker and Swarm mount secrets: other variables that name a file there are for engine files. */
const secretsFolder = '/run/secrets/';

const bytesMax = 65_536;

/** Returns the variables that one program may read: its own, and those that name the files of its secrets. */
export function ownVariables(environment: Environment, names: object): Environment {
  const isOwn = (variable: string): boolean => variable.replace(/_FILE$/, '') in names || variable === passwordFile;
  return Object.fromEntries(Object.entries(environment).filter(([variable]) => isOwn(variable)));
}

/**
 * Returns the environment with the values of secret files, and without the variables that named the files.
 * @throws ConfigError naming the variable whose file cannot be read, or that is set in both ways
 */
export function readSecretFiles(environment: Environment): Environment {
  const read: Record<string, string | undefined> = { ...environment };
  for (const name of ownNames) take(read, name);
  for (const [variable, path] of Object.entries(environment)) {
    if (isEngineSecret(variable, path)) take(read, variable.slice(0, -'_FILE'.length));
  }
  return addPassword(read);
}

function take(read: Record<string, string | undefined>, name: string): void {
  const variable = `${name}_FILE`;
  const path = read[variable];
  if (path === undefined) return;
  delete read[variable];
  if (path === '') return;
  if ((read[name] ?? '') !== '') throw new ConfigError(`${variable}: ${name} is also set; remove one of them.`);
  read[name] = readSecret(variable, path);
}

function isEngineSecret(variable: string, path: string | undefined): boolean {
  if (!variable.endsWith('_FILE') || path?.startsWith(secretsFolder) !== true) return false;
  // A HEADGATE_ variable is a setting that takes a path, or a wrong name that must be reported as wrong.
  return variable !== passwordFile && !variable.startsWith('HEADGATE_');
}

/** Reads the password file as it is now; null if it cannot be read, or is empty because it is being written. */
export function readPassword(path: string): string | null {
  try {
    const password = readSecret(passwordFile, path);
    return password === '' ? null : password;
  } catch {
    return null;
  }
}

/** Returns the content without the end of its last line. */
function readSecret(variable: string, path: string): string {
  let text: string;
  try {
    text = readBeginning(path).replace(/\r?\n$/, '');
  } catch (error) {
    throw new ConfigError(`${variable}: ${path} cannot be read (${error instanceof Error ? error.message : ''}).`);
  }
  if (/[\0\r\n]/.test(text)) throw new ConfigError(`${variable}: ${path} must contain exactly one line.`);
  return text;
}

/** Reads a file of at most `bytesMax` bytes; the bound is for files that are endless. */
function readBeginning(path: string): string {
  const file = openSync(path, 'r');
  try {
    const bytes = Buffer.alloc(bytesMax + 1);
    const length = readSync(file, bytes);
    if (length > bytesMax) throw new Error(`it has more than ${bytesMax} bytes`);
    return bytes.toString('utf8', 0, length);
  } finally {
    closeSync(file);
  }
}

function addPassword(read: Record<string, string | undefined>): Environment {
  const path = read[passwordFile] ?? '';
  const url = URL.parse(read['DATABASE_URL'] ?? '');
  // Without a URL Headgate uses its built-in database, and the variable belongs to another program.
  if (path === '' || url === null) return read;
  if (url.password !== '') {
    throw new ConfigError(
      `${passwordFile}: DATABASE_URL also has a password; remove it from the URL, or remove ${passwordFile}.`,
    );
  }
  const password = readSecret(passwordFile, path);
  if (password === '') throw new ConfigError(`${passwordFile}: ${path} is empty.`);
  url.password = encodeURIComponent(password);
  url.searchParams.set(passwordFileParameter, path);
  return { ...read, DATABASE_URL: url.href };
}
