import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import {
  cardShare,
  type DriverType,
  type EngineDriver,
  type EngineSpec,
  type Fence,
  type HostReport,
  type Placement,
} from '#core/fleet/drivers/drivers.ts';
import {
  type JobReport,
  type LeaderEvent,
  type LeaderFacts,
  type LeaderState,
  plan,
  specOf,
} from '#core/fleet/plan/plan.ts';
import type { FleetPolicy } from '#core/fleet/policy.ts';
import type { EngineRequests, FollowedReplica, ReplicaRuns } from '#core/fleet/runs/runs.ts';
import type { CoordinationStore, PendingCommand, Published } from '#core/fleet/store/store.ts';
import { createJobs, type Jobs } from './actions.ts';
import { createGoodSpecKeeper, type GoodSpecKeeper, recallGoodSpecs } from './last-known-good.ts';
import { Readings } from './readings.ts';
import { StartReadings } from './start-readings.ts';
import { inherit, publishable, withVersion } from './takeover.ts';

export interface LeaderOptions {
  readonly store: CoordinationStore;
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly clock: Clock;
  readonly log: Log;
  readonly policy: FleetPolicy;
  /** Time between the stop signal and SIGKILL. */
  readonly stopGraceMs: number;
  readonly newReplicaId: (engineId: string) => string;
  /** Records of replicas that ran; null if they are not kept. */
  readonly runs: ReplicaRuns | null;
  readonly engineRequests: EngineRequests | null;
  /** Requests a reconciliation soon. */
  readonly wake: () => void;
}

/** The findings of one reconciliation, without what the leader adds itself. */
export interface ReconcileFacts extends Omit<
  LeaderFacts,
  'nowMs' | 'epochMs' | 'demands' | 'commands' | 'loads' | 'progress' | 'starts' | 'newReplicaId'
> {
  /** Specs of deleted files, by engine id: their replicas must end. */
  readonly retired: ReadonlyMap<string, EngineSpec>;
}

export interface ReconcileResult {
  readonly published: Published | null;
  /** True if a change was published that requires another reconciliation at once. */
  readonly again: boolean;
  /** Monotonic milliseconds. */
  readonly dueAtMs: number;
}

interface Term {
  readonly epoch: bigint;
  /** Offset to add to milliseconds since the Unix epoch to get monotonic milliseconds. */
  readonly offsetMs: number;
  readonly jobs: Jobs;
  readonly goodSpecs: GoodSpecKeeper;
  state: LeaderState;
  /** The last published engines, as JSON. */
  publishedJson: string;
  published: Published | null;
}

/** Decides and acts for all gateways of a scope while this gateway leads it. */
export class Leader {
  readonly #options: LeaderOptions;
  readonly #readings: Readings;
  readonly #starts: StartReadings;
  #term: Term | null = null;
  /** Commands read from the store and not carried out yet. */
  #commands: PendingCommand[] = [];

  constructor(options: LeaderOptions) {
    this.#options = options;
    this.#readings = new Readings(options);
    this.#starts = new StartReadings(options);
  }

  /** Returns the reports of running actions. Read them before the replicas are observed. */
  jobs(): ReadonlyMap<string, JobReport> {
    return this.#term?.jobs.reports() ?? new Map();
  }

  state(): LeaderState | null {
    return this.#term?.state ?? null;
  }

  /** Ends the term. The term's state is dropped, because it may be wrong when this gateway leads again. */
  stepDown(): void {
    this.#term = null;
    this.#options.runs?.stepDown();
  }

  /** Waits until the writes that this leader began have succeeded or failed. */
  async settled(): Promise<void> {
    await this.#term?.goodSpecs.settled();
    await this.#options.runs?.close();
  }

