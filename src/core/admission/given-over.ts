import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '#base/clock.ts';
import type { AdmissionStore } from './admission-store.ts';

export interface GivenOverOptions {
  readonly store: AdmissionStore;
  readonly leaseMs: number;
  readonly clock: Clock;
}

/**
 * A gateway that hears from another one that Redis is back waits so long for its own turn, also where it does not see
 * that itself: Redis is known to answer here again only some time after it was told. Silence that begins later must last
 * as long: a process that got no processor for a moment sees it too.
 */
export const turnMs = 1000;

/**
 * Organizations that Redis, once it is told, decides of for another gateway, which may give all that is left. Nothing is
 * decided of them here then, for as long as a lease lasts: that gateway may be gone. Where Redis stays silent once more,
 * each of them has its part.
 */
export class GivenOver {
  readonly #options: GivenOverOptions;
  /** Moments, on the monotonic clock; under null: of every organization. */
  readonly #moments = new Map<string | null, number>();
  readonly #ended = Promise.withResolvers<void>();
  #silentMs = Number.NEGATIVE_INFINITY;

  constructor(options: GivenOverOptions) {
    this.#options = options;
  }

  add(organizationId: string | null): void {
    this.#moments.set(organizationId, this.#options.clock.monotonicMs());
  }

  /** Redis has left something unanswered. */
  silent(): void {
    this.#silentMs = this.#options.clock.monotonicMs();
  }

  has(organizationId: string): boolean {
    const { store, leaseMs, clock } = this.#options;
    const givenMs = this.#givenMs(organizationId);
    if (clock.monotonicMs() - givenMs >= leaseMs) return false;
    return store.redis.answers || this.#turnLeftMs(givenMs) > 0;
  }

  /** Resolves when Redis decides here too, or when that takes too long. */
  async turn(organizationId: string): Promise<void> {
    const leftMs = this.#turnLeftMs(this.#givenMs(organizationId));
    // A timer may be a millisecond early.
    if (leftMs > 0) await Promise.race([this.#ended.promise, sleep(leftMs + 1, undefined, { ref: false })]);
  }

  end(): void {
    this.#ended.resolve();
  }

  #turnLeftMs(givenMs: number): number {
    const { store, clock } = this.#options;
    const sinceMs = store.redis.answers ? givenMs : Math.max(givenMs, this.#silentMs);
    return sinceMs + turnMs - clock.monotonicMs();
  }

  /** When it was told; long ago where it was not. */
  #givenMs(organizationId: string): number {
    const moments = [organizationId, null].flatMap((name) => this.#moments.get(name) ?? []);
    return Math.max(Number.NEGATIVE_INFINITY, ...moments);
  }
}
