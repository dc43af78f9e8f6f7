import type { Clock } from '#base/clock.ts';
import type { EngineKind, ShownEngine } from '#core/catalog/catalog.ts';
import {
  type EngineSpec,
  type FailureCause,
  failureCause,
  needsOperator,
  type ObservedReplica,
  type Replica,
} from '#core/fleet/drivers/drivers.ts';
import { settingsOf } from '#core/fleet/policy.ts';
import type { EngineDemand, PublishedEngine } from '#core/fleet/store/store.ts';
import { kindOf } from './engine-identity.ts';
import type { AcquireRefusal, AcquireResult, Lease } from './lease.ts';
import { createReplicaSet, type ReplicaSet, type ReplicaSlot } from './replica-set.ts';
import { abortError, createWaitQueue, type Fairness, type Tried, type Waiter, type WaitQueue } from './wait-queue.ts';

export interface EngineOptions {
  readonly spec: EngineSpec;
  /** Maximum number of waiting requests. */
  readonly queueMax: number;
  readonly clock: Clock;
  /** Requests a reconciliation soon. */
  readonly wake: () => void;
  /** Called when a replica that was running and healthy no longer is. */
  readonly onLost: (replica: Replica) => void;
}

export interface AcquireOptions {
  readonly signal?: AbortSignal;
  /** Ids of replicas that were tried and could not be reached. */
  readonly exclude?: ReadonlySet<string>;
  /** Weighs the request against others while it waits. */
  readonly fairness?: Fairness;
}

/** Status of an engine for clients; an engine that is being stopped counts as cold. */
export type EngineStatus = 'ready' | 'cold' | 'starting' | 'failed';

type OwnRefusal = Exclude<AcquireRefusal['code'], 'taken_away'>;

const refusalTexts: Record<OwnRefusal, string> = {
  start_failed: 'The engine of this model could not be started.',
  start_timeout: 'The engine of this model did not become ready in time.',
  queue_full: 'Too many requests are waiting for this model to start. Try again later.',
  no_other_replica: 'No other replica of this model is running.',
  shutting_down: 'The gateway is shutting down.',
};
/**
 * Time to wait for the health of a replica that refused a connection. The replica is probed at once. An address that
 * does not answer is found ill after that probe and one that may have been running already. Stays below five seconds,
 * so that a rejection keeps its HTTP status.
 */
const suspicionMs = 4500;
/** Extra wait, so that the leader's own verdict on a late start comes first. */
const verdictMs = 2000;
/** Retry-After of an engine that failed too often: it is not restarted before a command or a changed file. */
const givenUpRetryMs = 60_000;

/** One engine as this gateway routes to it: leases replicas that are published as ready and found healthy. */
export class Engine {
  readonly replicas: ReplicaSet;
  spec: EngineSpec;
  /** True if no file has the engine any more. */
  isRetired = false;
  /** null until a leader has published the engine. */
  published: PublishedEngine | null = null;
  readonly #clock: Clock;
  readonly #wake: () => void;
  readonly #queue: WaitQueue;
  #idleSinceMs: number;
  #closing = false;

