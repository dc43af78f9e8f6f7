import { totalmem } from 'node:os';
import type { Log } from '#base/log.ts';
import { findMarkedProcesses, processIdentity, signalProcess } from '#base/process-identity.ts';
import {
  type EngineDriver,
  type EngineSpec,
  type HostReport,
  type LogOptions,
  type ObservedReplica,
  type Orphan,
} from '#core/fleet/drivers/driver.ts';
import type { ReadFreeBytes } from '#core/fleet/drivers/free-disk.ts';
import { requireFence } from '#core/fleet/drivers/fence.ts';
import { adoptChild, type Child, endChild, keepsLog, launchChild, type ChildProcesses, stopChild } from './child.ts';
import { type Environment, ownerVariable, processSpecHash } from './command.ts';
import { addErrors } from './stderr-log.ts';
import {
  boundLog,
  prepareProcessFolders,
  type ProcessRecord,
  readRecords,
  removeRecord,
  removeStaleSockets,
} from './files.ts';
import { activityOf } from './start-activity.ts';
import { createLocalGpus, type LocalGpus, type FoundGpus } from './local-gpus.ts';
import { followLog } from './follow-log.ts';
import { type CountOomKills, createOomKills } from './oom-kills.ts';

export type { Environment } from './command.ts';

export interface ProcessDriverOptions {
  readonly dataDir: string;
  /** Working folder of children: the folder that contains the engines folder. */
  readonly workingDirectory: string;
  /** The gateway's environment; children see an allow-list of it. */
  readonly env: Environment;
  readonly log: Log;
  /** How several gateways share the data folder; `alone` if absent. */
  readonly sharing?: SharingMode;
  /** Memory that engines may use together; the machine's memory if absent or null. */
  readonly memoryBytes?: number | null;
  /** Reads the kernel's count if absent. */
  readonly countOomKills?: CountOomKills;
  /** Reads the disks of this machine if absent. */
  readonly readFreeBytes?: ReadFreeBytes;
}

/**
 * A gateway that is `alone` adopts what an earlier one left, and ends its children when it closes. Gateways that share
 * a data folder see all children in their records, may stop each of them, and leave them running when they close. The
 * `first` of them also adopts what was left, because no other gateway runs yet.
 */
export type SharingMode = 'sole' | 'first' | 'joining';

const watchIntervalMs = 250;
const boundLogsEveryTicks = 20;
const closePollMs = 20;
/** How long an ended child stays visible if another gateway forgets it. */
const endShownMs = 60_000;
/** Default time between SIGTERM and SIGKILL: vLLM can hang on SIGTERM. */
const graceMs = 10_000;
/** The only machine that this driver knows. */
const host = 'local';

function gpuReaders(gpus: LocalGpus): Pick<EngineDriver, 'probeGpus' | 'readGpus'> {
  return { probeGpus: ({ gpuIds }) => gpus.probe(gpuIds), readGpus: ({ gpuIds }) => gpus.read(gpuIds) };
}

/**
 * Creates the driver that runs engines as child processes, each in its own process group. They outlive a gateway that
 * is killed, and the next gateway on the same data folder adopts them.
 */
export function createProcessDriver({ dataDir, sharing = 'sole', ...options }: ProcessDriverOptions): EngineDriver {
  const localGpus = createLocalGpus(options);
  const memoryBytes = options.memoryBytes ?? machineMemory();
  const processes: ChildProcesses = {
    ...options,
    children: new Map(),
    oomKills: createOomKills(options.countOomKills),
    folders: prepareProcessFolders(dataDir),
    leads: sharing !== 'joining',
    onChange: () => undefined,
  };
  let specs: ReadonlyMap<string, EngineSpec> = new Map();
  let watchTimer: NodeJS.Timeout | null = null;
  const setSpecs = (given: readonly EngineSpec[]): void => {
    specs = new Map(given.map((spec) => [spec.engineId, spec]));
  };

  return {
    specOf: (definition) => ({ engineId: definition.id, hash: processSpecHash(definition, options.env), definition }),
    open(given) {
      setSpecs(given);
      if (sharing !== 'joining') {
        for (const record of readRecords(processes.folders)) takeOver(processes, record, specs);
        endLeftovers(processes);
      }
      watchTimer ??= setInterval(createWatch(processes), watchIntervalMs);
      return Promise.resolve();
    },
    setSpecs,
    async observe(epoch = null) {
      processes.leads = sharing === 'sole' || epoch !== null;
      const found = needsGpus(specs) ? await localGpus.find() : noGpus;
      if (sharing !== 'sole') meetOthers(processes, specs);
      const children = [...processes.children.values()];
      return {
        replicas: children.map(observedOf),
        hosts: [machineReport(found, memoryBytes)],
        orphans: children.flatMap((child) => orphanOf(child, specs) ?? []),
      };
    },
    async start(request) {
      if (processes.children.has(request.replicaId)) return;
      await requireFence(request.fence);
      await launchChild(processes, request);
      processes.onChange();
    },
    async stop(replicaId, request) {
      const child = processes.children.get(replicaId);
      if (child === undefined) return;
      await requireFence(request.fence);
      stopChild(processes, child, request.graceMs);
      processes.onChange();
    },
    forget(replicaId) {
      if ((processes.children.get(replicaId)?.exit ?? null) !== null) processes.children.delete(replicaId);
      return Promise.resolve();
    },
    ...gpuReaders(localGpus),
    activity: (replicaId) => activityOf(processes, replicaId, specs),
    logs: (replicaId, logOptions) => readLog(processes, replicaId, logOptions),
    onChange(listener) {
      processes.onChange = listener;
    },
    async close() {
      if (sharing === 'sole') await endChildren(processes);
      if (watchTimer !== null) clearInterval(watchTimer);
      watchTimer = null;
    },
  };
}

