import { FairQueue } from '#base/queues/queues.ts';
import type { AcquireRefusal, EngineLoad, Fleet, Lease, LoadReport } from '#core/fleet/fleet.ts';
import type { Affinity } from './engine-router.ts';

/**
 * Requests of the tier `flex` for one model. They run only while the engine has no waiting requests and fewer requests
 * than its file's `max_concurrent`; default traffic never waits in this queue. The number of flex requests that fit is
 * unknown and changes, so the queue finds it by trying: the window grows until the engine has waiting requests. The
 * engine's running requests are then its capacity, and for a while flex leaves a part of it free, so that a default
 * request finds room at once. The engine is polled only while requests wait here.
 */

/** A request that waits for its turn among the requests of other keys. */
export interface WaitingRequest {
  readonly keyId: string;
  /** Expected tokens, input and output together. */
  readonly tokens: number;
  readonly signal: AbortSignal;
  /** Ids of replicas that were unreachable. */
  readonly exclude?: ReadonlySet<string>;
}

export interface FlexRequest extends WaitingRequest {
  readonly affinity?: Affinity;
}

export interface FlexQueueOptions {
  readonly fleet: Fleet;
  readonly engineId: string;
  /** Maximum number of waiting requests. */
  readonly queueMax: number;
  /** Returns a lease on a ready replica for the request; null if no replica is ready. */
  readonly acquire: (request: FlexRequest) => Lease | null;
}

/** The lease of a flex request. */
export interface FlexLease {
  readonly lease: Lease;
  /** Reports that the request has ended; the lease is released separately. Calls after the first do nothing. */
  done(tokens: number): void;
}

export type FlexRefusal = AcquireRefusal | (Omit<AcquireRefusal, 'code'> & { readonly code: 'flex_queue_full' });

export type FlexResult =
  | { readonly ok: true; readonly flexLease: FlexLease }
  | { readonly ok: false; readonly refusal: FlexRefusal };

interface Waiter {
  readonly request: FlexRequest;
  readonly answer: (result: FlexResult) => void;
}

const notStarted: FlexRefusal = {
  code: 'start_failed',
  publicText: 'The engine of this model could not be started.',
  retryAfterSeconds: 1,
};
const pollMs = 100;
const windowMax = 100_000;
const windowStepMax = 8;
const capacityKeptMs = 30_000;
/** One in this many leases is left free for default requests. */
const spareShare = 8;
/** Number of failed load queries after which an engine with unknown load gets requests again, as a test. */
const unknownsMax = 10;

export class FlexQueue {
  readonly #fleet: Fleet;
  readonly #engineId: string;
  readonly #queueMax: number;
  readonly #acquire: FlexQueueOptions['acquire'];
  readonly #queue = new FairQueue<Waiter>();
  #polling = false;
  #running = 0;
  #window = 1;
  /** Requests that the engine ran when it was full; null before that, and when it is time to try again. */
  #capacity: number | null = null;
  #capacityUntilMs = 0;
  /** The engine counts as full until its load is read for the first time. */
  #full = true;
  #unknowns = 0;
  /** Cancels the wait for an engine start when no request waits any more. */
  #starting: AbortController | null = null;
  #grantedMs = 0;
  #grantEveryMs = 1000;

  constructor({ fleet, engineId, queueMax, acquire }: FlexQueueOptions) {
    this.#fleet = fleet;
    this.#engineId = engineId;
    this.#queueMax = queueMax;
    this.#acquire = acquire;
  }

  /** Adds a request to the queue. Rejects when the signal aborts. */
  join(request: FlexRequest): Promise<FlexResult> {
    if (this.#queue.size >= this.#queueMax) return Promise.resolve({ ok: false, refusal: this.#queueFull() });
    const { keyId, tokens, signal } = request;
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        request,
        answer: (result) => {
          signal.removeEventListener('abort', leave);
          resolve(result);
        },
      };
      const leave = (): void => {
        this.#queue.remove(keyId, waiter);
        if (this.#queue.size === 0) this.#starting?.abort();
        reject(new Error('The flex request was canceled while it waited for an engine.'));
      };
      if (signal.aborted) {
        reject(new Error('The flex request was canceled while it waited for an engine.'));
        return;
      }
      signal.addEventListener('abort', leave, { once: true });
      this.#queue.add(keyId, tokens, waiter);
      if (!this.#polling) void this.#poll();
    });
  }

