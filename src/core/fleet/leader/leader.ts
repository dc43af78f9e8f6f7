import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { DriverType, EngineDriver, EngineSpec, Fence } from '#core/fleet/drivers/drivers.ts';
import { type JobReport, type LeaderEvent, type LeaderFacts, type LeaderState, plan } from '#core/fleet/plan/plan.ts';
import { type FleetPolicy, settingsOf } from '#core/fleet/policy.ts';
import { type LoadReport, readLoad } from '#core/fleet/serving/serving.ts';
import type { FleetBoard, Order, Published } from '#core/fleet/store/store.ts';
import { createJobs, type Jobs } from './actions.ts';
import { createGoodSpecKeeper, type GoodSpecKeeper, recallGoodSpecs } from './good-specs.ts';
import { inherit, publishable, withVersion } from './takeover.ts';

export interface LeaderOptions {
  readonly board: FleetBoard;
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly clock: Clock;
  readonly log: Log;
  readonly policy: FleetPolicy;
  /** Between the polite signal and SIGKILL. */
  readonly stopGraceMs: number;
  readonly newReplicaId: (engineId: string) => string;
  /** Asks for a look soon. */
  readonly wake: () => void;
}

/** What one look of the gateway found, before the leader adds what it knows itself. */
export interface LookFacts extends Omit<LeaderFacts, 'nowMs' | 'demands' | 'orders' | 'loads' | 'newReplicaId'> {
  /** Of files that are gone, by engine id: what still runs of them is to end. */
  readonly retired: ReadonlyMap<string, EngineSpec>;
}

export interface LookResult {
  readonly published: Published | null;
  /** Something was begun or told that makes another look worthwhile at once. */
  readonly again: boolean;
  /** Monotonic milliseconds. */
  readonly dueAtMs: number;
}

interface Reign {
  readonly epoch: bigint;
  /** Added to milliseconds since the Unix epoch, makes them monotonic ones. */
  readonly offsetMs: number;
  readonly jobs: Jobs;
  readonly goodSpecs: GoodSpecKeeper;
  state: LeaderState;
  /** As JSON: what was published last. */
  told: string;
  published: Published | null;
}

const loadEveryMs = 1000;

/** Decides and acts for all gateways of a scope while this one leads it. */
export class Leader {
  readonly #options: LeaderOptions;
  readonly #loads = new Map<string, LoadReport>();
  #loadsAtMs = -Infinity;
  #reign: Reign | null = null;
  /** Taken from the board, and not carried out yet. */
  #orders: Order[] = [];

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  /** Of what is under way; to be read before the replicas are observed. */
  jobs(): ReadonlyMap<string, JobReport> {
    return this.#reign?.jobs.reports() ?? new Map();
  }

  state(): LeaderState | null {
    return this.#reign?.state ?? null;
  }

  /** It does not lead any more: what it knew may be wrong by the time that it leads again. */
  abdicate(): void {
    this.#reign = null;
  }

  /** Waits until what it has begun to write is written, or cannot be. */
  async settled(): Promise<void> {
    await this.#reign?.goodSpecs.settled();
  }

  /**
   * Decides, tells all gateways, then acts: what could not be told is not done and was not decided.
   * @throws when the board cannot be asked, or another gateway leads
   */
  async look(fence: Fence, found: LookFacts): Promise<LookResult> {
    const { board, clock, policy, newReplicaId, log } = this.#options;
    const reign = await this.#begin(fence, found);
    this.#orders.push(...(await board.takeOrders(fence)));
    const demands = await board.demands();
    this.#readLoads(found, reign);
    const nowMs = clock.monotonicMs();
    const orders = this.#orders;
    const facts: LeaderFacts = { ...found, nowMs, demands, orders, loads: this.#loads, newReplicaId };
    const { state, actions, events, dueAtMs } = plan(reign.state, facts, policy);
    const isNew = await this.#publish(fence, reign, state);
    this.#orders = [];
    for (const event of events) logEvent(log, event);
    reign.goodSpecs.keep(reign.state, found);
    reign.jobs.settle(reign.state, clock.monotonicMs());
    for (const action of actions) reign.jobs.begin(action, reign.state, found.observed);
    return { published: isNew ? reign.published : null, again: isNew, dueAtMs };
  }

  async #begin(fence: Fence, found: LookFacts): Promise<Reign> {
    const { board, clock, drivers, log } = this.#options;
    if (this.#reign?.epoch === fence.epoch) return this.#reign;
    const published = await board.read();
    const kept = await board.goodSpecs();
    const good = recallGoodSpecs(kept, { specs: found.specs, drivers, log });
    const nowMs = clock.monotonicMs();
    const offsetMs = nowMs - clock.now();
    const specs = new Map([...found.retired, ...found.specs]);
    const state = inherit({ ...found, specs, good, published, nowMs, offsetMs });
    const jobs = createJobs({ ...this.#options, fence });
    const goodSpecs = createGoodSpecKeeper({ board, fence, clock, log, kept });
    this.#reign = { epoch: fence.epoch, offsetMs, jobs, goodSpecs, state, told: '', published };
    return this.#reign;
  }

  async #publish(fence: Fence, reign: Reign, state: LeaderState): Promise<boolean> {
    const engines = publishable(state, reign.offsetMs);
    const told = JSON.stringify(engines);
    if (told === reign.told) {
      reign.state = state;
      return false;
    }
    const version = await this.#options.board.publish(fence, engines);
    reign.told = told;
    reign.published = { version, epoch: fence.epoch, engines };
    reign.state = withVersion(state, version);
    return true;
  }

  /** Only where the number of replicas may follow it. */
  #readLoads({ observed }: LookFacts, { state }: Reign): void {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#loadsAtMs < loadEveryMs) return;
    this.#loadsAtMs = nowMs;
    const wanted = state.engines
      .filter(({ spec }) => settingsOf(spec.definition).max > 1)
      .flatMap(({ replicas }) => replicas.filter(({ phase }) => phase === 'ready').map(({ id }) => id));
    for (const id of this.#loads.keys()) if (!wanted.includes(id)) this.#loads.delete(id);
    for (const id of wanted) {
      const replica = observed.get(id)?.replica;
      if (replica !== undefined) void readLoad(replica).then((load) => this.#loads.set(id, load));
    }
  }
}

function logEvent(log: Log, { engineId, replicaId, text, cause }: LeaderEvent): void {
  const fields = {
    engine: engineId,
    ...(replicaId !== null && { replica: replicaId }),
    ...(cause !== null && { cause: cause.kind, detail: cause.detail }),
  };
  if (cause === null) log.info(fields, text);
  else log.warn(fields, text);
}