  /**
   * Decides, publishes, then acts. If publishing fails, no action runs and the decision is discarded.
   * @throws if the store is unavailable, or another gateway leads
   */
  async reconcile(fence: Fence, found: ReconcileFacts): Promise<ReconcileResult> {
    const { store, clock, policy, newReplicaId, log } = this.#options;
    const term = await this.#begin(fence, found);
    this.#commands.push(...(await store.takeCommands(fence)));
    const demands = await store.demands();
    this.#readings.renew(term.state, found.observed, demands);
    this.#starts.renew(term.state);
    const starts = this.#starts.readings();
    const { loads, progress } = this.#readings;
    const [nowMs, epochMs] = [clock.monotonicMs(), clock.now()];
    const commands = this.#commands;
    const times = { nowMs, epochMs };
    const facts: LeaderFacts = { ...found, ...times, demands, commands, loads, progress, starts, newReplicaId };
    const { state, actions, events, dueAtMs } = plan(term.state, facts, policy);
    const isNew = await this.#publish(fence, term, state);
    this.#commands = [];
    for (const event of events) logEvent(log, event);
    this.#options.runs?.follow(followed(term.state, found), unreachableHosts(found));
    term.goodSpecs.keep(term.state, found);
    term.jobs.settle(term.state, clock.monotonicMs());
    for (const action of actions) term.jobs.begin(action, term.state, found.observed);
    return { published: isNew ? term.published : null, again: isNew, dueAtMs };
  }

  async #begin(fence: Fence, found: ReconcileFacts): Promise<Term> {
    const { store, clock, drivers, log } = this.#options;
    if (this.#term?.epoch === fence.epoch) return this.#term;
    this.#options.runs?.stepDown();
    const published = await store.read();
    const kept = await store.goodSpecs();
    const good = recallGoodSpecs(kept, { specs: found.specs, drivers, log });
    const nowMs = clock.monotonicMs();
    const offsetMs = nowMs - clock.now();
    const specs = new Map([...found.retired, ...found.specs]);
    const state = inherit({ ...found, specs, good, published, nowMs, offsetMs });
    const jobs = createJobs({ ...this.#options, fence });
    const goodSpecs = createGoodSpecKeeper({ store, fence, clock, log, kept });
    this.#term = { epoch: fence.epoch, offsetMs, jobs, goodSpecs, state, publishedJson: '', published };
    return this.#term;
  }

  async #publish(fence: Fence, term: Term, state: LeaderState): Promise<boolean> {
    const engines = publishable(state, term.offsetMs);
    const publishedJson = JSON.stringify(engines);
    if (publishedJson === term.publishedJson) {
      term.state = state;
      return false;
    }
    const version = await this.#options.store.publish(fence, engines);
    term.publishedJson = publishedJson;
    term.published = { version, epoch: fence.epoch, engines };
    term.state = withVersion(state, version);
    return true;
  }
}

/** Returns the observed replicas of known engines, with what the leader intends for each. */
function followed(state: LeaderState, { observed, hosts }: ReconcileFacts): readonly FollowedReplica[] {
  const engines = new Map(state.engines.map((engine) => [engine.id, engine]));
  return [...observed.values()].flatMap((found) => {
    const engine = engines.get(found.replica.engineId);
    if (engine === undefined) return [];
    const { driver } = specOf(engine, found.specHash).definition;
    const replica = engine.replicas.find(({ id }) => id === found.replica.id);
    const ends = replica?.phase === 'stopping';
    const leaves = replica?.drain?.reason ?? (ends ? (replica.wedged === null ? 'stopped' : 'wedged') : null);
    const image = driver.type === 'docker' || driver.type === 'swarm' ? driver.image : null;
    const gpuShare = cardShare(profileOf(found.placement, [...hosts.values()].flat()));
    return [{ found, driver: driver.type, gpuShare, image, isReady: replica?.phase === 'ready', leaves }];
  });
}

/** Returns the profile of a replica's first GPU; the others are whole cards, too. */
function profileOf({ host, gpuIds: [gpuId] }: Placement, hosts: readonly HostReport[]): string | null {
  const gpus = hosts.filter(({ name }) => name === host).flatMap((report) => report.gpus);
  return gpus.find(({ id }) => id === gpuId)?.profile ?? null;
}

function unreachableHosts({ hosts }: ReconcileFacts): ReadonlySet<string> {
  return new Set([...hosts.values()].flat().flatMap(({ name, reachable }) => (reachable ? [] : [name])));
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
