import type { Clock } from '#base/clock.ts';

/**
 * Whether a lease that is over says that its holder is gone. Where the database was away from this gateway as well, all
 * leases are over when it is back: their holders get as long as a lease lasts to renew them.
 */
export class LeaseContact {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  /** Monotonic milliseconds: since when every renewal was answered, and when the last of them began. */
  #sinceMs = Number.POSITIVE_INFINITY;
  #lastMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  /** To be called before leases are renewed, three times in a lease. */
  begin(): number {
    return this.#clock.monotonicMs();
  }

  answered(beganMs: number): void {
    if (beganMs - this.#lastMs > this.#leaseMs / 2) this.#sinceMs = this.#clock.monotonicMs();
    this.#lastMs = beganMs;
  }

  get mayTakeOver(): boolean {
    const nowMs = this.#clock.monotonicMs();
    return nowMs - this.#sinceMs >= this.#leaseMs && nowMs - this.#lastMs <= this.#leaseMs;
  }
}
