import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { EngineDriver, EngineSpec, ObservedReplica, ReplicaExit } from './driver.ts';
import type { Replica } from './lease.ts';
import {
  type Environment,
  forcesUsage,
  launchCommand,
  launchEnvironment,
  listensOnSocket,
  processSpecHash,
} from './process-command.ts';
import {
  boundLog,
  logPathOf,
  newReplicaId,
  openLog,
  prepareProcessFolders,
  type ProcessFolders,
  type ProcessRecord,
  readLogTail,
  readRecords,
  removeRecord,
  removeStaleSockets,
  socketPathOf,
  writeRecord,
} from './process-files.ts';
import { findMarkedProcesses, killGroup, processIdentity, signalProcess } from './process-identity.ts';
import { missingVariableCode } from './start-failure.ts';

export interface ProcessDriverOptions {
  readonly dataDir: string;
  /** Where children run: the folder that holds the engines folder. */
  readonly workingDirectory: string;
  /** The gateway's environment; children see an allow-list of it. */
  readonly env: Environment;
  readonly log: Log;
  /** Between SIGTERM and SIGKILL. vLLM can hang on the first. */
  readonly stopGraceMs: number;
}

/** A child that runs or has just ended. */
interface Child {
  readonly replica: Replica;
  readonly specHash: string;
  /** null when it could not even be started. */
  readonly record: ProcessRecord | null;
  readonly logPath: string;
  /** Started by this gateway, which is therefore told when it ends. */
  readonly own: boolean;
  stopAsked: boolean;
  killTimer: NodeJS.Timeout | null;
  exit: ReplicaExit | null;
}

const watchIntervalMs = 250;
const boundLogsEveryTicks = 20;

/**
 * Engines as child processes, each in a process group of its own: a terminal's Ctrl-C does not reach them, and what
 * they start can be ended with them. They outlive a gateway that is killed, and the next one adopts them.
 */
export function createProcessDriver(options: ProcessDriverOptions): EngineDriver {
  return new ProcessDriver(options);
}

class ProcessDriver implements EngineDriver {
  private readonly options: ProcessDriverOptions;
  private readonly folders: ProcessFolders;
  private readonly children = new Map<string, Child>();
  private listener: () => void = () => undefined;
  private watchTimer: NodeJS.Timeout | null = null;
  private ticks = 0;

  constructor(options: ProcessDriverOptions) {
    this.options = options;
    this.folders = prepareProcessFolders(options.dataDir);
  }

  specOf(definition: EngineDefinition): EngineSpec {
    return { engineId: definition.id, hash: processSpecHash(definition, this.options.env), definition };
  }

  adopt(specs: readonly EngineSpec[]): Promise<void> {
    const wanted = new Map(specs.map((spec) => [spec.engineId, spec]));
    for (const record of readRecords(this.folders)) this.takeOver(record, wanted);
    const groups = new Set([...this.children.values()].map(({ record }) => record?.pid));
    for (const { pid, group, identity } of findMarkedProcesses(this.folders.owner)) {
      if (groups.has(group)) continue;
      this.options.log.warn({ pid }, 'a process that an earlier gateway left is ended');
      signalProcess(pid, identity, 'SIGKILL');
    }
    const sockets = [...this.children.values()].map(({ replica }) => replica.endpoint.socketPath);
    removeStaleSockets(this.folders, new Set(sockets.filter((path) => path !== null)));
    this.watch();
    return Promise.resolve();
  }

  async apply(spec: EngineSpec, count: number): Promise<void> {
    const running = this.running(spec.engineId);
    const keep = running.filter(({ specHash }) => specHash === spec.hash).slice(0, count);
    for (const child of running) if (!keep.includes(child)) this.stop(child);
    for (let missing = count - keep.length; missing > 0; missing -= 1) await this.launch(spec);
    this.watch();
  }

  observe(): Promise<readonly ObservedReplica[]> {
    const observed = [...this.children.values()].map(
      ({ replica, specHash, stopAsked, exit }): ObservedReplica => ({
        replica,
        specHash,
        state: exit !== null ? 'exited' : stopAsked ? 'stopping' : 'running',
        health: 'probe',
        exit,
      }),
    );
    for (const { replica, state } of observed) if (state === 'exited') this.children.delete(replica.id);
    return Promise.resolve(observed);
  }

  onChange(listener: () => void): void {
    this.listener = listener;
  }

  async close(): Promise<void> {
    for (const child of this.children.values()) this.stop(child);
    while ([...this.children.values()].some(({ exit }) => exit === null)) await pause(20);
    if (this.watchTimer !== null) clearInterval(this.watchTimer);
    this.watchTimer = null;
  }

  private running(engineId: string): Child[] {
    return [...this.children.values()].filter(
      ({ replica, stopAsked, exit }) => replica.engineId === engineId && !stopAsked && exit === null,
    );
  }

