import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync } from 'node:fs';
import { createServer } from 'node:net';
import { isFileError } from '#base/config/config.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { StartRequest } from '#core/fleet/drivers/driver.ts';
import {
  errorCodeOf,
  failedStart,
  missingVariable,
  type ReplicaExit,
  replicaExit,
  startErrors,
} from '#core/fleet/drivers/replica-exit.ts';
import { describeFullDisk, type ReadFreeBytes } from '#core/fleet/drivers/free-disk.ts';
import type { Replica } from '#core/fleet/drivers/replica.ts';
import { cacheFolders, downloadFolder } from '#core/fleet/drivers/weights-cache.ts';
import {
  type Environment,
  forcesUsage,
  launchCommand,
  launchEnvironment,
  listensOnSocket,
  processSettings,
} from './command.ts';
import { addErrors, errorPathOf, openErrorLog } from './stderr-log.ts';
import {
  logPathOf,
  openLog,
  type ProcessFolders,
  type ProcessRecord,
  readLogTail,
  removeRecord,
  socketPathOf,
  writeRecord,
} from './files.ts';
import { killGroup, processIdentity, signalProcess } from '#base/process-identity.ts';
import type { OomKills } from './oom-kills.ts';

/** A child process that runs or has just ended. */
export interface Child {
  readonly replica: Replica;
  readonly specHash: string;
  /** null if the process could not be started. */
  readonly record: ProcessRecord | null;
  readonly logPath: string;
  /** Index of the log file: replicas of an engine that run at once write to different files. */
  readonly logIndex: number;
  readonly gpuIds: readonly string[];
  readonly memoryBytes: number;
  /** Epoch of the leader that started the child; null if unknown. */
  readonly epoch: bigint | null;
  /** True if this gateway started the child, and so gets its exit event. */
  readonly own: boolean;
  stopRequested: boolean;
  killTimer: NodeJS.Timeout | null;
  exit: ReplicaExit | null;
  /** Monotonic milliseconds; null while the child runs. */
  endedAtMs: number | null;
}

/** State that all children of one driver share. */
export interface ChildProcesses {
  readonly children: Map<string, Child>;
  readonly folders: ProcessFolders;
  readonly workingDirectory: string;
  readonly env: Environment;
  readonly log: Log;
  readonly oomKills: OomKills;
  readonly readFreeBytes?: ReadFreeBytes | undefined;
  /** True while this gateway starts and stops children. */
  leads: boolean;
  /** Called after a child ended. */
  onChange: () => void;
}

/** Starts a child. A failure shows up as its exit. */
export async function launchChild(processes: ChildProcesses, request: StartRequest): Promise<void> {
  const { replicaId, spec, fence, placement } = request;
  const { definition, engineId, hash } = spec;
  const socketPath = listensOnSocket(definition) ? socketPathOf(processes.folders, replicaId) : null;
  const { gpuIds } = placement;
  const takes = { gpuIds: [...gpuIds], memoryBytes: processSettings(definition).memoryBytes ?? 0 };
  const begin = (port: number): Launch => ({
    replica: replicaOf({ replicaId, engineId, socketPath, port }, definition),
    specHash: hash,
    logIndex: freeLogIndex(processes, engineId),
    epoch: fence.epoch,
    own: true,
    ...takes,
  });
  const owner = { gatewayEnv: processes.env, owner: processes.folders.owner, gpuIds };
  const environment = launchEnvironment(definition, owner);
  const fail = (exit: ReplicaExit): void =>
    endChild(processes, addChild(processes, { ...begin(0), record: null }), exit);
  if (!environment.ok) {
    fail(missingVariable(environment.missing));
    return;
  }
  const fullDisk = await findFullDisk(processes, definition, environment.env);
  if (fullDisk !== null) {
    fail(failedStart('ENOSPC', fullDisk));
    return;
  }
  try {
    const port = socketPath === null ? await freePort() : 0;
    const command = launchCommand(definition, socketPath === null ? { port } : { socketPath });
    spawnChild(processes, begin(port), { command, env: environment.env });
  } catch (error) {
    fail(failedLaunch(error, processSettings(definition).command[0] ?? ''));
  }
}

