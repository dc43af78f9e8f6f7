import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDriver, EngineSpec, ObservedReplica } from './driver.ts';
import {
  dueAtMs,
  type EngineAction,
  type EngineFacts,
  type EnginePhase,
  type EnginePolicy,
  type EngineState,
  initialState,
  step,
} from './engine-state.ts';
import { type LoadReport, readLoad, sumLoads } from './engine-load.ts';
import { isHealthy, probeHealth } from './health.ts';
import type { AcquireRefusal, AcquireResult, Lease } from './lease.ts';
import { createReplicaSet, type ReplicaSet, type ReplicaSlot } from './replica-set.ts';
import { explainExit, type FailureCause, failureCause } from './start-failure.ts';
import { abortError, createWaitQueue, type WaitQueue } from './wait-queue.ts';

export interface EngineOptions {
  readonly spec: EngineSpec;
  readonly driver: EngineDriver;
  readonly policy: EnginePolicy;
  /** Requests that may wait at once. */
  readonly queueMax: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Asks for a reconcile soon. */
  readonly wake: () => void;
}

export interface EngineSnapshot {
  readonly phase: EnginePhase;
  /** Monotonic milliseconds. */
  readonly sinceMs: number;
  readonly cause: FailureCause | null;
  readonly lastStartMs: number | null;
  readonly leases: number;
  readonly waiting: number;
  readonly replicaIds: readonly string[];
}

export interface AcquireOptions {
  readonly signal?: AbortSignal;
  readonly exclude?: ReadonlySet<string>;
}

/** Quick engines are ready at once; slow ones are not worth asking more often. */
const probeEarlyMs = 50;
const probeLateMs = 500;
const probeEarlyForMs = 3000;
/** Guards against states that follow each other for ever. */
const stepsMax = 8;

const refusalTexts: Record<AcquireRefusal['code'], string> = {
  start_failed: 'The engine of this model could not be started.',
  start_timeout: 'The engine of this model was not ready in time.',
  queue_full: 'Too many requests are waiting for this model to start.',
  no_other_replica: 'No other copy of this model is running.',
  shutting_down: 'The gateway is shutting down.',
};

/** One engine of the fleet: carries out what `step` decides, and gives out leases on the replicas. */
export class Engine {
  readonly spec: EngineSpec;
  readonly driver: EngineDriver;
  private readonly policy: EnginePolicy;
  private readonly clock: Clock;
  private readonly log: Log;
  private readonly wake: () => void;
  private readonly replicas: ReplicaSet;
  private readonly queue: WaitQueue;
  private state: EngineState;
  private idleSinceMs: number | null;
  private closing = false;
  /** When the start that is under way began; null when this gateway began none. */
  private startedAtMs: number | null = null;
  private lastStartMs: number | null = null;

  constructor({ spec, driver, policy, queueMax, clock, log, wake }: EngineOptions) {
    this.spec = spec;
    this.driver = driver;
    this.policy = policy;
    this.clock = clock;
    this.log = log;
    this.wake = wake;
    this.queue = createWaitQueue(queueMax);
    this.replicas = createReplicaSet((leases) => this.onLeases(leases));
    this.state = initialState(clock.monotonicMs());
    this.idleSinceMs = clock.monotonicMs();
  }

  phase(): EnginePhase {
    return this.state.phase;
  }

  /** Null when nothing is ready outside `exclude`. */
  tryAcquire(exclude?: ReadonlySet<string>): Lease | null {
    if (this.state.phase !== 'ready') return null;
    const slot = this.replicas.pick(exclude);
    return slot === undefined ? null : this.replicas.lease(slot, false);
  }

  /** Waits for a start where that is needed; rejects when the signal aborts. */
  async acquire({ signal, exclude }: AcquireOptions): Promise<AcquireResult> {
    if (signal?.aborted === true) throw abortError(signal);
    if (this.closing) return this.refusal('shutting_down');
    const lease = this.tryAcquire(exclude);
    if (lease !== null) return { ok: true, lease };
    // Who comes with exclusions has tried one already: another may serve it, but it does not wait for a start.
    if (exclude !== undefined && exclude.size > 0) return this.refusal('no_other_replica');
    if (this.queue.isFull()) return this.refusal('queue_full');
    const answer = this.queue.join(signal);
    this.wake();
    return answer;
  }

  leases(): number {
    return this.replicas.leases();
  }

  /** Asks its replicas what they have to do. */
  async readLoad(): Promise<LoadReport> {
    const healthy = this.replicas.all().filter((slot) => slot.healthy);
    return sumLoads(await Promise.all(healthy.map(({ replica }) => readLoad(replica.endpoint))));
  }

  /** Probes a replica now; false when this engine has none of that id. */
  reportUnreachable(replicaId: string): boolean {
    const slot = this.replicas.get(replicaId);
    if (slot === undefined) return false;
    if (!slot.probing) void this.probe(slot);
    return true;
  }

  /** Compares what should be with what the driver observed, and acts. Not to be called again before it has ended. */
  async reconcile(observed: readonly ObservedReplica[]): Promise<void> {
    let crash: FailureCause | null = null;
    for (const { replica, exit } of this.replicas.takeOver(observed)) {
      crash = explainExit(exit);
      const { exitCode, signal, spawnErrorCode } = exit;
      const fields = {
        engine: this.spec.engineId,
        replica: replica.id,
        cause: crash.kind,
        exitCode,
        signal,
        spawnErrorCode,
      };
      this.log.warn(fields, 'an engine ended unasked');
    }
    for (let count = 0; count < stepsMax; count += 1) {
      const before = this.state;
      const { state, actions } = step(before, this.facts(crash), this.policy);
      crash = null;
      this.state = state;
      if (state.phase !== before.phase) this.onPhase(before);
      for (const action of actions) crash = (await this.perform(action)) ?? crash;
      if (state === before && crash === null) break;
    }
    this.probeDue();
  }

