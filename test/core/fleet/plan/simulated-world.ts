import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type {
  EngineSpec,
  GpuUse,
  Holding,
  HostReport,
  ObservedReplica,
  Placement,
} from '#core/fleet/drivers/driver.ts';
import { failureCause } from '#core/fleet/drivers/failure-cause.ts';
import { type ReplicaExit, replicaExit } from '#core/fleet/drivers/replica-exit.ts';
import { inherit, publishable, withVersion } from '#core/fleet/leader/takeover.ts';
import { jobKey, type JobReport, type LeaderAction, type StartReading } from '#core/fleet/plan/draft.ts';
import { plan } from '#core/fleet/plan/plan.ts';
import type { LeaderState } from '#core/fleet/plan/state.ts';
import { defaultPolicy, type FleetPolicy } from '#core/fleet/policy.ts';
import type { LoadReport } from '#core/fleet/serving/engine-load.ts';
import type { Demand, EngineCommand, PendingCommand, Published } from '#core/fleet/store/coordination-store.ts';
import { showState } from './show-state.ts';
import type { Gateway, Waiting } from './simulated-gateway.ts';
import { checkDevices, checkRoom, lacksMemory, outOfMemory } from './simulated-memory.ts';
import { lacksRoom } from './simulated-swarm.ts';

/**
 * A world for the leader's plan without processes or time of its own: hosts with devices, replicas that take a while to
 * run, gateways whose requests wait, run and end, and that hear of published changes late if the test says so.
 */

export interface Container {
  readonly id: string;
  readonly engineId: string;
  readonly spec: EngineSpec;
  placement: Placement;
  state: 'creating' | 'running' | 'stopping' | 'exited';
  runsAtMs: number;
  goneAtMs: number;
  isWell: boolean;
  asleep: boolean;
  exit: ReplicaExit | null;
}

const startMs = 2000;
const stopMs = 500;
const nothing: LeaderState = { engines: [], gpus: new Map(), ends: [] };

/** Phases in which an engine is not meant to serve. */
const atRest = ['held', 'off'] as const;

export class World {
  nowMs = 1000;
  /** Time since the Unix epoch at which this world's time began, for schedules. */
  epochMs = 0;
  hosts: HostReport[];
  readonly policy: FleetPolicy;
  readonly specs = new Map<string, EngineSpec>();
  readonly containers = new Map<string, Container>();
  readonly gateways: Gateway[] = [];
  /** Specs with these hashes do not pass their checks. */
  readonly bad = new Set<string>();
  /** Bytes that are in use on a device although nothing runs there. */
  readonly remains = new Map<string, number>();
  /** Devices in use by others than replicas of these engines. */
  holdings: Holding[] = [];
  /** Real use of an engine's processes, whatever its file says, and the machine's total. */
  readonly takes = new Map<string, number>();
  machineMemory = Infinity;
  /** Devices that a swarm, which places by itself, has in all. */
  swarmGpus = Infinity;
  readonly loads = new Map<string, LoadReport>();
  /** Metrics of replicas, by their id. */
  readonly progress = new Map<string, string>();
  /** Output of starting containers. */
  readonly starts = new Map<string, StartReading>();
  /** Ids of replicas that answer no canary. */
  readonly silent = new Set<string>();
  /** Replicas that got a canary, one item for each. */
  readonly canaries: string[] = [];
  readonly everStarted: string[] = [];
  /** Notices, as engine and text. */
  readonly said: string[] = [];
  readonly answers: { engineId: string; answer: string }[] = [];
  state: LeaderState = nothing;
  published: Published | null = null;
  /** Specs that passed their checks, as a new leader finds them. */
  readonly good = new Map<string, EngineSpec>();
  #jobs = new Map<string, { report: JobReport; doneAtMs: number; action: LeaderAction }>();
  #commands: PendingCommand[] = [];
  #commandsEver = 0;
  #ids = 0;

  constructor(hosts: HostReport[], policy: Partial<FleetPolicy> = {}, gateways = 1) {
    this.hosts = hosts;
    this.policy = { ...defaultPolicy, ...policy };
    for (let index = 0; index < gateways; index += 1) {
      const fresh = { seen: null, deaf: false, waiting: [], leases: [], lastUseMs: new Map(), longPrompts: {} };
      this.gateways.push({ id: `g${index}`, ...fresh });
    }
  }