function readLog(processes: ChildProcesses, replicaId: string, options: LogOptions): AsyncIterable<string> {
  const child = processes.children.get(replicaId);
  if (child !== undefined && keepsLog(processes, child)) addErrors(child.logPath);
  return followLog(child?.logPath ?? null, () => child?.exit !== null, options);
}

/** Ends the processes that the gateways of a data folder left there. None of these gateways may be running. */
export async function endProcesses(options: Omit<ProcessDriverOptions, 'sharing'>): Promise<void> {
  const driver = createProcessDriver(options);
  await driver.open([]);
  await driver.close();
}

async function endChildren(processes: ChildProcesses): Promise<void> {
  for (const child of processes.children.values()) stopChild(processes, child, graceMs);
  while ([...processes.children.values()].some(({ exit }) => exit === null)) await pause(closePollMs);
}

/** Adds children that other gateways started, and drops those that ended long ago. */
function meetOthers(processes: ChildProcesses, specs: ReadonlyMap<string, EngineSpec>): void {
  const { children, folders } = processes;
  for (const record of readRecords(folders, false)) {
    if (children.has(record.replicaId)) continue;
    if (processIdentity(record.pid) === record.identity) {
      adoptChild(processes, record, specs.get(record.engineId)?.definition);
    } else removeRecord(folders, record);
  }
  for (const [id, { endedAtMs }] of children) {
    if (endedAtMs !== null && performance.now() - endedAtMs > endShownMs) children.delete(id);
  }
}

const noGpus: FoundGpus = { gpus: [], trouble: null };

function needsGpus(specs: ReadonlyMap<string, EngineSpec>): boolean {
  return [...specs.values()].some(({ definition: { driver } }) => driver.type === 'process' && driver.gpus !== null);
}

function machineReport({ gpus, trouble }: FoundGpus, memoryBytes: number): HostReport {
  const report = { name: host, pools: [], reachable: true, gpus, memoryBytes };
  return trouble === null ? report : { ...report, trouble };
}

/** Memory of the machine, or of the gateway's control group. */
function machineMemory(): number {
  const limit = process.constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}

function observedOf({ replica, specHash, stopRequested, exit, epoch, gpuIds }: Child): ObservedReplica {
  const state = exit !== null ? 'exited' : stopRequested ? 'stopping' : 'running';
  return { replica, specHash, placement: { host, gpuIds }, epoch, state, progress: null, health: 'probe', exit };
}

/** Returns null for a child of an engine that the files have, or had when this gateway read them last. */
function orphanOf(child: Child, specs: ReadonlyMap<string, EngineSpec>): Orphan | null {
  const { record, exit, replica, gpuIds, memoryBytes } = child;
  if (record === null || exit !== null || specs.has(replica.engineId)) return null;
  const { pid } = record;
  return { host, name: `pid ${pid}`, engineId: replica.engineId, gpuIds, memoryBytes, endedBy: `kill ${pid}` };
}

function runningOf({ children }: ChildProcesses, engineId: string): Child[] {
  return [...children.values()].filter(
    ({ replica, stopRequested, exit }) => replica.engineId === engineId && !stopRequested && exit === null,
  );
}

function replicasMax({ definition }: EngineSpec): number {
  if (definition.driver.type !== 'process') return 0;
  const { replicas, schedule } = definition.driver;
  // The leader ends the replicas that are too many at this time.
  return Math.max(...[replicas, ...schedule].map(({ max }) => max));
}

/** Keeps a child that still runs the spec of its engine's file; stops any other child. */
function takeOver(processes: ChildProcesses, record: ProcessRecord, wanted: ReadonlyMap<string, EngineSpec>): void {
  const { pid, identity, engineId, specHash } = record;
  if (processIdentity(pid) !== identity) {
    // The process has ended, and its pid may belong to another one now. Its own children are found by their mark.
    removeRecord(processes.folders, record);
    return;
  }
  const spec = wanted.get(engineId);
  const fits = spec?.hash === specHash && runningOf(processes, engineId).length < replicasMax(spec);
  const child = adoptChild(processes, record, spec?.definition);
  processes.log.info(
    { engine: engineId, pid, adopted: fits },
    fits
      ? 'adopted a running engine that an earlier gateway had started'
      : 'stopping a running engine that an earlier gateway had started, because it no longer fits the engine file',
  );
  if (!fits) stopChild(processes, child, graceMs);
}

/** Ends processes that carry our mark and belong to no child, and removes sockets that nobody listens on. */
function endLeftovers({ children, folders, log }: ChildProcesses): void {
  const groups = new Set([...children.values()].map(({ record }) => record?.pid));
  for (const { pid, group, identity } of findMarkedProcesses(ownerVariable, folders.owner)) {
    if (groups.has(group)) continue;
    log.warn({ pid }, 'stopping a process left by an earlier gateway');
    signalProcess(pid, identity, 'SIGKILL');
  }
  const sockets = [...children.values()].map(({ replica }) => replica.endpoint.socketPath);
  removeStaleSockets(folders, new Set(sockets.filter((path) => path !== null)));
}

/** Polls for the end of adopted children, which emits no event. Logs are bounded at the same interval. */
function createWatch(processes: ChildProcesses): () => void {
  let ticks = 0;
  return () => {
    const live = [...processes.children.values()].filter(({ exit }) => exit === null);
    for (const child of live) {
      const { own, record } = child;
      if (!own && record !== null && processIdentity(record.pid) !== record.identity) endChild(processes, child, {});
    }
    for (const child of live) if (keepsLog(processes, child)) addErrors(child.logPath);
    ticks += 1;
    if (ticks % boundLogsEveryTicks === 0) for (const { logPath } of live) boundLog(logPath);
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