  private takeOver(record: ProcessRecord, wanted: Map<string, EngineSpec>): void {
    const { pid, identity, engineId, replicaId } = record;
    if (processIdentity(pid) !== identity) {
      // The leader has ended; what it started may hold memory still, and is found by its mark.
      removeRecord(this.folders, record);
      return;
    }
    const spec = wanted.get(engineId);
    const fits = spec?.hash === record.specHash && this.running(engineId).length === 0;
    const replica = this.replicaOf(record, spec?.definition);
    const child = this.add(replica, record.specHash, record, false);
    this.options.log.info({ engine: engineId, replica: replicaId, adopted: fits }, 'found a running engine');
    if (!fits) this.stop(child);
  }

  private async launch(spec: EngineSpec): Promise<void> {
    const { definition, engineId, hash } = spec;
    const replicaId = newReplicaId(engineId);
    const socketPath = listensOnSocket(definition) ? socketPathOf(this.folders, replicaId) : null;
    const port = socketPath === null ? await freePort() : 0;
    const replica = this.replicaOf({ replicaId, engineId, socketPath, port }, definition);
    const environment = launchEnvironment(definition, this.options.env, this.folders.owner);
    if (!environment.ok) {
      this.options.log.warn({ engine: engineId, variable: environment.missing }, 'an engine’s variable refers to one that is not set');
      this.ended(this.add(replica, hash, null, true), { spawnErrorCode: missingVariableCode });
      return;
    }
    const command = launchCommand(definition, socketPath === null ? { port } : { socketPath });
    const started = this.spawn(command, environment.env, logPathOf(this.folders, engineId));
    const { pid } = started;
    const identity = pid === undefined ? null : processIdentity(pid);
    const record =
      pid === undefined || identity === null
        ? null
        : { version: 1 as const, replicaId, engineId, specHash: hash, pid, identity, socketPath, port };
    // At once, before anything is awaited: a gateway that is killed now must not lose sight of its child.
    if (record !== null) writeRecord(this.folders, record);
    const child = this.add(replica, hash, record, true);
    started.once('error', (error) => this.ended(child, { spawnErrorCode: errorCode(error) }));
    started.once('exit', (exitCode, signal) => this.ended(child, { exitCode, signal }));
    this.options.log.info({ engine: engineId, replica: replicaId, pid }, 'an engine was started');
  }

  private spawn([program = '', ...args]: string[], env: Record<string, string>, logPath: string): ChildProcess {
    const log = openLog(logPath);
    try {
      const cwd = this.options.workingDirectory;
      return spawn(program, args, { cwd, env, detached: true, stdio: ['ignore', log, log] });
    } finally {
      closeSync(log);
    }
  }

  private replicaOf(
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

  private add(replica: Replica, specHash: string, record: ProcessRecord | null, own: boolean): Child {
    const logPath = logPathOf(this.folders, replica.engineId);
    const child: Child = { replica, specHash, record, logPath, own, stopAsked: false, killTimer: null, exit: null };
    this.children.set(replica.id, child);
    return child;
  }

  /** SIGTERM to the program alone, which ends what it started; SIGKILL to all of them when it does not. */
  private stop(child: Child): void {
    if (child.stopAsked || child.exit !== null) return;
    child.stopAsked = true;
    const { record } = child;
    if (record === null) return;
    signalProcess(record.pid, record.identity, 'SIGTERM');
    child.killTimer = setTimeout(() => {
      this.options.log.warn({ engine: record.engineId, pid: record.pid }, 'an engine did not end on SIGTERM');
      killGroup(record.pid, record.identity);
    }, this.options.stopGraceMs);
  }

  private ended(child: Child, how: Partial<ReplicaExit>): void {
    if (child.exit !== null) return;
    if (child.killTimer !== null) clearTimeout(child.killTimer);
    const { record } = child;
    if (record !== null) {
      // Whatever it started and left would keep the GPU's memory.
      killGroup(record.pid, record.identity);
      removeRecord(this.folders, record);
    }
    const logTail = child.stopAsked ? '' : readLogTail(child.logPath);
    child.exit = { asked: child.stopAsked, exitCode: null, signal: null, spawnErrorCode: null, logTail, ...how };
    this.listener();
  }

  /** No event tells that an adopted child ended. Logs are bounded by the same clock. */
  private watch(): void {
    this.watchTimer ??= setInterval(() => {
      const live = [...this.children.values()].filter(({ exit }) => exit === null);
      for (const child of live) {
        const { own, record } = child;
        if (!own && record !== null && processIdentity(record.pid) !== record.identity) this.ended(child, {});
      }
      this.ticks += 1;
      if (this.ticks % boundLogsEveryTicks === 0) for (const { logPath } of live) boundLog(logPath);
    }, watchIntervalMs);
  }
}

/** A free port of the loopback address. Another program may take it first; the start then fails and says so. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => {
        if (typeof address === 'object' && address !== null) resolve(address.port);
        else reject(new Error('The loopback address gave no port.'));
      });
    });
  });
}

function errorCode(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : 'UNKNOWN';
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