/** Describes the error that a start threw. Codes of file errors, such as ENOENT, mean something different from those of a program. */
function failedLaunch(error: unknown, program: string): ReplicaExit {
  if (!(error instanceof Error)) return failedStart(startErrors.unknown, String(error));
  // Node emits the errors of a program that it expects, and throws the others.
  if ('syscall' in error && error.syscall === 'spawn') {
    return failedStart(errorCodeOf(error), spawnTrouble(program, error));
  }
  return failedStart(isFileError(error, 'ENOSPC') ? 'ENOSPC' : startErrors.unknown, error.message);
}

type Launch = Pick<Child, 'replica' | 'specHash' | 'own' | 'epoch' | 'logIndex' | 'gpuIds' | 'memoryBytes'>;

/** @throws if the machine has no room for the child's files */
function spawnChild(
  processes: ChildProcesses,
  begun: Launch,
  { command, env }: { readonly command: readonly string[]; readonly env: Record<string, string> },
): void {
  const { folders, log, oomKills } = processes;
  const oomKillsBefore = oomKills.begin();
  const { replica, specHash, logIndex, gpuIds, memoryBytes } = begun;
  const { id: replicaId, engineId, endpoint } = replica;
  const { socketPath, port } = endpoint;
  const started = spawnDetached(processes, command, env, logPathOf(folders, engineId, logIndex));
  const { pid } = started;
  const identity = pid === undefined ? null : processIdentity(pid);
  const written = { version: 1 as const, replicaId, engineId, specHash, socketPath, port, logIndex };
  const takes = { gpuIds: [...gpuIds], memoryBytes };
  const record =
    pid === undefined || identity === null ? null : { ...written, ...takes, keeper: ownKeeper(), pid, identity };
  // Written before anything is awaited: if this gateway is killed now, the next one must still find the child.
  if (record !== null) recordOrKill(folders, record);
  const child = addChild(processes, { ...begun, record });
  started.once('error', (error) => {
    endChild(processes, child, failedStart(errorCodeOf(error), spawnTrouble(command[0] ?? '', error)));
  });
  started.once('exit', (exitCode, signal) => {
    // A shell reports a killed program as 137.
    const isKilled = signal === 'SIGKILL' || exitCode === 137;
    const oomKilled = oomKills.take(oomKillsBefore) && isKilled;
    endChild(processes, child, { exitCode, signal, oomKilled });
  });
  log.info({ engine: engineId, replica: replicaId, pid }, 'started an engine');
}

/** @returns a sentence if the engine would download its model to a disk without space */
async function findFullDisk(
  { readFreeBytes }: ChildProcesses,
  definition: EngineDefinition,
  env: Environment,
): Promise<string | null> {
  const folder = await downloadFolder(definition, cacheFolders(env, processSettings(definition).command));
  return folder === null ? null : describeFullDisk(folder, readFreeBytes);
}

/** Writes the record, or kills the child: a child without a record would be lost with this gateway. */
function recordOrKill(folders: ProcessFolders, record: ProcessRecord): void {
  try {
    writeRecord(folders, record);
  } catch (error) {
    killGroup(record.pid, record.identity);
    throw error;
  }
}

/** Adds a child of an earlier gateway that still runs. */
export function adoptChild(
  processes: ChildProcesses,
  record: ProcessRecord,
  definition: EngineDefinition | undefined,
): Child {
  const replica = replicaOf(record, definition);
  const { specHash, logIndex, gpuIds, memoryBytes } = record;
  return addChild(processes, { replica, specHash, logIndex, gpuIds, memoryBytes, epoch: null, record, own: false });
}

/**
 * Sends SIGTERM to the program only, which ends its own children; then SIGKILL to the whole group after the grace time.
 */
export function stopChild(processes: ChildProcesses, child: Child, graceMs: number): void {
  if (child.stopRequested || child.exit !== null) return;
  child.stopRequested = true;
  const { record } = child;
  if (record === null) return;
  const { pid, identity, engineId } = record;
  signalProcess(pid, identity, 'SIGTERM');
  child.killTimer = setTimeout(() => {
    processes.log.warn(
      { engine: engineId, pid },
      'an engine did not exit on SIGTERM in time; the gateway kills the engine',
    );
    killGroup(pid, identity);
  }, graceMs);
}