  #queueFull(): FlexRefusal {
    const retryAfterSeconds = Math.max(1, Math.ceil(this.#grantEveryMs / 1000));
    return {
      code: 'flex_queue_full',
      publicText: 'Too many flex requests wait for this model. Try again later.',
      retryAfterSeconds,
    };
  }

  /** Polls the engine's load until no request waits. */
  async #poll(): Promise<void> {
    this.#polling = true;
    // The state from the last wait is outdated.
    this.#full = true;
    while (this.#queue.size > 0) {
      if (this.#fleet.status(this.#engineId) === 'ready') {
        this.#learn(await this.#fleet.readLoad(this.#engineId));
        this.#serve();
        if (this.#queue.size > 0) await new Promise((resolve) => setTimeout(resolve, pollMs));
      } else await this.#start();
    }
    this.#polling = false;
  }

  /** Acquires one lease, waiting for the start as default requests do; the others use the engine once it runs. */
  async #start(): Promise<void> {
    const starting = new AbortController();
    this.#starting = starting;
    try {
      const result = await this.#fleet.acquire(this.#engineId, { signal: starting.signal });
      if (result.ok) this.#give(result.lease);
      else this.#refuseAll(result.refusal);
    } catch {
      // If aborted, all waiting requests have left. Any other error must not repeat endlessly.
      if (!starting.signal.aborted) this.#refuseAll(notStarted);
    } finally {
      this.#starting = null;
    }
  }

  #refuseAll(refusal: FlexRefusal): void {
    for (let next = this.#queue.take(); next !== null; next = this.#queue.take()) {
      const { keyId, tokens } = next.request;
      this.#queue.correct(keyId, -tokens);
      next.answer({ ok: false, refusal });
    }
  }

  #learn(report: LoadReport): void {
    this.#unknowns = report === 'unknown' ? this.#unknowns + 1 : 0;
    if (report === 'unknown') this.#full = this.#unknowns < unknownsMax;
    else if (report === 'none') {
      this.#full = false;
      this.#window = windowMax;
    } else this.#feel(report);
  }

  #feel({ running, waiting }: EngineLoad): void {
    const nowMs = performance.now();
    this.#full = waiting > 0;
    if (this.#full) {
      this.#capacity = running;
      this.#capacityUntilMs = nowMs + capacityKeptMs;
      this.#window = Math.max(1, this.#running - waiting);
      return;
    }
    if (nowMs > this.#capacityUntilMs) this.#capacity = null;
    if (this.#capacity !== null) {
      const spare = Math.ceil(this.#capacity / spareShare);
      // The engine may not yet count requests just sent, or may still count finished ones: neither is free room.
      const others = Math.max(0, running - this.#running, this.#fleet.leases(this.#engineId) - this.#running);
      this.#window = Math.max(1, this.#capacity - spare - others);
    } else if (this.#running >= this.#window) {
      this.#window = Math.min(windowMax, this.#window * 2, this.#window + windowStepMax);
    }
  }

  #hasRoom(): boolean {
    if (this.#full || this.#running >= this.#window) return false;
    const max = this.#fleet.concurrencyMax(this.#engineId);
    return max === null || this.#fleet.leases(this.#engineId) < max;
  }

  #serve(): void {
    for (let next = this.#queue.peek(); next !== null && this.#hasRoom(); next = this.#queue.peek()) {
      const lease = this.#acquire(next.request);
      if (lease === null) return;
      this.#give(lease);
    }
  }

  #give(lease: Lease): void {
    const next = this.#queue.take();
    if (next === null) {
      lease.release();
      return;
    }
    this.#running += 1;
    const nowMs = performance.now();
    if (this.#grantedMs > 0) this.#grantEveryMs += (Math.min(60_000, nowMs - this.#grantedMs) - this.#grantEveryMs) / 8;
    this.#grantedMs = nowMs;
    let held = true;
    const { keyId, tokens: expected } = next.request;
    const done = (tokens: number): void => {
      if (!held) return;
      held = false;
      this.#running -= 1;
      this.#queue.correct(keyId, tokens - expected);
      this.#serve();
    };
    next.answer({ ok: true, flexLease: { lease, done } });
  }
}
