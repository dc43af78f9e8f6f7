import type { Clock } from '#base/clock.ts';
import type { Transaction } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition, ShownEngine } from '#core/catalog/catalog.ts';
import {
  createExternalDriver,
  createProcessDriver,
  type DriverType,
  type EngineDriver,
  type EngineSpec,
  type Environment,
  type Holding,
  type HostReport,
  type LogOptions,
  newReplicaId,
  type Orphan,
  type Replica,
  type SharingMode,
} from '#core/fleet/drivers/drivers.ts';
import type { EngineRequests, ReplicaRuns } from '#core/fleet/runs/runs.ts';
import { createSampler, type EngineSamples, type Sampler } from '#core/fleet/samples/samples.ts';
import {
  type AcquireOptions,
  type AcquireResult,
  type Engine,
  type EngineRefusal,
  type EngineStatus,
  type Lease,
  type LoadReport,
  readLoad,
  readReplicaMetrics,
  type ReplicaMetrics,
  sumLoads,
  takenAway,
} from '#core/fleet/serving/serving.ts';
import { type CoordinationStore, createLocalStore, type EngineCommand } from '#core/fleet/store/store.ts';
import { type EngineView, viewOf } from './engine-view.ts';
import { mergeHosts } from './merge-hosts.ts';
import { defaultPolicy, type FleetPolicy } from './policy.ts';
import { Reconciler } from './reconciler.ts';
import { type ReconciledDrivers, specsByReconciler } from './reconciled-drivers.ts';

export {
  createDockerDriver,
  createSwarmDriver,
  endProcesses,
  type ImageStore,
  type HostReport,
  type LogOptions,
  type Orphan,
  type Replica,
  type SharingMode,
} from '#core/fleet/drivers/drivers.ts';
export {
  type CountedHour,
  createEngineRequests,
  createReplicaRuns,
  type EngineHistory,
  type EngineRequest,
  type EngineRequests,
  type GpuRun,
  type GpuRunsWanted,
  type OwnRequests,
  readEngineHistory,
  readGpuRuns,
  readReplicaGpus,
  type ReplicaGpus,
  type ReplicaRun,
} from '#core/fleet/runs/runs.ts';
export type {
  AcquireRefusal,
  AcquireResult,
  EngineLoad,
  EngineRefusal,
  EngineStatus,
  Lease,
  LoadReport,
  ReplicaMetrics,
} from '#core/fleet/serving/serving.ts';
export {
  type CoordinationStore,
  createDbStore,
  createGoodSpecTable,
  createLocalStore,
  type EngineCommand,
  type StartTimeline,
} from '#core/fleet/store/store.ts';
export type { EngineView, ReplicaView } from './engine-view.ts';
export type { EngineSamples } from '#core/fleet/samples/samples.ts';
export { fileBounds, type ReplicaBounds } from './policy.ts';
export { type ExternalFinding, inspectExternal } from './inspect-external.ts';
export { type FleetIdentity, forgetFleetIdentity, readFleetIdentity } from './identity.ts';
export { type LogLine, type LogSource, readLogs } from './log-follow.ts';
export { createUnusedStorage, type UnusedItem, type UnusedStorage } from './unused-storage.ts';
export { type CommandAuthor, createOperatorCommands, type OperatorCommands } from './operator-commands.ts';

/** A replica that may get requests now. */
export interface ReplicaCandidate {
  readonly replica: Replica;
  /** Requests of this gateway that the replica runs now. */
  readonly leases: number;
}

/**
 * A scope of engines: those of this gateway's machine, or those that several gateways share. `leads` is true if this
 * gateway starts and stops them.
 */
export interface FleetLead {
  readonly scope: 'machine' | 'shared';
  readonly leads: boolean;
}