/** Records the end of a child and cleans up after it. */
export function endChild(processes: ChildProcesses, child: Child, how: Partial<ReplicaExit>): void {
  if (child.exit !== null) return;
  if (child.killTimer !== null) clearTimeout(child.killTimer);
  const { record, stopRequested } = child;
  if (record !== null) {
    // Processes that the child left would keep GPU memory.
    killGroup(record.pid, record.identity);
    removeRecord(processes.folders, record);
  }
  if (keepsLog(processes, child)) addErrors(child.logPath, true);
  const isExplained = !stopRequested && typeof how.startErrorCode !== 'string';
  const logTail = isExplained ? readLogTail(child.logPath) : '';
  const errorTail = isExplained ? readLogTail(errorPathOf(child.logPath)) : '';
  child.endedAtMs = performance.now();
  child.exit = replicaExit({ logTail, errorTail, ...how, stopRequested });
  processes.onChange();
}

/**
 * True if this gateway copies the child's stderr to its log. The gateway that started or adopted the child does so;
 * once that gateway has ended, the leader does.
 */
export function keepsLog({ leads }: ChildProcesses, { own, record }: Child): boolean {
  if (own || record === null) return own;
  const { keeper } = record;
  return leads && (keeper === null || processIdentity(keeper.pid) !== keeper.identity);
}

function ownKeeper(): ProcessRecord['keeper'] {
  const identity = processIdentity(process.pid);
  return identity === null ? null : { pid: process.pid, identity };
}

function addChild({ children, folders }: ChildProcesses, begun: Launch & Pick<Child, 'record'>): Child {
  const logPath = logPathOf(folders, begun.replica.engineId, begun.logIndex);
  const child: Child = { ...begun, logPath, stopRequested: false, killTimer: null, exit: null, endedAtMs: null };
  children.set(child.replica.id, child);
  return child;
}

/** Returns the first index that no running child uses. */
function freeLogIndex({ children }: ChildProcesses, engineId: string): number {
  const used = new Set(
    [...children.values()]
      .filter(({ replica, exit }) => replica.engineId === engineId && exit === null)
      .map(({ logIndex }) => logIndex),
  );
  let index = 0;
  while (used.has(index)) index += 1;
  return index;
}

/** Spawns in a new session and process group, so that a terminal's Ctrl-C reaches only the gateway. */
function spawnDetached(
  { workingDirectory: cwd }: ChildProcesses,
  [program = '', ...args]: readonly string[],
  env: Record<string, string>,
  logPath: string,
): ChildProcess {
  const log = openLog(logPath);
  const errors = openErrorLog(logPath);
  try {
    return spawn(program, args, { cwd, env, detached: true, stdio: ['ignore', log, errors] });
  } finally {
    closeSync(log);
    closeSync(errors);
  }
}

function replicaOf(
  { replicaId, engineId, socketPath, port }: Pick<ProcessRecord, 'replicaId' | 'engineId' | 'socketPath' | 'port'>,
  definition: EngineDefinition | undefined,
): Replica {
  return {
    id: replicaId,
    engineId,
    endpoint: { socketPath, host: '127.0.0.1', port, tls: false, basePath: '' },
    upstreamModel: null,
    headerLines: '',
    forcedUsage: definition !== undefined && forcesUsage(definition),
    kind: definition?.kind ?? 'openai',
  };
}

/**
 * Returns a free port of the loopback address. Another program may take it first; the start then fails with that error.
 */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => {
        if (typeof address === 'object' && address !== null) resolve(address.port);
        else reject(new Error('No free port was found on the loopback address.'));
      });
    });
  });
}

/** Describes a spawn error for operators. */
function spawnTrouble(program: string, error: Error): string {
  const code = errorCodeOf(error);
  if (code === 'EACCES') return `the user that runs the gateway may not execute ${program}`;
  if (code !== 'ENOENT' && code !== 'ENOTDIR') return error.message;
  return program.includes('/') ? `the program ${program} does not exist` : `${program} is not on the gateway's PATH`;
}
