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
 * that itself: Redis is known to answer here again only some time after it was told.
 */
export const turnMs = 1000;

/**
 * Organizations that Redis, once it is told, decides of for another gateway, which may give all that is left. Nothing is
 * decided of them here then, for as long as a lease lasts: that gateway may be gone. Where Redis is silent once more,
 * each of them has its part.
 */
export class GivenOver {
  readonly #options: GivenOverOptions;
  /** Moments, on the monotonic clock; under null: of every organization. */
  readonly #moments = new Map<string | null, number>();
  readonly #ended = Promise.withResolvers<void>();

  constructor(options: GivenOverOptions) {
    this.#options = options;
  }

  add(organizationId: string | null): void {
    this.#moments.set(organizationId, this.#options.clock.monotonicMs());
  }

  has(organizationId: string): boolean {
    const { store, leaseMs } = this.#options;
    const forMs = this.#forMs(organizationId);
    return forMs < turnMs || (forMs < leaseMs && store.redis.answers);
  }

  /** Resolves when Redis decides here too, or when that takes too long. */
  async turn(organizationId: string): Promise<void> {
    const leftMs = turnMs - this.#forMs(organizationId);
    // A timer may be a millisecond early.
    if (leftMs > 0) await Promise.race([this.#ended.promise, sleep(leftMs + 1, undefined, { ref: false })]);
  }

  end(): void {
    this.#ended.resolve();
  }

  #forMs(organizationId: string): number {
    const moments = [organizationId, null].flatMap((name) => this.#moments.get(name) ?? []);
    return moments.length === 0 ? Number.POSITIVE_INFINITY : this.#options.clock.monotonicMs() - Math.max(...moments);
  }
}