export interface Fleet {
  /** Adopts or ends what an earlier gateway left, and begins to reconcile. */
  start(): Promise<void>;
  /** Returns `failed` for an unknown engine. */
  status(engineId: string): EngineStatus;
  /** The warm path: synchronous; null if no replica outside `exclude` (replica ids) is ready. Never starts anything. */
  tryAcquire(engineId: string, exclude?: ReadonlySet<string>): Lease | null;
  /** Returns the replicas of an engine that are ready, healthy and not draining. Cheap: called for every request. */
  candidates(engineId: string): readonly ReplicaCandidate[];
  /** Returns null if the replica may not get requests now. */
  tryAcquireReplica(replicaId: string): Lease | null;
  /**
   * Waits for a replica and starts the engine if it is cold. One start serves all waiting requests, in an order that is
   * fair among keys. With `exclude` (ids of replicas that could not be reached) it waits for another replica, or for
   * the one started in their place, unless the excluded replicas turn out to be healthy. Refusals are values, also for
   * an engine that files no longer have or have disabled; rejects when `signal` aborts.
   */
  acquire(engineId: string, options: AcquireOptions): Promise<AcquireResult>;
  /** Returns the number of leases on an engine's replicas. */
  leases(engineId: string): number;
  /** Returns `max_concurrent` of the engine's current file; null if not set. */
  concurrencyMax(engineId: string): number | null;
  /** Reads the load of an engine, summed over its replicas. */
  readLoad(engineId: string): Promise<LoadReport>;
  readReplicaLoad(replicaId: string): Promise<LoadReport>;
  /** Reads the counters of the engines that this gateway leads, and writes them with their runs. */
  readCounters(): Promise<void>;
  /**
   * Reads the metrics of the replicas that this gateway starts and stops, within 7 seconds. External engines, and
   * engines that another gateway leads, are not included. Never rejects.
   */
  readMetrics(take: (metrics: ReplicaMetrics) => void): Promise<void>;
  /** Reports a refused connection: the replica leaves routing unless a probe made now succeeds. */
  reportUnreachable(replicaId: string): void;
  /** Records how the last request ended at an external server: rejected, or answered (null). */
  reportRefusal(replicaId: string, refusal: EngineRefusal | null): void;
  list(): readonly EngineView[];
  /** Returns this gateway's samples of an engine in the last hour, and soon takes a new one of the load. */
  samples(engineId: string): EngineSamples;
  /** Only of scopes that have engines. */
  leads(): readonly FleetLead[];
  /**
   * Records an operator's command for the leader. Rejects if the engine is unknown or the store is unavailable.
   *
   * @param tx records the command in this transaction, or not at all
   * @returns a function to call after the commit: it wakes the leader, and resolves once the command is in effect at
   *   every gateway, or after five seconds
   */
  command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<() => Promise<void>>;
  /**
   * Prepares the engines of reloaded files. Changes nothing yet.
   * @returns a function that applies the files: changed engines are replaced beside serving replicas, removed ones
   *   drained and stopped
   * @throws if one of the engines cannot run here
   */
  prepare(engines: readonly EngineDefinition[]): () => void;
  /** Yields lines of a replica's output, or of the newest replica's; of the last one that ended if none runs. */
  logs(engineId: string, replicaId: string | null, options: LogOptions): AsyncIterable<string>;
  /** Containers and processes with our label that belong to no engine. */
  orphans(): readonly Orphan[];
  hosts(): readonly HostReport[];
  /**
   * Refuses new work, waits for leases up to each engine's drain time, ends the engines of this gateway, then returns.
   */
  close(): Promise<void>;
}

export interface FleetOptions {
  /** Disabled engines are never started. */
  readonly engines: readonly EngineDefinition[];
  /** Used by one gateway at a time, or by several as `sharing` says. */
  readonly dataDir: string;
  /** Working folder of child processes: the folder that contains the engines folder. */
  readonly workingDirectory: string;
  /** The gateway's environment: references in engine files, API keys, and variables that children may inherit. */
  readonly env: Environment;
  readonly clock: Clock;
  readonly log: Log;
  /** Maximum number of requests that wait for one engine. */
  readonly queueMax?: number;
  /** Time between the stop signal and SIGKILL. */
  readonly stopGraceMs?: number;
  readonly policy?: Partial<FleetPolicy>;
  /** Drivers whose engines several gateways share. An engine without its driver cannot run here. */
  readonly drivers?: { readonly docker?: EngineDriver; readonly swarm?: EngineDriver };
  /** Local stores of this gateway if absent. Engines that several gateways share need a shared store. */
  readonly stores?: { readonly machine?: CoordinationStore; readonly shared?: CoordinationStore };
  /** Where runs and the gateway's own requests are recorded; not recorded if absent. */
  readonly runs?: { readonly machine: ReplicaRuns; readonly shared: ReplicaRuns };
  readonly engineRequests?: EngineRequests;
  /** How other gateways run processes in the same data folder; they need a shared `machine` store then. */
  readonly sharing?: SharingMode;
  /** Memory that processes may use together; the machine's memory if absent or null. */
  readonly engineMemoryBytes?: number | null;
  /** Called when a replica that was running and healthy no longer is: unsent requests do not go to it any more. */
  readonly onLost?: (replica: Replica) => void;
  /** Called with what an engine shows of itself, and again when that changes. */
  readonly onShown?: (engineId: string, shown: ShownEngine) => void;
}

