import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { open, readFile, rename, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, clusterEnvironment } from './cluster.ts';
import { findPostmaster, stopPostmaster, waitUntil } from './postmaster.ts';
import type { RunAs } from './run-as.ts';

/** A running server of a cluster. */
export interface RunningServer {
  readonly pid: number;
  readonly port: number;
  /** Resolves with how its process ended. Never rejects. */
  readonly ended: Promise<string>;
  /** Resolves when the server has ended. @throws Error if it does not end */
  stop(): Promise<void>;
}

export interface LaunchPlan {
  readonly cluster: Cluster;
  /** Folder of the server's log. */
  readonly dataDir: string;
  readonly binDir: string;
  readonly runAs: RunAs | null;
  /** False only for data that may be lost. */
  readonly fsync: boolean;
}

export interface LaunchOptions {
  /** Undefined chooses a free port. */
  readonly port: number | undefined;
  readonly signal?: AbortSignal;
}

/** A crashed server replays its log before it answers. */
export const startTimeoutMs = 300_000;
const endTimeoutMs = 30_000;
const launchAttemptsMax = 50;
const launchPauseMs = 200;
const logBytesMax = 8 * 1024 * 1024;

/**
 * Starts a server if none runs. Two failures pass and are retried: a port that another program took after it was
 * chosen, and the last workers of a killed server, which need a moment to notice that it ended.
 * @returns the server once it accepts connections; if `signal` aborts, the unfinished server, for the caller to stop
 * @throws Error with the end of the log if the server does not start, or the reason of `signal` if it aborts before
 */
export async function launchOnFreePort(plan: LaunchPlan, options: LaunchOptions): Promise<RunningServer> {
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await chooseFreePort());
    const result = await launch(plan, port, options.signal);
    if (typeof result !== 'string') return result;
    const portTaken = /could not bind|could not create any TCP\/IP sockets/.test(result);
    const passes = portTaken ? options.port === undefined : /pre-existing shared memory block/.test(result);
    if (!passes || attempt >= launchAttemptsMax) throw new Error(`PostgreSQL did not start: ${result.trim()}`);
    await sleep(launchPauseMs, undefined, options);
  }
}

/** Below the ports that systems hand out (32768 and up on Linux, 49152 elsewhere). */
const portMin = 15_000;
const portMax = 32_000;
const portAttemptsMax = 100;

/**
 * Chooses a port that the system assigns to no other program while the server is down, because the server restarts on
 * the same port.
 */
async function chooseFreePort(): Promise<number> {
  for (let attempt = 1; attempt <= portAttemptsMax; attempt += 1) {
    const port = randomInt(portMin, portMax);
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${portMin} to ${portMax} is free for PostgreSQL`);
}

function isFree(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const server = createServer();
  server.once('error', () => resolve(false));
  server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  return promise;
}

/** @returns the server once it takes connections or `signal` aborts, or the end of its log when it ended instead */
async function launch(plan: LaunchPlan, port: number, signal?: AbortSignal): Promise<RunningServer | string> {
  const { cluster, binDir, runAs } = plan;
  const logPath = await rotateLog(plan.dataDir);
  const logFile = await open(logPath, 'a', 0o600);
  const logStart = (await logFile.stat()).size;
  let child: ChildProcess;
  let exit: ExitWatch;
  try {
    child = spawn(join(binDir, 'postgres'), ['-D', cluster.dir, ...settings(port, plan.fsync)], {
      ...runAs,
      cwd: '/',
      env: clusterEnvironment,
      // A session of its own: Ctrl-C in a terminal reaches only the gateway, which settles its requests first.
      detached: true,
      stdio: ['ignore', logFile.fd, logFile.fd],
    });
    // Watched at once: a server that fails may have ended before the log is closed here.
    exit = watchExit(child);
  } finally {
    await logFile.close();
  }
  child.unref();
  const ready = await waitUntil(async () => {
    if (exit.seen !== null || signal?.aborted === true) return true;
    const found = await findPostmaster(cluster.dir);
    return found?.pid === child.pid && found?.ready === true;
  }, startTimeoutMs);
  const { pid } = child;
  if (exit.seen !== null || pid === undefined) {
    const text = (await readFile(logPath)).subarray(logStart).toString('utf8');
    return text.slice(-2000) || (exit.seen ?? 'it has no process');
  }
  const stop = async (): Promise<void> => {
    await stopPostmaster(pid, cluster.dir);
    // A server that had only begun has no file yet whose removal would show its end.
    if (!(await waitUntil(() => exit.seen !== null, endTimeoutMs)))
      throw new Error(`PostgreSQL (process ${pid}) does not exit`);
  };
  if (ready) return { pid, port, ended: exit.ended, stop };
  await stop();
  return `it was not ready after ${startTimeoutMs / 1000} s`;
}

interface ExitWatch {
  seen: string | null;
  readonly ended: Promise<string>;
}

function watchExit(child: ChildProcess): ExitWatch {
  const { promise, resolve } = Promise.withResolvers<string>();
  const watch: ExitWatch = { seen: null, ended: promise };
  const see = (how: string): void => {
    watch.seen = how;
    resolve(how);
  };
  child.once('error', (error) => see(error.message));
  child.once('exit', (code, signal) => see(signal ?? `exit code ${code}`));
  return watch;
}

/** Returns the settings that differ from PostgreSQL's defaults; passed at each start, so that updates take effect. */
function settings(port: number, fsync: boolean): string[] {
  const values: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    max_connections: '200',
    shared_buffers: '128MB',
    // Server events, without failed statements and their values, which the gateway reports.
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
