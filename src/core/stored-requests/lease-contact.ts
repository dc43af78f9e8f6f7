import type { Clock } from '#base/clock.ts';

/**
 * Decides whether an expired lease means that its holder is dead. If the database was unavailable to this gateway too,
 * all leases are expired afterwards: holders get one lease time to renew them.
 */
export class LeaseContact {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  /** Monotonic milliseconds: the start of the period without a missed renewal, and the start of the last renewal. */
  #sinceMs = Number.POSITIVE_INFINITY;
  #lastMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  /** Must be called before leases are renewed, three times per lease. */
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