/** Creates the engines of the gateway. Nothing runs and nothing is routed before `start`. */
export function createFleet(options: FleetOptions): Fleet {
  const { dataDir, workingDirectory, env, log, clock, queueMax = 1000, stopGraceMs = 10_000 } = options;
  const {
    sharing = 'sole',
    onLost = () => undefined,
    onShown = () => undefined,
    engineMemoryBytes: memoryBytes = null,
  } = options;
  const policy = { ...defaultPolicy, ...options.policy };
  const outlives = sharing !== 'sole';
  const common = { clock, log, policy, queueMax, stopGraceMs, newReplicaId, outlives, onLost, onShown };
  const machine = new Map<DriverType, EngineDriver>([
    ['process', createProcessDriver({ dataDir, workingDirectory, env, log, sharing, memoryBytes })],
    ['external', createExternalDriver(env)],
  ]);
  const shared = new Map<DriverType, EngineDriver>(
    (['docker', 'swarm'] as const).flatMap((type) => {
      const driver = options.drivers?.[type];
      return driver === undefined ? [] : [[type, driver]];
    }),
  );
  const reconciled: ReconciledDrivers[] = [];
  const reconcile = (name: FleetLead['scope'], drivers: ReadonlyMap<DriverType, EngineDriver>): void => {
    const store = options.stores?.[name] ?? createLocalStore({ clock });
    const elsewhere = (): readonly Holding[] =>
      reconciled.flatMap((other) => (other.reconciler === reconciler ? [] : other.reconciler.devicesHeld()));
    const runs = options.runs?.[name] ?? null;
    const own = { drivers, store, runs, engineRequests: options.engineRequests ?? null };
    const reconciler = new Reconciler({ ...common, ...own, elsewhere, waitsForEngines: name === 'shared' });
    reconciled.push({ name, drivers, reconciler });
  };
  reconcile('machine', machine);
  if (shared.size > 0) reconcile('shared', shared);
  return new ReconciledFleet(reconciled, options.engines, clock);
}

class ReconciledFleet implements Fleet {
  readonly #reconciled: readonly ReconciledDrivers[];
  readonly #clock: Clock;
  readonly #sampler: Sampler;
  #specs: ReadonlyMap<Reconciler, readonly EngineSpec[]>;

