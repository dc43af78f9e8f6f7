import { execFileSync } from 'node:child_process';
import { readFileSync, readlinkSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** A running server, as the file postmaster.pid of its data folder describes it. */
export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  /** True if the server accepts connections. */
  readonly ready: boolean;
}

/**
 * Finds the server of a data folder, no matter which process started it.
 *
 * Lines of the file (src/include/utils/pidfile.h): 1 process, 2 data folder, 4 port, 8 status.
 */
export async function findPostmaster(clusterDir: string): Promise<Postmaster | null> {
  const lines = (await readFileIfThere(pidFileOf(clusterDir))).split('\n');
  const pid = Number(lines[0]);
  if (!Number.isSafeInteger(pid) || pid <= 0 || !isAlive(pid) || !servesCluster(pid, clusterDir)) return null;
  return { pid, port: Number(lines[3] ?? 0), ready: lines[7]?.trim() === 'ready' };
}

/**
 * Removes the file of a server that was killed, when `findPostmaster` found none and nobody else may start one now.
 * PostgreSQL would take any process of that number for a running server, also one that has ended and waits in vain
 * for a parent to notice. Workers that outlive their server still keep a new one out, by its shared memory.
 */
export async function removeStalePidFile(clusterDir: string): Promise<void> {
  await rm(pidFileOf(clusterDir), { force: true });
}

function pidFileOf(clusterDir: string): string {
  return join(clusterDir, 'postmaster.pid');
}

async function readFileIfThere(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return '';
    throw error;
  }
}

/** Rethrows errors for lack of files or memory: a process that cannot be checked has not necessarily ended. */
function throwIfShort(error: unknown): void {
  if (error instanceof Error && 'code' in error && /^(EMFILE|ENFILE|ENOMEM|EAGAIN)$/.test(String(error.code)))
    throw error;
}

/** True if a process runs; a process that has ended and waits for its parent to notice does not run. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
  if (process.platform !== 'linux') return true;
  try {
    // "<pid> (<name>) <state> …", and the name may hold brackets and blanks.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.charAt(stat.lastIndexOf(')') + 2) !== 'Z';
  } catch (error) {
    throwIfShort(error);
    return false;
  }
}

/** True if a process is a PostgreSQL server that was started on this data folder. */
function servesCluster(pid: number, clusterDir: string): boolean {
  const command = `${commandOf(pid)} `;
  const at = command.indexOf(` -D ${clusterDir} `);
  return at !== -1 && /(^|\/)postgres$/.test(command.slice(0, at));
}

const pollMs = 500;

/**
 * Waits for the end of a server that is no child of this process: no event says that it ended.
 * @returns how it ended, as far as that can be known
 */
export async function waitForExit(pid: number, clusterDir: string): Promise<string> {
  while (mayRun(pid, clusterDir)) await sleep(pollMs, undefined, { ref: false });
  return 'its process no longer exists';
}

function mayRun(pid: number, clusterDir: string): boolean {
  try {
    // The program behind the process number is read only where that starts no process (Linux).
    return isAlive(pid) && (process.platform !== 'linux' || servesCluster(pid, clusterDir));
  } catch {
    return true;
  }
}

/** Returns program and arguments of a process in one line; '' if the process has ended. */
function commandOf(pid: number): string {
  try {
    if (process.platform === 'linux') return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
    return execFileSync('ps', ['-o', 'command=', '-p', String(pid)], { encoding: 'utf8' }).trim();
  } catch (error) {
    throwIfShort(error);
    return '';
  }
}

/** True if the program file that a process runs was removed since, for example by a new installation. */
export function isProgramDeleted(pid: number): boolean {
  if (process.platform !== 'linux') return false;
  try {
    return readlinkSync(`/proc/${pid}/exe`).endsWith(' (deleted)');
  } catch {
    return false;
  }
}

/**
 * Stops a server: first so that open transactions are rolled back and everything is written (SIGINT), after 30 s
 * at once, which the next start repairs from the log (SIGQUIT).
 * @throws Error when it still runs after that
 */
export async function stopPostmaster(pid: number, clusterDir: string): Promise<void> {
  const signals: readonly [NodeJS.Signals, number][] = [
    ['SIGINT', 30_000],
    ['SIGQUIT', 10_000],
  ];
  for (const [signal, timeoutMs] of signals) {
    if (!sendSignal(pid, signal)) return;
    if (await waitUntil(async () => !(await runsStill(pid, clusterDir)), timeoutMs)) return;
  }
  throw new Error(`PostgreSQL (process ${pid}) does not stop`);
}

/** True until the pid file is removed, which happens last: a process that nobody reaps would seem alive forever. */
async function runsStill(pid: number, clusterDir: string): Promise<boolean> {
  if (!isAlive(pid)) return false;
  const lines = (await readFileIfThere(pidFileOf(clusterDir))).split('\n');
  return Number(lines[0]) === pid;
}

function sendSignal(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return false;
    throw error;
  }
}

/** Checks every 10 ms until `isTrue` is true. @returns false if the time is over first */
export async function waitUntil(isTrue: () => boolean | Promise<boolean>, timeoutMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + timeoutMs;
  while (!(await isTrue())) {
    if (performance.now() > deadlineMs) return false;
    await sleep(10);
  }
  return true;
}
