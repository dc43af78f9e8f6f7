import { realpathSync } from 'node:fs';
import { join } from 'node:path';
import postgres from 'postgres';
import { ConfigError } from '#base/config-error.ts';
import { isFileError, makeDataDir } from '#base/config/config.ts';
import type { Log } from '#base/log.ts';
import { findPostgresPackage, preparePostgres } from './binaries.ts';
import { type Cluster, clusterUser, openCluster, readPassword } from './cluster.ts';
import { keepRunning } from './keep.ts';
import { launchOnFreePort, type RunningServer, startTimeoutMs } from './launch.ts';
import {
  findPostmaster,
  isProgramDeleted,
  removeStalePidFile,
  stopPostmaster,
  waitUntil,
  waitForExit,
} from './postmaster.ts';
import { findRunAs, firstClosedFolder, type RunAs } from './run-as.ts';

/**
 * The built-in PostgreSQL: the server of an npm package, started as a child process on a loopback port. Driver and SQL
 * are the same as with a server that DATABASE_URL names.
 */

export interface EmbeddedPostgresOptions {
  /** A folder for this server only, created if missing. The caller has locked it or a folder above. */
  readonly dataDir: string;
  readonly log: Log;
  /** Loopback port; absent chooses a free port. */
  readonly port?: number;
  /** False trades durability for speed: only for data that may be lost. */
  readonly fsync?: boolean;
}

export interface EmbeddedPostgres {
  /** URL with user and password; a secret. */
  readonly url: string;
  /** True if a server that an earlier process left running was adopted. */
  readonly adopted: boolean;
  /** Resolves when the server has ended, even during a restart; open transactions are lost. */
  stop(): Promise<void>;
}

/**
 * Starts the server of a data folder, or adopts the server that still runs there. Until `stop`, the server is restarted
 * whenever it ends, with the same data, port and password.
 * @throws ConfigError naming HEADGATE_DATA_DIR or DATABASE_URL when it cannot run here; Error when it does not start
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const runAs = findRunAs();
  const dataDir = realpathSync(makeDataDir(options.dataDir));
  if (runAs !== null) checkReachable(dataDir, runAs);
  const place: Place = { dataDir, runAs, fsync: options.fsync ?? true };
  const programs = await findPrograms(place);
  const cluster = await openCluster({ ...place, binDir: programs.binDir }, programs.serverVersion);

  const launchOptions = { port: options.port, log: options.log };
  const adopted = await adoptRunning(cluster, programs, launchOptions);
  const server = adopted ?? (await launchOnFreePort({ ...place, ...programs, cluster }, launchOptions));
  await makeDatabase(cluster, server.port);
  const { port } = server;
  const stop = keepRunning({
    server,
    log: options.log,
    // The programs are searched for again: an installation may have replaced them, or a machine removed their copy.
    start: (signal) => startAgain(place, cluster, { port, log: options.log, signal }),
  });
  return { url: urlOf(cluster, port, clusterUser), adopted: adopted !== null, stop };
}

/**
 * Finds the server that another process runs on a data folder.
 * @param dataDir as for `startEmbeddedPostgres`
 * @returns its URL, a secret; null when none takes connections there
 * @throws ConfigError naming HEADGATE_DATA_DIR when it is another user's
 */
export async function findEmbeddedPostgres(dataDir: string): Promise<string | null> {
  const dir = join(realpathSync(dataDir), 'cluster');
  try {
    const found = await findPostmaster(dir);
    if (found?.ready !== true) return null;
    return urlOf({ dir, password: await readPassword(dataDir) }, found.port, clusterUser);
  } catch (error) {
    if (!isFileError(error, 'EACCES')) throw error;
    throw new ConfigError(
      `HEADGATE_DATA_DIR: the database in ${dataDir} belongs to another user; run this as the user of that gateway.`,
    );
  }
}

interface Place {
  readonly dataDir: string;
  readonly runAs: RunAs | null;
  readonly fsync: boolean;
}

interface Programs {
  readonly binDir: string;
  readonly serverVersion: string;
}

async function findPrograms({ dataDir, runAs }: Place): Promise<Programs> {
  const postgresPackage = findPostgresPackage();
  const binDir = await preparePostgres({ postgres: postgresPackage, runAs, spareDir: dataDir });
  return { binDir, serverVersion: postgresPackage.serverVersion };
}

