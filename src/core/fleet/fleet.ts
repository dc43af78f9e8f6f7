import type { Clock } from '#base/clock.ts';
import type { Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
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

export {
  createDockerDriver,
  createSwarmDriver,
  endProcesses,
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
} from '#core/fleet/store/store.ts';
export type { EngineView, ReplicaView } from './engine-view.ts';
export { type FleetIdentity, forgetFleetIdentity, readFleetIdentity } from './identity.ts';
export { type LogLine, type LogSource, readLogs } from './log-follow.ts';
export { type CommandAuthor, createOperatorCommands, type OperatorCommands } from './operator-commands.ts';

/** A replica that may be sent to now. */
export interface ReplicaCandidate {
  readonly replica: Replica;
  /** Requests of this gateway that it has now. */
  readonly leases: number;
}

/** Whether this gateway is the one that starts and stops engines: those of its machine, or those that several share. */
export interface FleetLead {
  readonly scope: 'machine' | 'shared';
  readonly leads: boolean;
}

export interface Fleet {
  /** Adopts or ends what an earlier gateway left, and begins to reconcile. */
  start(): Promise<void>;
  /** `failed` for an engine that is not known. */
  status(engineId: string): EngineStatus;
  /** The warm path: synchronous, null when nothing is ready outside `exclude` (replica ids). Never starts anything. */
  tryAcquire(engineId: string, exclude?: ReadonlySet<string>): Lease | null;
  /** The replicas of an engine that are ready, well and not draining. Cheap: asked for every request. */
  candidates(engineId: string): readonly ReplicaCandidate[];
  /** null when that replica may not be sent to now. */
  tryAcquireReplica(replicaId: string): Lease | null;
  /**
   * Waits for a replica, starting the engine when it is cold; one start serves all who wait, in an order that is fair
   * among keys. With `exclude` (ids of replicas that could not be reached) it waits for another, or for the one that is
   * started in their place, unless they turn out to be well. Refusals are values, that of an
   * engine that files do not have any more, or that is not enabled, among them; rejects when `signal` aborts.
   */
  acquire(engineId: string, options: AcquireOptions): Promise<AcquireResult>;
  /** Leases held on an engine's replicas. */
  leases(engineId: string): number;
  /** `max_concurrent` of the engine's file as it is now; null without it. */
  concurrencyMax(engineId: string): number | null;
  /** Asks an engine what it has to do, all replicas together. */
  readLoad(engineId: string): Promise<LoadReport>;
  readReplicaLoad(replicaId: string): Promise<LoadReport>;
  /** Reads the counters of the engines that this gateway leads, and writes them with their runs. */
  readCounters(): Promise<void>;
  /**
   * Asks the replicas that this gateway starts and stops for their own metrics, within 7 seconds; those of external
   * engines, and of engines that another gateway leads, are not among them. Rejects never.
   */
  readMetrics(take: (metrics: ReplicaMetrics) => void): Promise<void>;
  /** A connect to the replica was refused: takes it out of routing unless a probe made now succeeds. */
  reportUnreachable(replicaId: string): void;
  /** How the last request ended at a server that somebody else runs: refused, or answered (null). */
  reportRefusal(replicaId: string, refusal: EngineRefusal | null): void;
  list(): readonly EngineView[];
  /** Only of what has engines. */
  leads(): readonly FleetLead[];
  /**
   * An operator's command, for whoever leads. Rejects for an engine that is not known, and when the store is away.
   *
   * @param tx it is noted in this transaction, or not at all
   * @returns to be called once that is committed: wakes the leader, and resolves when the command holds at every
   *   gateway, or after five seconds when nobody carries it out
   */
  command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<() => Promise<void>>;
  /**
   * The files were read again. Changes nothing yet.
   * @returns makes the fleet go by them: changed engines are renewed beside what serves, removed ones drained and stopped
   * @throws when one of them cannot be run here
   */
  prepare(engines: readonly EngineDefinition[]): () => void;
  /** Lines of a replica's output, or of the newest replica's; of the last that ended when none runs. */
  logs(engineId: string, replicaId: string | null, options: LogOptions): AsyncIterable<string>;
  /** Containers that bear our label and belong to no engine. */
  orphans(): readonly Orphan[];
  hosts(): readonly HostReport[];
  /** Refuses new work, waits for leases up to each engine's drain time, ends what it runs, and returns after that. */
  close(): Promise<void>;
}

export interface FleetOptions {
  /** Disabled ones are never started. */
  readonly engines: readonly EngineDefinition[];
  /** Used by one gateway at a time. */
  readonly dataDir: string;
  /** Where child processes run: the folder that holds the engines folder. */
  readonly workingDirectory: string;
  /** The gateway's environment: references in engine files, API keys, and what children may inherit. */
  readonly env: Environment;
  readonly clock: Clock;
  readonly log: Log;
  /** Requests that may wait for one engine at once. */
  readonly queueMax?: number;
  /** Between SIGTERM and SIGKILL. */
  readonly stopGraceMs?: number;
  readonly policy?: Partial<FleetPolicy>;
  /** Those that several gateways share; what has no driver here cannot be run. */
  readonly drivers?: { readonly docker?: EngineDriver; readonly swarm?: EngineDriver };
  /** Stores of this gateway alone when absent; what several gateways share needs one that they share too. */
  readonly stores?: { readonly machine?: CoordinationStore; readonly shared?: CoordinationStore };
  /** Where it is kept what ran, and what was sent to try it out; nowhere when absent. */
  readonly runs?: { readonly machine: ReplicaRuns; readonly shared: ReplicaRuns };
  readonly engineRequests?: EngineRequests;
  /** Whether other gateways run processes in the same data folder; they need a store for the machine then. */
  readonly sharing?: SharingMode;
  /** Memory that processes may take together; the machine's when absent or null. */
  readonly engineMemoryBytes?: number | null;
  /** A replica was there and well, and is not any more: what has not reached it yet does not reach it. */
  readonly onLost?: (replica: Replica) => void;
}

/** The engines of the gateway. Nothing runs and nothing is routed to before `start`. */
export function createFleet(options: FleetOptions): Fleet {
  const { dataDir, workingDirectory, env, log, clock, queueMax = 1000, stopGraceMs = 10_000 } = options;
  const { sharing = 'alone', onLost = () => undefined, engineMemoryBytes: memoryBytes = null } = options;
  const policy = { ...defaultPolicy, ...options.policy };
  const outlives = sharing !== 'alone';
  const common = { clock, log, policy, queueMax, stopGraceMs, newReplicaId, outlives, onLost };
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

interface ReconciledDrivers {
  readonly name: FleetLead['scope'];
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly reconciler: Reconciler;
}

class ReconciledFleet implements Fleet {
  readonly #reconciled: readonly ReconciledDrivers[];
  readonly #clock: Clock;
  #specs: ReadonlyMap<Reconciler, readonly EngineSpec[]>;

  constructor(reconciled: readonly ReconciledDrivers[], engines: readonly EngineDefinition[], clock: Clock) {
    this.#reconciled = reconciled;
    this.#clock = clock;
    this.#specs = this.#sort(engines);
  }

  async start(): Promise<void> {
    await Promise.all(this.#reconciled.map(({ reconciler }) => reconciler.start(this.#specs.get(reconciler) ?? [])));
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
    const specs = this.#sort(engines);
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

  #sort(engines: readonly EngineDefinition[]): ReadonlyMap<Reconciler, readonly EngineSpec[]> {
    const specs = new Map<Reconciler, EngineSpec[]>(this.#reconciled.map(({ reconciler }) => [reconciler, []]));
    for (const definition of engines.filter(({ enabled }) => enabled)) {
      const { type } = definition.driver;
      const found = this.#reconciled.find(({ drivers }) => drivers.has(type));
      const driver = found?.drivers.get(type);
      if (found === undefined || driver === undefined) {
        throw new Error(`${definition.file}: this gateway is not set up for the driver ${type}.`);
      }
      specs.get(found.reconciler)?.push(driver.specOf(definition));
    }
    return specs;
  }
}