  file(definition: EngineDefinition, hash = 'v1'): void {
    this.specs.set(definition.id, { engineId: definition.id, hash: `${definition.id}-${hash}`, definition });
  }

  request(engineId: string, gateway = this.gateways[0]): void {
    const spec = this.specs.get(engineId);
    const driver = spec?.definition.driver;
    if (gateway === undefined || driver === undefined || driver.type === 'external') return;
    const failedStarts = this.#seenEngine(gateway, engineId)?.failedStarts ?? 0;
    gateway.waiting.push({ engineId, failedStarts, deadlineMs: this.nowMs + driver.startTimeoutMs });
    this.#route(gateway);
  }

  /** Ends one request of an engine; false when none runs. */
  finish(engineId: string): boolean {
    for (const gateway of this.gateways) {
      const at = gateway.leases.findIndex((lease) => lease.engineId === engineId);
      if (at === -1) continue;
      gateway.leases.splice(at, 1);
      gateway.lastUseMs.set(engineId, this.nowMs);
      return true;
    }
    return false;
  }

  command(engineId: string, kind: EngineCommand): void {
    this.#commands.push({ id: String((this.#commandsEver += 1)), engineId, kind });
  }

  crash(container: Container, exitCode = 1): void {
    if (container.state === 'exited') return;
    this.#exit(container, { exitCode });
  }

  /** Another gateway leads from now on, and knows what was published. */
  takeOver(): void {
    this.#jobs = new Map();
    const observed = this.#observe();
    const { published, specs, good, nowMs } = this;
    this.state = inherit({ published, specs, good, observed, nowMs, offsetMs: 0 });
  }

  /** Runs for some time, looking every 100 ms. */
  run(ms: number): void {
    for (const endMs = this.nowMs + ms; this.nowMs < endMs; this.nowMs += 100) this.reconcile();
  }

  /** Runs until something is so; throws when it does not come about. */
  until(what: string, check: () => boolean, withinMs = 120_000): void {
    for (const endMs = this.nowMs + withinMs; this.nowMs < endMs; this.nowMs += 100) {
      this.reconcile();
      if (check()) return;
    }
    throw new Error(`did not come about: ${what}\n${this.said.slice(-40).join('\n')}\n${this.show()}`);
  }