interface LaunchOptions {
  /** Undefined accepts any port. */
  readonly port: number | undefined;
  readonly log: Log;
  readonly signal?: AbortSignal;
}

/** Restarts the server. Never creates a new cluster: an empty one would be mistaken for the data. */
async function startAgain(place: Place, cluster: Cluster, launchOptions: LaunchOptions): Promise<RunningServer> {
  const programs = await findPrograms(place);
  return (
    (await adoptRunning(cluster, programs, launchOptions)) ??
    (await launchOnFreePort({ ...place, ...programs, cluster }, launchOptions))
  );
}

/**
 * Finds a folder that keeps PostgreSQL's user from the data folder.
 * @param path nearest existing folder: the user can enter folders that the gateway creates below it
 * @returns the closed folder; null if there is none
 */
export function findClosedFolder(path: string): string | null {
  const runAs = findRunAs();
  return runAs === null ? null : firstClosedFolder(realpathSync(path), runAs);
}

function checkReachable(dataDir: string, runAs: RunAs): void {
  const closed = firstClosedFolder(dataDir, runAs);
  if (closed === null) return;
  throw new ConfigError(
    `HEADGATE_DATA_DIR: the user "nobody" cannot enter the folder ${closed}, and PostgreSQL runs as this user when ` +
      `the gateway is root; allow it (chmod o+x ${closed}) or set another folder.`,
  );
}

/**
 * Adopts the server that a killed gateway left running, if it has this version and the requested port. A server of
 * another version, or whose programs were replaced, is stopped so that a new one can start.
 */
async function adoptRunning(
  cluster: Cluster,
  { serverVersion }: Programs,
  { port: requested, log, signal }: LaunchOptions,
): Promise<RunningServer | null> {
  // The server may be starting or stopping; both end.
  const settled = await waitUntil(
    async () => signal?.aborted === true || (await findPostmaster(cluster.dir))?.ready !== false,
    startTimeoutMs,
  );
  signal?.throwIfAborted();
  const found = await findPostmaster(cluster.dir);
  if (found === null) {
    await removeStalePidFile(cluster.dir);
    return null;
  }
  const { pid, port } = found;
  if (settled && !isProgramDeleted(pid) && port === (requested ?? port)) {
    const identity = await askIdentity(cluster, port);
    if (identity?.dataDirectory === cluster.dir && identity.serverVersion === serverVersion) {
      log.info({ pid, port }, 'adopted the PostgreSQL that was still running');
      const stop = (): Promise<void> => stopPostmaster(pid, cluster.dir);
      return { pid, port, ended: waitForExit(pid, cluster.dir), stop };
    }
  }
  log.info({ pid, port }, 'stopping a PostgreSQL that was still running, to restart it');
  await stopPostmaster(pid, cluster.dir);
  return null;
}

async function askIdentity(
  cluster: Cluster,
  port: number,
): Promise<{ dataDirectory: string; serverVersion: string } | null> {
  const sql = connect(cluster, port);
  try {
    const [row] = await sql<{ dataDirectory: string; serverVersion: string }[]>`
      select current_setting('data_directory') as "dataDirectory", current_setting('server_version') as "serverVersion"`;
    return row ?? null;
  } catch {
    // The server rejects the password; the caller stops the server.
    return null;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Creates the gateway's database, which initdb does not, at the first start or the next after an interruption. */
async function makeDatabase(cluster: Cluster, port: number): Promise<void> {
  const sql = connect(cluster, port);
  try {
    const found = await sql`select 1 from pg_database where datname = ${clusterUser}`;
    if (found.length === 0) await sql`create database ${sql(clusterUser)}`;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

function connect(cluster: Cluster, port: number): postgres.Sql {
  const options = { max: 1, connect_timeout: 10, fetch_types: false, onnotice: () => undefined };
  return postgres(urlOf(cluster, port, 'postgres'), options);
}

function urlOf(cluster: Cluster, port: number, database: string): string {
  return `postgres://${clusterUser}:${cluster.password}@127.0.0.1:${port}/${database}`;
}
