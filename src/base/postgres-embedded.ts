import { type ChildProcess, spawn } from 'node:child_process';
import { realpathSync } from 'node:fs';
import { open, readFile, rename, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { ConfigError } from './config.ts';
import { makeDataDir } from './data-dir.ts';
import type { Log } from './log.ts';
import { findPostgresPackage, preparePostgres } from './postgres/binaries.ts';
import { type Cluster, clusterEnvironment, clusterUser, openCluster } from './postgres/cluster.ts';
import { findPostmaster, programIsGone, removeStalePidFile, stopPostmaster, waitUntil } from './postgres/postmaster.ts';
import { findRunAs, firstClosedFolder, type RunAs } from './postgres/run-as.ts';

/**
 * PostgreSQL for who has none: the server of an npm package, started as a child process on a loopback port. It is the
 * real server, with the driver and the SQL of production; only who starts it differs.
 */

export interface EmbeddedPostgresOptions {
  /** A folder for this server alone, made when missing. The caller holds the lock of it or of one above. */
  readonly dataDir: string;
  readonly log: Log;
  /** Loopback port; a free one is chosen when it is not given. */
  readonly port?: number;
  /** False gives up durability for speed: only for data that may be lost. */
  readonly fsync?: boolean;
}

export interface EmbeddedPostgres {
  /** With user and password; a secret. */
  readonly url: string;
  /** Whether a server that an earlier process left running was taken over. */
  readonly adopted: boolean;
  /** Resolves when the server has ended; open transactions are rolled back. */
  stop(): Promise<void>;
}

/** A crashed server replays its log before it answers. */
const startTimeoutMs = 300_000;
const launchAttemptsMax = 50;
const launchPauseMs = 200;
const logBytesMax = 8 * 1024 * 1024;

/**
 * Starts the server of a data folder, or takes over the one that still serves it.
 * @throws ConfigError naming HEADGATE_DATA_DIR or DATABASE_URL when it cannot run here; Error when it does not start
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const runAs = findRunAs();
  const dataDir = realpathSync(makeDataDir(options.dataDir));
  if (runAs !== null) checkReachable(dataDir, runAs);
  const packageFound = findPostgresPackage();
  const binDir = await preparePostgres({ postgres: packageFound, runAs, spareDir: dataDir });
  const fsync = options.fsync ?? true;
  const cluster = await openCluster({ dataDir, binDir, runAs, fsync }, packageFound.serverVersion);

  const adopted = await adoptRunning(cluster, packageFound.serverVersion, options.log);
  const server = adopted ?? (await launchOnFreePort({ cluster, dataDir, binDir, runAs, fsync }, options));
  await makeDatabase(cluster, server.port);
  const stop = once(async () => {
    server.expectExit();
    await stopPostmaster(server.pid, cluster.dir);
  });
  return { url: urlOf(cluster, server.port, clusterUser), adopted: adopted !== null, stop };
}

function checkReachable(dataDir: string, runAs: RunAs): void {
  const closed = firstClosedFolder(dataDir, runAs);
  if (closed === null) return;
  throw new ConfigError(
    `HEADGATE_DATA_DIR: the folder ${closed} cannot be entered by the user "nobody", as whom PostgreSQL runs when ` +
      `the gateway is root; allow it (chmod o+x ${closed}) or name another folder.`,
  );
}

interface RunningServer {
  readonly pid: number;
  readonly port: number;
  /** From now on its end is no news. */
  expectExit(): void;
}

/**
 * A gateway that is killed leaves its server running. It is taken over when it is of our version; one of another
 * version, or whose programs were replaced, is stopped so that a fresh one can start.
 */