  reconcile(): void {
    this.#progress();
    const jobs = new Map([...this.#jobs].map(([key, { report }]) => [key, report]));
    const observed = this.#observe();
    const facts = {
      nowMs: this.nowMs,
      epochMs: this.epochMs + this.nowMs,
      specs: this.specs,
      observed,
      blind: new Set<never>(),
      hosts: new Map((['docker', 'swarm', 'process'] as const).map((type) => [type, this.hosts])),
      holdings: this.holdings,
      demands: this.gateways.map((gateway) => this.#demand(gateway)),
      commands: this.#commands,
      jobs,
      health: this.#health(),
      loads: this.loads,
      progress: this.progress,
      starts: this.starts,
      newReplicaId: (engineId: string) => `${engineId}#${(this.#ids += 1)}`,
      closing: false,
    };
    const { state, actions, events } = plan(this.state, facts, this.policy);
    this.#commands = [];
    this.said.push(
      ...events.map(({ engineId, text, cause }) => `${this.nowMs} ${engineId}: ${text} ${cause?.kind ?? ''}`),
    );
    this.#publish(state);
    this.#settle();
    for (const action of actions) this.#begin(action);
    for (const gateway of this.gateways) this.#hear(gateway);
    checkDevices(this.live(), this);
  }

  engine(engineId: string) {
    const found = this.published?.engines.find((one) => one.engineId === engineId);
    if (found === undefined) throw new Error(`${engineId} was not published`);
    return found;
  }

  ready(engineId: string): Container[] {
    const ready = this.engine(engineId).replicas.filter(({ state }) => state === 'ready');
    return ready.flatMap(({ id }) => this.containers.get(id) ?? []);
  }

  live(engineId?: string): Container[] {
    const all = [...this.containers.values()].filter(({ state }) => state !== 'exited');
    return engineId === undefined ? all : all.filter((one) => one.engineId === engineId);
  }

  waiting(engineId?: string): number {
    const all = this.gateways.flatMap((gateway) => gateway.waiting);
    return all.filter((one) => engineId === undefined || one.engineId === engineId).length;
  }

  show(): string {
    return showState(this.state);
  }

  #progress(): void {
    for (const container of this.containers.values()) {
      if (!this.#reachable(container.placement.host)) continue;
      if (lacksRoom(container, this.live(), this.swarmGpus)) container.runsAtMs = this.nowMs + startMs;
      if (container.state === 'creating' && this.nowMs >= container.runsAtMs - startMs / 2) {
        container.state = 'running';
        if (lacksMemory(this.live(), this.takes, this.machineMemory)) this.#exit(container, outOfMemory);
      }
      if (container.state === 'stopping' && this.nowMs >= container.goneAtMs)
        this.#exit(container, { stopRequested: true });
    }
    for (const job of this.#jobs.values()) {
      if (job.report.state === 'pending' && this.nowMs >= job.doneAtMs) job.report = this.#finish(job.action);
    }
  }

  #exit(container: Container, how: Partial<ReplicaExit>): void {
    container.state = 'exited';
    container.exit = replicaExit(how);
  }

  #finish(action: LeaderAction): JobReport {
    if (action.type === 'probe_gpus') {
      const uses: GpuUse[] = action.placement.gpuIds.map((gpuId) => {
        const usedBytes = this.remains.get(gpuId) ?? 0;
        const processes = usedBytes > 0 ? ['pid 7 python'] : [];
        return { gpuId, usedBytes, totalBytes: 80 * 2 ** 30, busy: null, processes };
      });
      return { state: 'done', cause: null, uses };
    }
    if (action.type === 'canary') {
      this.canaries.push(action.replicaId);
      return { state: 'done', cause: this.silent.has(action.replicaId) ? failureCause('wedged') : null, uses: null };
    }
    const container = this.containers.get(action.replicaId);
    const isBad = container === undefined || this.bad.has(container.spec.hash);
    if (action.type === 'check')
      return { state: 'done', cause: isBad ? failureCause('canary_failed') : null, uses: null };
    if (container !== undefined && action.type === 'sleep') container.asleep = true;
    if (container !== undefined && action.type === 'wake') container.asleep = false;
    return { state: 'done', cause: null, uses: null };
  }

  #begin(action: LeaderAction): void {
    const key = jobKey(action.type, action.type === 'probe_gpus' ? action.key : action.replicaId);
    if (this.#jobs.has(key)) return;
    this.#jobs.set(key, { report: { state: 'pending' }, doneAtMs: this.nowMs + 100, action });
    if (action.type === 'start') {
      checkRoom(action, this);
      if (this.everStarted.includes(action.replicaId)) throw new Error(`${action.replicaId} was started twice`);
      this.everStarted.push(action.replicaId);
      const { replicaId: id, engineId, spec, placement } = action;
      const runsAtMs = this.nowMs + startMs;
      const fresh = { state: 'creating' as const, goneAtMs: 0, isWell: true, asleep: false, exit: null };
      this.containers.set(id, { id, engineId, spec, placement, runsAtMs, ...fresh });
    }
    if (action.type === 'stop') {
      const container = this.containers.get(action.replicaId);
      if (container === undefined || container.state === 'exited' || container.state === 'stopping') return;
      if (!this.#reachable(container.placement.host)) return;
      container.state = 'stopping';
      container.goneAtMs = this.nowMs + stopMs;
    }
    if (action.type === 'forget') this.containers.delete(action.replicaId);
  }

  #settle(): void {
    for (const [key, { action, report, doneAtMs }] of this.#jobs) {
      if (report.state === 'pending') continue;
      const isOld = this.nowMs >= doneAtMs + 1000;
      const engine = this.state.engines.find(({ id }) => id === action.engineId);
      const replica =
        action.type === 'probe_gpus' ? undefined : engine?.replicas.find(({ id }) => id === action.replicaId);
      const phases: Record<string, string> = { check: 'checking', wake: 'waking', sleep: 'draining' };
      const isNoted =
        action.type === 'start' || action.type === 'canary'
          ? replica === undefined || (action.type === 'start' ? replica.observed : !replica.canaryRuns)
          : action.type in phases
            ? replica?.phase !== phases[action.type]
            : isOld;
      if (isNoted) this.#jobs.delete(key);
    }
  }

  #reachable(host: string): boolean {
    return this.hosts.find(({ name }) => name === host)?.reachable === true;
  }

