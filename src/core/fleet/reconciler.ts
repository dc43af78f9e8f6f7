import type { Clock } from '#base/clock.ts';
import type { Transaction } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { ShownEngine } from '#core/catalog/catalog.ts';
import {
  type DriverType,
  type EngineDriver,
  type EngineSpec,
  FenceLostError,
  type Holding,
  type HostReport,
  type LogOptions,
  type Orphan,
  type Replica,
} from '#core/fleet/drivers/drivers.ts';
import { Leader } from '#core/fleet/leader/leader.ts';
import type { EngineRequests, ReplicaRuns } from '#core/fleet/runs/runs.ts';
import type { RunningReplica } from '#core/fleet/samples/samples.ts';
import { createProber, Engine, type PlacedReplica, type Prober, type Recognizer } from '#core/fleet/serving/serving.ts';
import { carriedOut, type CoordinationStore, type EngineCommand, type Published } from '#core/fleet/store/store.ts';
import { devicesHeld, heldHere, orphansHold } from './device-holders.ts';
import { type Exits, type FleetObservation, newExits, observeAll } from './observe-all.ts';
import type { FleetPolicy } from './policy.ts';
import { createRecognition } from './recognition.ts';
import { createReconcileLoop, type ReconcileLoop } from './reconcile-loop.ts';

export interface ReconcilerOptions {
  readonly store: CoordinationStore;
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly clock: Clock;
  readonly log: Log;
  readonly policy: FleetPolicy;
  /** True if no driver is contacted before there is an engine. */
  readonly waitsForEngines: boolean;
  readonly queueMax: number;
  readonly stopGraceMs: number;
  readonly newReplicaId: (engineId: string) => string;
  /** Records of replicas that ran; null if they are not kept. */
  readonly runs: ReplicaRuns | null;
  readonly engineRequests: EngineRequests | null;
  /** True if the engines outlive this gateway, because other gateways continue with them. */
  readonly outlives: boolean;
  /** Called when a replica that was running and healthy no longer is. */
  readonly onLost: (replica: Replica) => void;
  /** Called with what an engine shows of itself. */
  readonly onShown: (engineId: string, shown: ShownEngine) => void;
  /** Devices that engines of this gateway's other reconcilers use. */
  readonly elsewhere: () => readonly Holding[];
}

const reportEveryMs = 1000;
/** States in which an engine can answer requests for its metrics. */
const answering: ReadonlySet<string> = new Set(['checking', 'ready', 'draining', 'asleep']);

/**
 * The engines of one store. This gateway routes to them by the published state and its own findings, and decides about
 * them while it leads. If the store is unavailable, the gateway keeps routing by the last known state, and decides
 * nothing.
 */