  constructor(reconciled: readonly ReconciledDrivers[], engines: readonly EngineDefinition[], clock: Clock) {
    this.#reconciled = reconciled;
    this.#clock = clock;
    this.#specs = specsByReconciler(reconciled, engines);
    this.#sampler = createSampler({
      clock,
      running: () => reconciled.flatMap(({ reconciler }) => reconciler.runningReplicas()),
    });
  }

  async start(): Promise<void> {
    await Promise.all(this.#reconciled.map(({ reconciler }) => reconciler.start(this.#specs.get(reconciler) ?? [])));
    this.#sampler.start();
  }

  status(engineId: string): EngineStatus {
    return this.#find(engineId)?.status() ?? 'failed';
  }

  tryAcquire(engineId: string, exclude?: ReadonlySet<string>): Lease | null {
    return this.#find(engineId)?.tryAcquire(exclude) ?? null;
  }

  candidates(engineId: string): readonly ReplicaCandidate[] {
    return this.#find(engineId)?.replicas.routable() ?? [];
  }

  tryAcquireReplica(replicaId: string): Lease | null {
    return this.#ownerOf(replicaId)?.tryAcquireReplica(replicaId) ?? null;
  }

  async acquire(engineId: string, options: AcquireOptions): Promise<AcquireResult> {
    const engine = this.#find(engineId);
    return engine === undefined ? { ok: false, refusal: takenAway } : engine.acquire(options);
  }

  leases(engineId: string): number {
    return this.#find(engineId)?.replicas.leases() ?? 0;
  }

  concurrencyMax(engineId: string): number | null {
    return this.#find(engineId)?.spec.definition.concurrencyMax ?? null;
  }

  async readLoad(engineId: string): Promise<LoadReport> {
    const slots = this.#find(engineId)?.replicas.routable() ?? [];
    return sumLoads(await Promise.all(slots.map(({ replica }) => readLoad(replica))));
  }

  async readReplicaLoad(replicaId: string): Promise<LoadReport> {
    const slot = this.#ownerOf(replicaId)?.replicas.get(replicaId);
    return slot === undefined ? 'unknown' : readLoad(slot.replica);
  }

  async readCounters(): Promise<void> {
    await Promise.all(this.#reconciled.map(({ reconciler }) => reconciler.readCounters()));
  }

  async readMetrics(take: (metrics: ReplicaMetrics) => void): Promise<void> {
    await readReplicaMetrics(
      this.#reconciled.flatMap(({ reconciler }) => reconciler.ledReplicas()),
      take,
    );
  }

  reportUnreachable(replicaId: string): void {
    this.#reconciled.some(({ reconciler }) => reconciler.suspect(replicaId));
  }

  reportRefusal(replicaId: string, refusal: EngineRefusal | null): void {
    this.#ownerOf(replicaId)?.replicas.setRefusal(replicaId, refusal);
  }

  list(): readonly EngineView[] {
    return this.#all().map((engine) => viewOf(engine, this.#clock));
  }

  samples(engineId: string): EngineSamples {
    return this.#sampler.samples(engineId);
  }

  leads(): readonly FleetLead[] {
    return this.#reconciled.flatMap(({ name, reconciler: { leads } }) =>
      leads === null ? [] : [{ scope: name, leads }],
    );
  }

  command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<() => Promise<void>> {
    const found = this.#reconciled.find(({ reconciler }) => reconciler.engines.get(engineId)?.isRetired === false);
    if (found !== undefined) return found.reconciler.command(engineId, kind, tx);
    return Promise.reject(new Error(`There is no enabled engine ${JSON.stringify(engineId)}.`));
  }

  prepare(engines: readonly EngineDefinition[]): () => void {
    const specs = specsByReconciler(this.#reconciled, engines);
    return () => {
      this.#specs = specs;
      for (const { reconciler } of this.#reconciled) reconciler.setSpecs(specs.get(reconciler) ?? []);
    };
  }

  async *logs(engineId: string, replicaId: string | null, options: LogOptions): AsyncGenerator<string> {
    const found = this.#reconciled.find(({ reconciler }) => reconciler.engines.has(engineId));
    if (found !== undefined) yield* found.reconciler.logs(engineId, replicaId, options);
  }

  orphans(): readonly Orphan[] {
    return this.#reconciled.flatMap(({ reconciler }) => reconciler.orphans());
  }

  hosts(): readonly HostReport[] {
    return mergeHosts(this.#reconciled.flatMap(({ reconciler }) => reconciler.hosts()));
  }

  async close(): Promise<void> {
    for (const { reconciler } of this.#reconciled) reconciler.beginClosing();
    await this.#sampler.close();
    await Promise.all(this.#reconciled.map(({ reconciler }) => reconciler.close()));
  }

  #all(): Engine[] {
    return this.#reconciled
      .flatMap(({ reconciler }) => [...reconciler.engines.values()])
      .filter(({ isRetired }) => !isRetired);
  }

  #find(engineId: string): Engine | undefined {
    for (const { reconciler } of this.#reconciled) {
      const engine = reconciler.engines.get(engineId);
      if (engine !== undefined && !engine.isRetired) return engine;
    }
    return undefined;
  }

  #ownerOf(replicaId: string): Engine | undefined {
    for (const { reconciler } of this.#reconciled) {
      for (const engine of reconciler.engines.values()) if (engine.replicas.get(replicaId) !== undefined) return engine;
    }
    return undefined;
  }
}