  constructor({ spec, queueMax, clock, wake, onLost }: EngineOptions) {
    this.spec = spec;
    this.#clock = clock;
    this.#wake = wake;
    this.#queue = createWaitQueue(queueMax);
    this.#idleSinceMs = clock.monotonicMs();
    this.replicas = createReplicaSet({ onLeases: (slot) => this.#onLeases(slot), onLost });
  }

  /** Returns the published state, without the parts that a changed file has made obsolete. */
  get current(): PublishedEngine | null {
    const { published } = this;
    if (published === null || published.specHash === this.spec.hash) return published;
    const phase = published.phase === 'failed' ? 'stopped' : published.phase;
    return { ...published, phase, cause: null, retryAtMs: null, rollout: null };
  }

  /**
   * Returns the kind of the file, or for an external engine whose file names none the kind that its servers show. A
   * server that is no vLLM may reject what vLLM needs, so all of them must be vLLM.
   */
  get kind(): EngineKind {
    const { driver, kind } = this.spec.definition;
    if (driver.type !== 'external' || !driver.findsKind) return kind;
    const found = this.replicas.all().flatMap(({ identity }) => (identity ? [kindOf(identity)] : []));
    return found.length > 0 && found.every((one) => one === 'vllm') ? 'vllm' : kind;
  }

  /** Returns what the engine shows of itself. */
  get shown(): ShownEngine {
    const versions = this.replicas.all().flatMap(({ identity }) => identity?.version ?? []);
    const [version = null] = versions.toSorted((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    return { kind: this.kind, version };
  }

  /** True for an external engine none of whose addresses answers this gateway's probes. */
  isSilent(): boolean {
    const slots = this.replicas.all();
    return (
      slots.length > 0 && slots.every(({ observed, healthy }) => observed.health === 'watched' && healthy === false)
    );
  }

  status(): EngineStatus {
    // Requests are still sent to a silent engine: it may answer again.
    if (this.isSilent()) return 'failed';
    if (this.replicas.routable().length > 0) return 'ready';
    switch (this.current?.phase) {
      case 'ready':
      case 'starting':
        return 'starting';
      case 'failed':
      case 'held':
      case 'off':
        return 'failed';
      default:
        return 'cold';
    }
  }

  /** Returns null if no replica outside `exclude` is ready. */
  tryAcquire(exclude?: ReadonlySet<string>): Lease | null {
    const slot = this.#closing ? undefined : this.replicas.pick(exclude);
    return slot === undefined ? null : this.replicas.lease(slot.replica.id, false);
  }

  tryAcquireReplica(replicaId: string): Lease | null {
    return this.#closing ? null : this.replicas.lease(replicaId, false);
  }

  /** Acquires a lease, waiting for a start if needed. Rejects when the signal aborts. */
  async acquire({ signal, exclude, fairness }: AcquireOptions): Promise<AcquireResult> {
    if (signal?.aborted === true) throw abortError(signal);
    if (this.#closing) return this.#refusal('shutting_down');
    const lease = this.tryAcquire(exclude);
    if (lease !== null) return { ok: true, lease };
    // External engines are never replaced by another start, so waiting would be in vain.
    if (this.#isTried(exclude, ({ observed }) => observed.health !== 'probe')) {
      return this.#refusal('no_other_replica');
    }
    const refused = this.#hopeless();
    if (refused !== null) return refused;
    if (this.#queue.isFull()) return this.#refusal('queue_full');
    const { startTimeoutMs } = settingsOf(this.spec.definition);
    const nowMs = this.#clock.monotonicMs();
    const tried = exclude === undefined ? null : { ids: exclude, sinceMs: nowMs, untilMs: nowMs + suspicionMs };
    const waiter: Waiter = {
      deadlineMs: nowMs + startTimeoutMs + verdictMs,
      failedStarts: this.published?.failedStarts ?? 0,
      tried,
    };
    const answer = this.#queue.join(waiter, fairness, signal);
    this.#wake();
    if (tried !== null) setTimeout(() => this.serve(), suspicionMs).unref();
    return answer;
  }

  waiting(): number {
    return this.#queue.size();
  }

  demand(): EngineDemand {
    const waiting = this.#queue.size();
    const isUsed = waiting > 0 || this.replicas.leases() > 0;
    const idleMs = isUsed ? null : Math.round(this.#clock.monotonicMs() - this.#idleSinceMs);
    return { waiting, idleMs, leases: this.replicas.leasesByReplica(), longPrompts: this.replicas.longPrompts() };
  }

  takeObserved(observed: readonly ObservedReplica[], keep: (slot: ReplicaSlot) => boolean): void {
    this.replicas.takeObserved(observed, keep);
    this.serve();
  }

  takePublished(published: PublishedEngine | null): void {
    this.published = published;
    this.replicas.takePublished(published?.replicas ?? []);
    this.serve();
    if (published === null || this.#queue.size() === 0) return;
    this.#queue.answerAll((waiter) => this.#verdict(published, waiter));
  }

  /** Records that a replica that could not be reached is healthy after all. */
  takeCleared(replicaId: string): void {
    this.replicas.setCleared(replicaId, this.#clock.monotonicMs());
    this.serve();
  }

  /** Gives waiting requests the available replicas, and ends the wait of those whose time is over. */
  serve(): void {
    if (this.#queue.size() === 0) return;
    const nowMs = this.#clock.monotonicMs();
    this.#queue.answerAll((waiter) => {
      const slot = this.replicas.pick(waiter.tried?.ids);
      const lease = slot === undefined ? null : this.replicas.lease(slot.replica.id, true);
      if (lease !== null) return { ok: true, lease };
      // The tried replica is healthy after all, and there is no other.
      if (waiter.tried !== null && this.#isInVain(waiter.tried, nowMs)) return this.#refusal('no_other_replica');
      if (nowMs < waiter.deadlineMs) return null;
      const cause = this.published?.cause ?? null;
      return cause?.kind === 'no_room' ? this.#failure(cause, 0) : this.#refusal('start_timeout');
    });
  }

  /** Refuses all waiting and future requests. */
  beginClosing(): void {
    this.#closing = true;
    this.#queue.answerAll(() => this.#refusal('shutting_down'));
  }

  takeSpec(spec: EngineSpec): void {
    this.spec = spec;
    this.isRetired = false;
  }

  retire(): void {
    this.isRetired = true;
    this.#queue.answerAll(() => this.#refusal('start_failed'));
  }

  /** Returns the median of the last measured start times in milliseconds; null before the first start. */
  startMs(): number | null {
    const times = (this.published?.startTimesMs ?? []).toSorted((a, b) => a - b);
    return times[Math.floor(times.length / 2)] ?? null;
  }

  /** Returns the refusal for an engine that cannot start now; null if waiting makes sense. */
  #hopeless(): AcquireResult | null {
    const { current: published } = this;
    if (isAtRest(published)) return this.#failure(failureCause(published.phase), 0);
    if (published?.phase !== 'failed' || published.cause === null) return null;
    const nextTryMs = this.#nextTryMs(published);
    return nextTryMs > 0 ? this.#failure(published.cause, nextTryMs) : null;
  }

  #verdict(published: PublishedEngine, waiter: Waiter): AcquireResult | null {
    if (isAtRest(published)) return this.#failure(failureCause(published.phase), 0);
    if (published.failedStarts < waiter.failedStarts) waiter.failedStarts = published.failedStarts;
    if (published.failedStarts === waiter.failedStarts) return null;
    return this.#failure(published.cause ?? failureCause('crashed'), this.#nextTryMs(published));
  }

  /** Returns the milliseconds until the leader itself retries the start; below zero if that time has passed. */
  #nextTryMs({ retryAtMs }: PublishedEngine): number {
    return retryAtMs === null ? givenUpRetryMs : retryAtMs - this.#clock.now();
  }

  /** True if a tried replica stays in use: it was found healthy since, or was not found ill in time. */
  #isInVain({ ids, sinceMs, untilMs }: Tried, nowMs: number): boolean {
    if (nowMs >= untilMs) return this.#isTried(ids);
    return this.#isTried(ids, ({ clearedAtMs }) => clearedAtMs !== null && clearedAtMs >= sinceMs);
  }

  /** True if a tried replica still gets requests and meets the condition. */
  #isTried(ids: ReadonlySet<string> | undefined, isSo: (slot: ReplicaSlot) => boolean = () => true): boolean {
    return ids !== undefined && this.replicas.routable().some((slot) => ids.has(slot.replica.id) && isSo(slot));
  }

  #onLeases(slot: ReplicaSlot): void {
    if (this.replicas.leases() === 0) this.#idleSinceMs = this.#clock.monotonicMs();
    // A drain waits for the last lease.
    if (slot.leases === 0 && slot.published !== 'ready') this.#wake();
  }

  #failure(cause: FailureCause, nextTryMs: number): AcquireResult {
    const retryAfterSeconds = needsOperator(cause) ? null : wholeSeconds(nextTryMs);
    const code = cause.kind === 'timeout' ? 'start_timeout' : 'start_failed';
    return { ok: false, refusal: { code, publicText: cause.publicText, retryAfterSeconds } };
  }

  #refusal(code: OwnRefusal): AcquireResult {
    const { published } = this;
    const elapsedMs = published?.phase === 'starting' ? this.#clock.now() - published.sinceMs : 0;
    const waitMs = (this.startMs() ?? 0) - elapsedMs;
    return { ok: false, refusal: { code, publicText: refusalTexts[code], retryAfterSeconds: wholeSeconds(waitMs) } };
  }
}

/** True if requests do not start the engine: a command or its schedule keeps it from running. */
function isAtRest(published: PublishedEngine | null): published is PublishedEngine & { phase: 'held' | 'off' } {
  return published?.phase === 'held' || published?.phase === 'off';
}

function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