async function adoptRunning(cluster: Cluster, serverVersion: string, log: Log): Promise<RunningServer | null> {
  // It may be starting, or stopping; either comes to an end.
  const settled = await waitUntil(async () => (await findPostmaster(cluster.dir))?.ready !== false, startTimeoutMs);
  const found = await findPostmaster(cluster.dir);
  if (found === null) {
    await removeStalePidFile(cluster.dir);
    return null;
  }
  const { pid, port } = found;
  if (settled && !programIsGone(pid)) {
    const said = await askIdentity(cluster, port);
    if (said?.dataDirectory === cluster.dir && said.serverVersion === serverVersion) {
      log.info({ pid, port }, 'took over the PostgreSQL that was still running');
      return { pid, port, expectExit: () => undefined };
    }
  }
  log.info({ pid, port }, 'stopping a PostgreSQL that was still running, to start it anew');
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
    // It refuses us, so it is of no use; the caller stops it.
    return null;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

interface LaunchPlan {
  readonly cluster: Cluster;
  readonly dataDir: string;
  readonly binDir: string;
  readonly runAs: RunAs | null;
  readonly fsync: boolean;
}

/**
 * Two refusals pass by themselves: a port that another program took between choosing it and listening on it, and the
 * last workers of a killed server, which need a moment to notice that they are alone.
 */
async function launchOnFreePort(plan: LaunchPlan, options: EmbeddedPostgresOptions): Promise<RunningServer> {
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await chooseFreePort());
    const result = await launch(plan, port, options.log);
    if (typeof result !== 'string') return result;
    const portTaken = /could not bind|could not create any TCP\/IP sockets/.test(result);
    const passes = portTaken ? options.port === undefined : /pre-existing shared memory block/.test(result);
    if (!passes || attempt >= launchAttemptsMax) throw new Error(`PostgreSQL did not start: ${result.trim()}`);
    await sleep(launchPauseMs);
  }
}

async function chooseFreePort(): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const server = createServer();
  server.once('error', reject);
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
  });
  return promise;
}

/** @returns the server once it takes connections, or the end of its log when it ended instead */
async function launch(plan: LaunchPlan, port: number, log: Log): Promise<RunningServer | string> {
  const { cluster, binDir, runAs } = plan;
  const logPath = await rotateLog(plan.dataDir);
  const logFile = await open(logPath, 'a', 0o600);
  const logStart = (await logFile.stat()).size;
  let child: ChildProcess;
  try {
    child = spawn(join(binDir, 'postgres'), ['-D', cluster.dir, ...settings(port, plan.fsync)], {
      ...runAs,
      cwd: '/',
      env: clusterEnvironment,
      // A session of its own: Ctrl-C in a terminal reaches the gateway alone, which settles its books first.
      detached: true,
      stdio: ['ignore', logFile.fd, logFile.fd],
    });
  } finally {
    await logFile.close();
  }
  const exit = watchExit(child);
  child.unref();
  const ready = await waitUntil(async () => {
    if (exit.seen !== null) return true;
    const found = await findPostmaster(cluster.dir);
    return found?.pid === child.pid && found?.ready === true;
  }, startTimeoutMs);
  if (exit.seen !== null || child.pid === undefined) {
    const text = (await readFile(logPath)).subarray(logStart).toString('utf8');
    return text.slice(-2000) || (exit.seen ?? 'it has no process');
  }
  if (!ready) {
    await stopPostmaster(child.pid, cluster.dir);
    return `it was not ready after ${startTimeoutMs / 1000} s`;
  }
  exit.onUnexpected = (how) => log.error({ how }, 'PostgreSQL ended unexpectedly');
  return {
    pid: child.pid,
    port,
    expectExit: () => {
      exit.onUnexpected = () => undefined;
    },
  };
}

interface ExitWatch {
  seen: string | null;
  onUnexpected: (how: string) => void;
}

function watchExit(child: ChildProcess): ExitWatch {
  const watch: ExitWatch = { seen: null, onUnexpected: () => undefined };
  const see = (how: string): void => {
    watch.seen = how;
    watch.onUnexpected(how);
  };
  child.once('error', (error) => see(error.message));
  child.once('exit', (code, signal) => see(signal ?? `exit code ${code}`));
  return watch;
}

/** Everything that differs from PostgreSQL's defaults; given at each start, so that a new version brings its own. */
function settings(port: number, fsync: boolean): string[] {
  const values: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    max_connections: '200',
    shared_buffers: '128MB',
    // Server events, but neither failed statements nor their values: those are the gateway's to report.
    log_min_messages: 'log',
    log_checkpoints: 'off',
    timezone: 'UTC',
    ...(fsync ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
  };
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** Keeps one earlier log. @returns the path of the log to write on */
async function rotateLog(dataDir: string): Promise<string> {
  const path = join(dataDir, 'postgres.log');
  const bytes = await stat(path).then(
    (stats) => stats.size,
    () => 0,
  );
  if (bytes > logBytesMax) await rename(path, `${path}.1`);
  return path;
}

/** initdb knows only the database of its own; this one is made at the first start, or the next if that was cut. */
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
  return postgres(urlOf(cluster, port, 'postgres'), { max: 1, connect_timeout: 10, onnotice: () => undefined });
}

function urlOf(cluster: Cluster, port: number, database: string): string {
  return `postgres://${clusterUser}:${cluster.password}@127.0.0.1:${port}/${database}`;
}

function once(run: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null;
  return () => (running ??= run());
}