export class Reconciler {
  readonly engines = new Map<string, Engine>();
  readonly #options: ReconcilerOptions;
  readonly #leader: Leader;
  readonly #prober: Prober;
  readonly #recognizer: Recognizer;
  readonly #loop: ReconcileLoop;
  readonly #exits: Exits = newExits();
  #specs: ReadonlyMap<string, EngineSpec> = new Map();
  /** Specs that no file has any more; kept until none of their replicas runs or is in use. */
  readonly #retired = new Map<string, EngineSpec>();
  #observation: FleetObservation;
  #published: Published | null = null;
  #reportedAtMs = -Infinity;
  #reportedWaiting = 0;
  #reportedVersion = -1n;
  #begun = false;
  #closing = false;
  #isStoreUnavailable = false;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
    const { clock, store } = options;
    const wake = (): void => this.#loop.wake();
    this.#loop = createReconcileLoop({ clock, reconcile: () => this.#reconcile() });
    this.#leader = new Leader({ ...options, wake });
    this.#prober = createProber({
      clock,
      slots: () => [...this.engines.values()].flatMap((engine) => engine.replicas.all()),
      leads: () => store.leadership.current() !== null,
      onHealth: ({ replica }, healthy) => this.#onHealth(replica.engineId, replica.id, healthy),
      onCleared: ({ replica }) => this.engines.get(replica.engineId)?.takeCleared(replica.id),
    });
    this.#recognizer = createRecognition({ ...options, engines: this.engines });
    this.#observation = { observed: new Map(), blind: new Set(), hosts: new Map(), orphans: [] };
  }

  /** True if this gateway starts and stops these engines; null while there is nothing to lead. */
  get leads(): boolean | null {
    return this.#begun ? this.#options.store.leadership.current() !== null : null;
  }

  /**
   * Adopts running replicas, and reconciles until no immediate work is left. With `waitsForEngines` it begins with the
   * first engine: a machine without a Docker engine, and without a file that needs one, is not polled every second.
   */
  async start(specs: readonly EngineSpec[]): Promise<void> {
    this.#takeSpecs(specs);
    if (specs.length > 0 || !this.#options.waitsForEngines) await this.#begin(specs);
  }

  async #begin(specs: readonly EngineSpec[]): Promise<void> {
    const { store, drivers } = this.#options;
    this.#begun = true;
    for (const [type, driver] of drivers) {
      await driver.open(specs.filter(({ definition }) => definition.driver.type === type));
      driver.onChange(() => this.#loop.wake());
    }
    store.onChange(() => this.#loop.wake());
    store.leadership.onChange(() => this.#loop.wake());
    await store.start();
    await this.#loop.start();
  }

  /** Sets the specs of reloaded files. */
  setSpecs(specs: readonly EngineSpec[]): void {
    this.#takeSpecs(specs);
    if (this.#begun) {
      this.#tellDrivers();
      this.#loop.wake();
    } else if (specs.length > 0) {
      const { log } = this.#options;
      this.#begin(specs).catch((error: unknown) =>
        log.error(
          { err: error },
          'the first engines could not be started after a reload of the engine files; restart the gateway if they stay stopped',
        ),
      );
    }
  }

  /** Reads the counters of the engines that this gateway leads, for a comparison now. */
  async readCounters(): Promise<void> {
    if (this.leads === true) await this.#options.runs?.readNow();
  }

  /** See `command` of the fleet. */
  async command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<() => Promise<void>> {
    const { store } = this.#options;
    const { id: commandId, committed } = await store.command(engineId, kind, tx);
    const watched = { store, published: () => this.#published, isClosing: () => this.#closing };
    return () => {
      committed();
      this.#probeAnew(engineId);
      this.#loop.wake();
      return carriedOut(watched, { engineId, commandId });
    };
  }

  /** Probes an external server again: the outcome of a command to it is its next answer. */
  #probeAnew(engineId: string): void {
    const replicas = this.engines.get(engineId)?.replicas;
    replicas?.forgetHealth();
    for (const slot of replicas?.all() ?? []) if (slot.observed.health === 'watched') this.#prober.suspect(slot);
  }

  suspect(replicaId: string): boolean {
    for (const engine of this.engines.values()) {
      const slot = engine.replicas.get(replicaId);
      if (slot === undefined) continue;
      this.#prober.suspect(slot);
      return true;
    }
    return false;
  }

  /** Returns the replicas that can answer for metrics, of engines that this gateway starts and stops. */
  ledReplicas(): readonly PlacedReplica[] {
    if (this.leads !== true) return [];
    return [...this.engines.values()]
      .filter(({ spec }) => spec.definition.driver.type !== 'external')
      .flatMap(({ replicas }) => replicas.all())
      .filter(({ published }) => published !== null && answering.has(published))
      .map(({ replica, observed }) => ({ replica, host: observed.placement.host }));
  }

  /** Returns the replicas that run, for samples of their load and of their GPUs. */
  runningReplicas(): readonly RunningReplica[] {
    return [...this.engines.values()].flatMap(({ kind, spec, replicas }) => {
      const driver = spec.definition.driver.type;
      return replicas.all().map(({ replica, observed: { placement }, published }) => ({
        replica,
        placement,
        driver,
        hasMetrics: kind === 'vllm' && (published === 'ready' || published === 'draining'),
        readGpus: async () => this.#options.drivers.get(driver)?.readGpus(placement) ?? null,
      }));
    });
  }

  orphans(): readonly Orphan[] {
    return this.#observation.orphans;
  }

  hosts(): readonly HostReport[] {
    return [...this.#observation.hosts.values()].flat();
  }

  /** Returns everything that uses devices here. */
  devicesHeld(): readonly Holding[] {
    return devicesHeld(this.#observation);
  }

  /** Yields lines of the named replica, or of the newest; of the last one that ended unexpectedly if none runs. */
  async *logs(engineId: string, replicaId: string | null, options: LogOptions): AsyncGenerator<string> {
    const slots = this.engines.get(engineId)?.replicas.all() ?? [];
    const slot = replicaId === null ? slots.at(-1) : slots.find(({ replica }) => replica.id === replicaId);
    const type = this.engines.get(engineId)?.spec.definition.driver.type;
    const driver = type === undefined ? undefined : this.#options.drivers.get(type);
    if (slot !== undefined && driver !== undefined) {
      yield* driver.logs(slot.replica.id, options);
      return;
    }
    yield* this.#exits.tail(engineId, replicaId, options.tailLines);
  }

  /** Refuses all waiting and future requests; replicas that cannot outlive this gateway are drained. */
  beginClosing(): void {
    this.#closing = true;
    for (const engine of this.engines.values()) engine.beginClosing();
    this.#loop.wake();
  }

  async close(): Promise<void> {
    const { store, drivers } = this.#options;
    if (this.#begun) {
      await this.#loop.close(() => this.#isSettled());
      this.#prober.close();
      this.#recognizer.close();
      await this.#leader.settled();
      await store.close();
    }
    await Promise.all([...drivers.values()].map((driver) => driver.close()));
  }

  #isSettled(): boolean {
    if (this.#options.outlives) return true;
    const state = this.#leader.state();
    // Other engines keep running, and a gateway that does not lead stops nothing.
    return (state?.engines ?? []).every(
      ({ replicas, spec }) => replicas.length === 0 || spec.definition.driver.type !== 'process',
    );
  }

  #takeSpecs(specs: readonly EngineSpec[]): void {
    const { queueMax, clock, onLost } = this.#options;
    const wake = (): void => this.#loop.wake();
    const next = new Map(specs.map((spec) => [spec.engineId, spec]));
    for (const [engineId, engine] of this.engines) {
      if (next.has(engineId)) continue;
      this.#retired.set(engineId, engine.spec);
      engine.retire();
    }
    for (const spec of specs) {
      const engine = this.engines.get(spec.engineId);
      this.#retired.delete(spec.engineId);
      if (engine === undefined) this.engines.set(spec.engineId, new Engine({ spec, queueMax, clock, wake, onLost }));
      else engine.takeSpec(spec);
    }
    this.#specs = next;
  }

  #tellDrivers(): void {
    const all = [...this.#specs.values(), ...this.#retired.values()];
    for (const [type, driver] of this.#options.drivers) {
      driver.setSpecs(all.filter(({ definition }) => definition.driver.type === type));
    }
  }

  #forgetRetired(): void {
    const ended = [...this.#retired.keys()].filter((engineId) => {
      const replicas = this.engines.get(engineId)?.replicas;
      return replicas === undefined || (replicas.all().length === 0 && replicas.leases() === 0);
    });
    if (ended.length === 0) return;
    for (const engineId of ended) {
      this.#retired.delete(engineId);
      this.engines.delete(engineId);
    }
    this.#tellDrivers();
  }

  /** @returns when to reconcile again, in monotonic milliseconds; now if a change may cause more */
  async #reconcile(): Promise<number> {
    const { drivers, log, store, clock, elsewhere } = this.#options;
    const jobs = this.#leader.jobs();
    const epoch = store.leadership.current()?.epoch ?? null;
    const observation = await observeAll(drivers, { before: this.#observation, epoch, log });
    this.#observation = observation;
    this.#exits.note(observation, log);
    this.#takeObserved(observation);
    let dueAtMs = Infinity;
    try {
      const fence = store.leadership.current();
      if (fence === null) {
        this.#leader.stepDown();
        this.#takePublished(await store.read());
      }
      await this.#report(fence !== null);
      if (fence !== null) {
        const health = this.#health();
        const closing = this.#closing && !this.#options.outlives;
        const holdings = [...orphansHold(observation), ...heldHere(elsewhere(), this.hosts())];
        const files = { specs: this.#specs, retired: this.#retired };
        const result = await this.#leader.reconcile(fence, {
          ...observation,
          ...files,
          jobs,
          health,
          holdings,
          closing,
        });
        this.#takePublished(result.published);
        dueAtMs = result.again ? clock.monotonicMs() : result.dueAtMs;
      }
      this.#isStoreUnavailable = false;
    } catch (error) {
      await this.#onStoreError(error);
    }
    for (const engine of this.engines.values()) engine.serve();
    this.#prober.kick();
    this.#recognizer.kick();
    if (this.#retired.size > 0) this.#forgetRetired();
    return dueAtMs;
  }

  async #onStoreError(error: unknown): Promise<void> {
    if (error instanceof FenceLostError) {
      // The next leader's published state applies, also if this gateway has not noticed yet that it lost the lead.
      this.#leader.stepDown();
      this.#takePublished(await this.#options.store.read().catch(() => null));
      return;
    }
    if (!this.#isStoreUnavailable) {
      this.#options.log.warn(
        { err: error },
        'the state of engines cannot be read or written in PostgreSQL: running engines still serve, but no engine is started or stopped',
      );
    }
    this.#isStoreUnavailable = true;
  }

  #takeObserved({ observed, hosts }: FleetObservation): void {
    const unreachable = new Set([...hosts.values()].flat().flatMap(({ name, reachable }) => (reachable ? [] : [name])));
    const byEngine = Map.groupBy(observed.values(), ({ replica }) => replica.engineId);
    for (const [engineId, engine] of this.engines) {
      engine.takeObserved(byEngine.get(engineId) ?? [], (slot) => unreachable.has(slot.observed.placement.host));
    }
  }

  #takePublished(published: Published | null): void {
    if (published === null || published.version === this.#published?.version) return;
    this.#published = published;
    const byId = new Map(published.engines.map((engine) => [engine.engineId, engine]));
    for (const [engineId, engine] of this.engines) engine.takePublished(byId.get(engineId) ?? null);
    this.#prober.kick();
    this.#recognizer.kick();
  }

  #health(): ReadonlyMap<string, boolean> {
    const slots = [...this.engines.values()].flatMap((engine) => engine.replicas.all());
    return new Map(slots.flatMap(({ replica, healthy }) => (healthy === null ? [] : [[replica.id, healthy]])));
  }

  #onHealth(engineId: string, replicaId: string, healthy: boolean): void {
    const engine = this.engines.get(engineId);
    if (engine?.replicas.setHealth(replicaId, healthy) !== true) return;
    engine.serve();
    this.#loop.wake();
  }

  /**
   * Reports at once if a first request waits or a version was published; otherwise every second, or always for the
   * leader.
   */
  async #report(leads: boolean): Promise<void> {
    const { clock, store } = this.#options;
    const nowMs = clock.monotonicMs();
    const engines = Object.fromEntries([...this.engines].map(([id, engine]) => [id, engine.demand()]));
    const waiting = Object.values(engines).reduce((sum, one) => sum + one.waiting, 0);
    const seenVersion = this.#published?.version ?? 0n;
    const isUrgent = (waiting > 0 && this.#reportedWaiting === 0) || seenVersion !== this.#reportedVersion;
    if (!leads && !isUrgent && nowMs - this.#reportedAtMs < reportEveryMs) return;
    await store.report({ seenVersion, engines });
    this.#reportedAtMs = nowMs;
    this.#reportedWaiting = waiting;
    this.#reportedVersion = seenVersion;
  }
}
