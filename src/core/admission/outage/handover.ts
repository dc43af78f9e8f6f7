import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '#base/clock.ts';
import type { AdmissionStore } from '#core/admission/redis/redis.ts';

export interface HandoversOptions {
  readonly store: AdmissionStore;
  readonly leaseMs: number;
  readonly clock: Clock;
}

/**
 * Time in milliseconds that a gateway waits for its own turn after another gateway reports that Redis is back, even if
 * it does not see that itself: Redis counts as answering here only some time after the report. Silence that begins
 * later must last as long, because a process that got no CPU for a moment sees silence too.
 */
export const handoverWaitMs = 1000;

/**
 * Organizations that Redis, once it has their data, decides for another gateway, which may spend all that is left. This
 * gateway decides nothing for them then, for the time of a lease, since the other gateway may be gone. If Redis falls
 * silent again, each gateway has its part.
 */
export class Handovers {
  readonly #options: HandoversOptions;
  /** Times on the monotonic clock. The key null stands for every organization. */
  readonly #moments = new Map<string | null, number>();
  readonly #ended = Promise.withResolvers<void>();
  #silentMs = Number.NEGATIVE_INFINITY;

  constructor(options: HandoversOptions) {
    this.#options = options;
  }

  add(organizationId: string | null): void {
    this.#moments.set(organizationId, this.#options.clock.monotonicMs());
  }

  /** Notes that Redis left a call unanswered. */
  silent(): void {
    this.#silentMs = this.#options.clock.monotonicMs();
  }

  has(organizationId: string): boolean {
    const { store, leaseMs, clock } = this.#options;
    const givenMs = this.#givenMs(organizationId);
    if (clock.monotonicMs() - givenMs >= leaseMs) return false;
    return store.redis.answers || this.#waitLeftMs(givenMs) > 0;
  }

  /** Resolves when Redis decides here too, or when that takes too long. */
  async untilHandedBack(organizationId: string): Promise<void> {
    const leftMs = this.#waitLeftMs(this.#givenMs(organizationId));
    // A timer may fire a millisecond early.
    if (leftMs > 0) await Promise.race([this.#ended.promise, sleep(leftMs + 1, undefined, { ref: false })]);
  }

  end(): void {
    this.#ended.resolve();
  }

  #waitLeftMs(givenMs: number): number {
    const { store, clock } = this.#options;
    const sinceMs = store.redis.answers ? givenMs : Math.max(givenMs, this.#silentMs);
    return sinceMs + handoverWaitMs - clock.monotonicMs();
  }

  /** Returns when the organization was given over; negative infinity if it was not. */
  #givenMs(organizationId: string): number {
    const moments = [organizationId, null].flatMap((name) => this.#moments.get(name) ?? []);
    return Math.max(Number.NEGATIVE_INFINITY, ...moments);
  }
}