  /** Monotonic milliseconds at which it must be looked at again; Infinity when time alone changes nothing. */
  dueAtMs(): number {
    const probes = this.unprobed().map(({ probeAtMs }) => probeAtMs);
    return Math.min(dueAtMs(this.state, this.facts(null), this.policy), ...probes);
  }

  /** Refuses all that wait and will come; the next reconciles drain and stop it. */
  beginClosing(): void {
    this.closing = true;
    this.queue.answerAll(() => this.refusal('shutting_down'));
  }

  snapshot(): EngineSnapshot {
    return {
      phase: this.state.phase,
      sinceMs: this.state.sinceMs,
      cause: this.state.phase === 'failed' ? this.state.cause : null,
      lastStartMs: this.lastStartMs,
      leases: this.replicas.leases(),
      waiting: this.queue.size(),
      replicaIds: this.replicas.all().map(({ replica }) => replica.id),
    };
  }

  private facts(crash: FailureCause | null): EngineFacts {
    return {
      nowMs: this.clock.monotonicMs(),
      leases: this.replicas.leases(),
      waiting: this.queue.size(),
      idleSinceMs: this.idleSinceMs,
      replicasRunning: this.replicas.count('running'),
      replicasStopping: this.replicas.count('stopping'),
      healthy: this.replicas.hasHealthy(),
      crash,
      closing: this.closing,
    };
  }

  private onLeases(leases: number): void {
    this.idleSinceMs = leases > 0 ? null : this.clock.monotonicMs();
    // A drain waits for the last lease.
    if (leases === 0 && this.state.phase === 'draining') this.wake();
  }

  /** Returns a cause when the driver could not even begin. */
  private async perform(action: EngineAction): Promise<FailureCause | null> {
    switch (action.type) {
      case 'run':
        this.startedAtMs = this.clock.monotonicMs();
        return this.apply(1);
      case 'stop':
        for (const slot of this.replicas.all()) slot.healthy = false;
        await this.apply(0);
        return null;
      case 'serve':
        this.queue.answerAll(() => {
          const slot = this.replicas.pick(undefined);
          if (slot === undefined) return this.refusal('start_failed');
          return { ok: true, lease: this.replicas.lease(slot, true) };
        });
        return null;
      case 'refuse':
        this.queue.answerAll(() => this.failure(action.cause, action.retryAtMs));
        return null;
    }
  }

  private async apply(count: number): Promise<FailureCause | null> {
    try {
      await this.driver.apply(this.spec, count);
      // What this changed is to be observed at once.
      this.wake();
      return null;
    } catch (error) {
      this.log.error({ engine: this.spec.engineId, count, err: error }, 'a driver could not change an engine');
      return failureCause('spawn_failed');
    }
  }

  private onPhase(before: EngineState): void {
    const { state } = this;
    const fields = { engine: this.spec.engineId, from: before.phase, to: state.phase };
    if (state.phase === 'failed') this.log.warn({ ...fields, cause: state.cause.kind }, 'an engine failed');
    else this.log.info(fields, 'an engine changed its state');
    if (state.phase !== 'ready') return;
    const nowMs = this.clock.monotonicMs();
    // Counted from now and not from the last request: all who waited may have left.
    if (this.replicas.leases() === 0) this.idleSinceMs = nowMs;
    if (this.startedAtMs !== null) this.lastStartMs = nowMs - this.startedAtMs;
    this.startedAtMs = null;
  }

  private failure(cause: FailureCause, retryAtMs: number): AcquireResult {
    const code = cause.kind === 'timeout' ? 'start_timeout' : 'start_failed';
    const retryAfterSeconds = wholeSeconds(retryAtMs - this.clock.monotonicMs());
    return { ok: false, refusal: { code, publicText: cause.publicText, retryAfterSeconds } };
  }

  private refusal(code: AcquireRefusal['code']): AcquireResult {
    const elapsedMs = this.clock.monotonicMs() - this.state.sinceMs;
    const waitMs = this.state.phase === 'starting' && this.lastStartMs !== null ? this.lastStartMs - elapsedMs : 0;
    return { ok: false, refusal: { code, publicText: refusalTexts[code], retryAfterSeconds: wholeSeconds(waitMs) } };
  }

  private unprobed(): ReplicaSlot[] {
    if (this.state.phase !== 'starting') return [];
    return this.replicas
      .all()
      .filter(({ healthy, probing, observed }) => !healthy && !probing && observed.state === 'running');
  }

  private probeDue(): void {
    const nowMs = this.clock.monotonicMs();
    for (const slot of this.unprobed()) if (slot.probeAtMs <= nowMs) void this.probe(slot);
  }

  private async probe(slot: ReplicaSlot): Promise<void> {
    slot.probing = true;
    const status = await probeHealth(slot.replica.endpoint);
    slot.probing = false;
    const nowMs = this.clock.monotonicMs();
    slot.probeAtMs = nowMs + (nowMs - this.state.sinceMs < probeEarlyForMs ? probeEarlyMs : probeLateMs);
    if (slot.observed.health === 'assumed') {
      if (status === null) this.log.warn({ engine: this.spec.engineId }, 'an external engine cannot be reached');
      return;
    }
    if (slot.observed.state === 'running') slot.healthy = isHealthy(status, slot.replica.kind);
    this.wake();
  }
}

function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
