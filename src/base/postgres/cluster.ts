import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigError } from '#base/config-error.ts';
import { isFileError } from '#base/config/config.ts';
import type { RunAs } from './run-as.ts';

/** Bootstrap superuser of the cluster, and its database. */
export const clusterUser = 'headgate';

/** The environment of PostgreSQL's programs; the gateway's own, with its secrets, is kept from them. */
export const clusterEnvironment = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };

export interface ClusterOptions {
  /** Ours; holds the cluster, its password and its log. */
  readonly dataDir: string;
  readonly binDir: string;
  readonly runAs: RunAs | null;
  /** False only for data that may be lost. */
  readonly fsync: boolean;
}

export interface Cluster {
  /** PostgreSQL's own data folder. */
  readonly dir: string;
  readonly password: string;
}

/**
 * The cluster of a data folder, made when there is none. It is made beside its place and moved there as the last
 * step, so that one whose making was interrupted is never taken for a whole one.
 * @throws ConfigError naming HEADGATE_DATA_DIR when the cluster is another version's or another user's
 */
export async function openCluster(options: ClusterOptions, serverVersion: string): Promise<Cluster> {
  const dir = join(options.dataDir, 'cluster');
  const passwordPath = passwordPathOf(options.dataDir);
  await removeUnfinished(options.dataDir);
  const found = await readVersion(dir);
  if (found === null) {
    const password = randomBytes(24).toString('base64url');
    await makeCluster(options, dir, passwordPath, password);
    return { dir, password };
  }
  const major = serverVersion.split('.')[0];
  if (found !== major) {
    throw new ConfigError(
      `HEADGATE_DATA_DIR: ${dir} was written by PostgreSQL ${found}, but the built-in version is ${serverVersion}; ` +
        'run "headgate backup" with the Headgate version that wrote it, then "headgate restore" into another folder.',
    );
  }
  await checkOwner(dir, options.runAs);
  return { dir, password: await readPassword(options.dataDir) };
}

const passwordPathOf = (dataDir: string): string => join(dataDir, 'postgres.password');

/** Reads the password of the cluster of a data folder. The cluster must exist. */
export async function readPassword(dataDir: string): Promise<string> {
  return (await readFile(passwordPathOf(dataDir), 'utf8')).trim();
}

async function readVersion(dir: string): Promise<string | null> {
  try {
    return (await readFile(join(dir, 'PG_VERSION'), 'utf8')).trim();
  } catch (error) {
    if (isFileError(error, 'ENOENT')) return null;
    throw error;
  }
}

async function checkOwner(dir: string, runAs: RunAs | null): Promise<void> {
  const { uid } = await stat(dir);
  const expected = runAs === null ? process.geteuid?.() : runAs.uid >>> 0;
  if (expected === undefined || uid === expected) return;
  throw new ConfigError(
    `HEADGATE_DATA_DIR: ${dir} belongs to user ${uid}, but PostgreSQL would run as user ${expected}; ` +
      'start as the user of the first start, or set another folder.',
  );
}

const unfinishedPrefix = 'cluster.new-';

async function removeUnfinished(dataDir: string): Promise<void> {
  const names = (await readdir(dataDir)).filter((name) => name.startsWith(unfinishedPrefix));
  for (const name of names) await rm(join(dataDir, name), { recursive: true, force: true, maxRetries: 5 });
}

async function makeCluster(
  options: ClusterOptions,
  dir: string,
  passwordPath: string,
  password: string,
): Promise<void> {
  const { dataDir, binDir, runAs, fsync } = options;
  const work = join(dataDir, `${unfinishedPrefix}${randomBytes(6).toString('hex')}`);
  const passwordForInit = join(work, 'password');
  await mkdir(work, { mode: 0o700 });
  await mkdir(join(work, 'cluster'), { mode: 0o700 });
  await writeFile(passwordForInit, password, { mode: 0o600, flag: 'wx' });
  if (runAs !== null) {
    for (const path of [work, join(work, 'cluster'), passwordForInit]) await chown(path, runAs.uid, runAs.gid);
  }
  const place = ['-D', join(work, 'cluster'), '-U', clusterUser];
  const access = ['--pwfile', passwordForInit, '--auth', 'scram-sha-256'];
  // PostgreSQL's own C.UTF-8: the same order on every system, and no index breaks when the system's libraries change.
  const locale = ['--locale', 'C', '--locale-provider', 'builtin', '--builtin-locale', 'C.UTF-8'];
  const rest = ['--encoding', 'UTF8', '--no-instructions', ...(fsync ? [] : ['--no-sync'])];
  await runProgram(join(binDir, 'initdb'), [...place, ...access, ...locale, ...rest], runAs);
  await rm(passwordPath, { force: true });
  await writeFile(passwordPath, `${password}\n`, { mode: 0o600, flag: 'wx', flush: fsync });
  await rename(join(work, 'cluster'), dir);
  await rm(work, { recursive: true, force: true });
  if (fsync) await syncFolder(dataDir);
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Runs one of PostgreSQL's programs to its end. @throws ConfigError with what it said of its failure */
function runProgram(path: string, args: readonly string[], runAs: RunAs | null): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const child = spawn(path, args, {
    ...runAs,
    cwd: '/',
    env: clusterEnvironment,
    // A session of its own, as the server has: a terminal's Ctrl-C is for the gateway, and no failure of the program.
    detached: true,
    // Its progress is not shown.
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString('utf8')).slice(-2000);
  };
  child.stderr.on('data', keep);
  child.once('error', (error) => reject(programError(path, error.message)));
  child.once('close', (code, signal) => {
    if (code === 0) resolve();
    else reject(programError(path, `${signal ?? `exit code ${code}`}: ${inOneLine(output)}`));
  });
  return promise;
}

function inOneLine(output: string): string {
  return output
    .trim()
    .split(/\s*\n\s*/)
    .join('; ');
}

/** @param reason why a program of the built-in PostgreSQL did not run */
function programError(path: string, reason: string): Error {
  if (reason.includes('No space left on device')) {
    return new ConfigError(
      "HEADGATE_DATA_DIR: no space is left on the disk for PostgreSQL's data; free some space or set another folder.",
    );
  }
  return new ConfigError(
    `DATABASE_URL: set it to a PostgreSQL, because the built-in one does not run here (${path}: ${reason}).`,
  );
}