  #observe(): Map<string, ObservedReplica> {
    const seen = [...this.containers.values()].filter(({ placement }) => this.#reachable(placement.host));
    return new Map(
      seen.map((container) => {
        const { id, engineId, spec, placement, state, exit } = container;
        const noRoom = lacksRoom(container, this.live(), this.swarmGpus);
        const endpoint = { socketPath: null, host: id, port: 1, tls: false, basePath: '' };
        const about = { upstreamModel: null, headerLines: '', forcedUsage: true, kind: 'vllm' };
        const replica = { id, engineId, endpoint, ...about };
        const rest = { specHash: spec.hash, placement, epoch: 1n, state, progress: null, exit, noRoom };
        return [id, { replica, ...rest, health: 'probe' } as ObservedReplica];
      }),
    );
  }

  #health(): Map<string, boolean> {
    return new Map(
      this.live().map((one) => [
        one.id,
        this.#reachable(one.placement.host) && one.state === 'running' && one.isWell && this.nowMs >= one.runsAtMs,
      ]),
    );
  }

  #publish(state: LeaderState): void {
    const engines = publishable(state, 0);
    const isNew = JSON.stringify(engines) !== JSON.stringify(this.published?.engines);
    const version = (this.published?.version ?? 0n) + 1n;
    if (isNew) this.published = { version, epoch: 1n, engines };
    this.state = isNew ? withVersion(state, version) : state;
    for (const { id, lastGood } of state.engines) if (lastGood !== null) this.good.set(id, lastGood);
  }

  #seenEngine({ seen }: Gateway, engineId: string) {
    return seen?.engines.find((engine) => engine.engineId === engineId);
  }

  #hear(gateway: Gateway): void {
    if (!gateway.deaf) gateway.seen = this.published;
    this.#route(gateway);
  }

  /** Routes the requests that wait at a gateway. */
  #route(gateway: Gateway): void {
    gateway.waiting = gateway.waiting.filter((one) => {
      const engine = this.#seenEngine(gateway, one.engineId);
      const target = engine?.replicas.find(({ id, state }) => {
        const container = this.containers.get(id);
        return state === 'ready' && container?.state === 'running' && container.isWell;
      });
      if (target !== undefined) {
        gateway.leases.push({ engineId: one.engineId, replicaId: target.id });
        this.answers.push({ engineId: one.engineId, answer: 'served' });
        this.#checkLease(target.id);
        return false;
      }
      const answer = this.#refusal(engine, one);
      if (answer !== null) this.answers.push({ engineId: one.engineId, answer });
      return answer === null;
    });
  }

  #refusal(engine: ReturnType<World['engine']> | undefined, one: Waiting): string | null {
    const cause = engine?.cause?.kind ?? 'failed';
    const resting = atRest.find((phase) => phase === engine?.phase);
    if (resting !== undefined) return resting;
    if (engine?.phase === 'failed' && (engine.retryAtMs ?? Infinity) > this.nowMs) return cause;
    const failedStarts = engine?.failedStarts ?? 0;
    one.failedStarts = Math.min(one.failedStarts, failedStarts);
    if (failedStarts > one.failedStarts) return cause;
    if (this.nowMs < one.deadlineMs) return null;
    return cause === 'no_room' ? 'no_room' : 'timeout';
  }

  #demand(gateway: Gateway): Demand {
    const engines = Object.fromEntries(
      [...this.specs.keys()].map((engineId) => {
        const waiting = gateway.waiting.filter((one) => one.engineId === engineId).length;
        const leases: Record<string, number> = {};
        for (const lease of gateway.leases.filter((one) => one.engineId === engineId))
          leases[lease.replicaId] = (leases[lease.replicaId] ?? 0) + 1;
        const isUsed = waiting > 0 || Object.keys(leases).length > 0;
        const idleMs = isUsed ? null : this.nowMs - (gateway.lastUseMs.get(engineId) ?? 0);
        return [engineId, { waiting, idleMs, leases, longPrompts: gateway.longPrompts }];
      }),
    );
    return { gatewayId: gateway.id, seenVersion: gateway.seen?.version ?? 0n, engines };
  }

  #checkLease(replicaId: string): void {
    const hash = this.containers.get(replicaId)?.spec.hash ?? '';
    if (this.bad.has(hash)) throw new Error(`${replicaId} took a request although its spec does not pass its checks`);
  }
}
