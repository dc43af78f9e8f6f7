import type { Clock } from '#base/clock.ts';
import type { Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import {
  type DriverType,
  type EngineDriver,
  type EngineSpec,
  FenceLostError,
  type Holding,
  type HostReport,
  type LogOptions,
  type Replica,
  type Stranger,
} from '#core/fleet/drivers/drivers.ts';
import { Leader } from '#core/fleet/leader/leader.ts';
import { createProber, Engine, type Prober } from '#core/fleet/serving/serving.ts';
import { carriedOut, type FleetBoard, type OrderKind, type Published } from '#core/fleet/store/store.ts';
import { devicesHeld, heldHere, strangersHold } from './holdings.ts';
import { type Exits, newExits, observeAll, type Sight } from './observe-all.ts';
import type { FleetPolicy } from './policy.ts';
import { createLookLoop, type LookLoop } from './reconcile-loop.ts';

export interface ScopeOptions {
  readonly board: FleetBoard;
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly clock: Clock;
  readonly log: Log;
  readonly policy: FleetPolicy;
  /** Nothing is looked at before there is an engine. */
  readonly waitsForEngines: boolean;
  readonly queueMax: number;
  readonly stopGraceMs: number;
  readonly newReplicaId: (engineId: string) => string;
  /** Nothing of it ends with this gateway: others go on with it. */
  readonly outlives: boolean;
  /** A replica was there and well, and is not any more. */
  readonly onLost: (replica: Replica) => void;
  /** What other engines of this gateway have of devices. */
  readonly elsewhere: () => readonly Holding[];
}

const reportEveryMs = 1000;

/**
 * The engines of one board: this gateway routes to them by what is published and by what it finds itself, and decides
 * about them while it leads. When the board cannot be asked it routes on by what it knew last, and decides nothing.
 */
export class Scope {
  readonly engines = new Map<string, Engine>();
  readonly #options: ScopeOptions;
  readonly #leader: Leader;
  readonly #prober: Prober;
  readonly #loop: LookLoop;
  readonly #exits: Exits = newExits();
  #specs: ReadonlyMap<string, EngineSpec> = new Map();
  /** No file has them any more; kept until nothing of them runs or is in use. */
  readonly #retired = new Map<string, EngineSpec>();
  #sight: Sight;
  #published: Published | null = null;
  #reportedAtMs = -Infinity;
  #reportedWaiting = 0;
  #reportedVersion = -1n;
  #begun = false;
  #closing = false;
  #boardAway = false;

  constructor(options: ScopeOptions) {
    this.#options = options;
    const { clock, board } = options;
    const wake = (): void => this.#loop.wake();
    this.#loop = createLookLoop({ clock, look: () => this.#look() });
    this.#leader = new Leader({ ...options, wake });
    this.#prober = createProber({
      clock,
      slots: () => [...this.engines.values()].flatMap((engine) => engine.replicas.all()),
      leads: () => board.leadership.current() !== null,
      onHealth: ({ replica }, healthy) => this.#onHealth(replica.engineId, replica.id, healthy),
      onCleared: ({ replica }) => this.engines.get(replica.engineId)?.takeCleared(replica.id),
    });
    this.#sight = { observed: new Map(), blind: new Set(), hosts: new Map(), strangers: [] };
  }

  /** Whether this gateway starts and stops what is here; null while there is nothing to lead. */
  get leads(): boolean | null {
    return this.#begun ? this.#options.board.leadership.current() !== null : null;
  }

  /**
   * Adopts what runs, and looks until nothing more is to be done at once. Where that is wished it waits for
   * the first engine: a machine that has no Docker engine, and no file that wants one, is not asked for it every second.
   */
  async start(specs: readonly EngineSpec[]): Promise<void> {
    this.#takeSpecs(specs);
    if (specs.length > 0 || !this.#options.waitsForEngines) await this.#begin(specs);
  }

  async #begin(specs: readonly EngineSpec[]): Promise<void> {
    const { board, drivers } = this.#options;
    this.#begun = true;
    for (const [type, driver] of drivers) {
      await driver.open(specs.filter(({ definition }) => definition.driver.type === type));
      driver.onChange(() => this.#loop.wake());
    }
    board.onChange(() => this.#loop.wake());
    board.leadership.onChange(() => this.#loop.wake());
    await board.start();
    await this.#loop.start();
  }

  /** The files were read again. */
  setSpecs(specs: readonly EngineSpec[]): void {
    this.#takeSpecs(specs);
    if (this.#begun) {
      this.#tellDrivers();
      this.#loop.wake();
    } else if (specs.length > 0) {
      const { log } = this.#options;
      this.#begin(specs).catch((error: unknown) => log.error({ err: error }, 'the first engines could not be begun'));
    }
  }

  /** As the fleet's. */
  async order(engineId: string, kind: OrderKind, tx?: Transaction): Promise<() => Promise<void>> {
    const { board } = this.#options;
    const { id: orderId, committed } = await board.order(engineId, kind, tx);
    const watched = { board, published: () => this.#published, isClosing: () => this.#closing };
    return () => {
      committed();
      this.#loop.wake();
      return carriedOut(watched, { engineId, orderId });
    };
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

  strangers(): readonly Stranger[] {
    return this.#sight.strangers;
  }

  hosts(): readonly HostReport[] {
    return [...this.#sight.hosts.values()].flat();
  }

  /** Everything here that has devices. */
  devicesHeld(): readonly Holding[] {
    return devicesHeld(this.#sight);
  }

  /** Of the replica named, or of the newest; of the last one that ended unasked when nothing of it runs. */
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

  /** Refuses all that wait and will come; replicas that cannot outlive this gateway are drained. */
  beginClosing(): void {
    this.#closing = true;
    for (const engine of this.engines.values()) engine.beginClosing();
    this.#loop.wake();
  }

  async close(): Promise<void> {
    const { board, drivers } = this.#options;
    if (this.#begun) {
      await this.#loop.close(() => this.#isSettled());
      this.#prober.close();
      await this.#leader.settled();
      await board.close();
    }
    await Promise.all([...drivers.values()].map((driver) => driver.close()));
  }

  #isSettled(): boolean {
    if (this.#options.outlives) return true;
    const state = this.#leader.state();
    // What outlives this gateway runs on; and who does not lead stops nothing.
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

  /** @returns when to look again, monotonic milliseconds; now when something was changed that may lead to more */
  async #look(): Promise<number> {
    const { drivers, log, board, clock, elsewhere } = this.#options;
    const jobs = this.#leader.jobs();
    const epoch = board.leadership.current()?.epoch ?? null;
    const sight = await observeAll(drivers, { before: this.#sight, epoch, log });
    this.#sight = sight;
    this.#exits.note(sight, log);
    this.#takeObserved(sight);
    let dueAtMs = Infinity;
    try {
      const fence = board.leadership.current();
      if (fence === null) {
        this.#leader.abdicate();
        this.#takePublished(await board.read());
      }
      await this.#report(fence !== null);
      if (fence !== null) {
        const health = this.#health();
        const closing = this.#closing && !this.#options.outlives;
        const holdings = [...strangersHold(sight), ...heldHere(elsewhere(), this.hosts())];
        const files = { specs: this.#specs, retired: this.#retired };
        const result = await this.#leader.look(fence, { ...sight, ...files, jobs, health, holdings, closing });
        this.#takePublished(result.published);
        dueAtMs = result.again ? clock.monotonicMs() : result.dueAtMs;
      }
      this.#boardAway = false;
    } catch (error) {
      await this.#onBoardError(error);
    }
    for (const engine of this.engines.values()) engine.serve();
    this.#prober.kick();
    if (this.#retired.size > 0) this.#forgetRetired();
    return dueAtMs;
  }

  async #onBoardError(error: unknown): Promise<void> {
    if (error instanceof FenceLostError) {
      // Another one's word counts, also for a gateway that has not noticed yet that it does not lead any more.
      this.#leader.abdicate();
      this.#takePublished(await this.#options.board.read().catch(() => null));
      return;
    }
    if (!this.#boardAway) {
      this.#options.log.warn({ err: error }, 'engines are neither started nor stopped now; what runs is routed to');
    }
    this.#boardAway = true;
  }

  #takeObserved({ observed, hosts }: Sight): void {
    const away = new Set([...hosts.values()].flat().flatMap(({ name, reachable }) => (reachable ? [] : [name])));
    const byEngine = Map.groupBy(observed.values(), ({ replica }) => replica.engineId);
    for (const [engineId, engine] of this.engines) {
      engine.takeObserved(byEngine.get(engineId) ?? [], (slot) => away.has(slot.observed.placement.host));
    }
  }

  #takePublished(published: Published | null): void {
    if (published === null || published.version === this.#published?.version) return;
    this.#published = published;
    const byId = new Map(published.engines.map((engine) => [engine.engineId, engine]));
    for (const [engineId, engine] of this.engines) engine.takePublished(byId.get(engineId) ?? null);
    this.#prober.kick();
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

  /** At once when the first request waits or something was published; else every second, and for whoever leads. */
  async #report(leads: boolean): Promise<void> {
    const { clock, board } = this.#options;
    const nowMs = clock.monotonicMs();
    const engines = Object.fromEntries([...this.engines].map(([id, engine]) => [id, engine.demand()]));
    const waiting = Object.values(engines).reduce((sum, one) => sum + one.waiting, 0);
    const seenVersion = this.#published?.version ?? 0n;
    const isUrgent = (waiting > 0 && this.#reportedWaiting === 0) || seenVersion !== this.#reportedVersion;
    if (!leads && !isUrgent && nowMs - this.#reportedAtMs < reportEveryMs) return;
    await board.report({ seenVersion, engines });
    this.#reportedAtMs = nowMs;
    this.#reportedWaiting = waiting;
    this.#reportedVersion = seenVersion;
  }
}
