import type { Clock } from '#base/clock.ts';

/**
 * Knows without asking anybody when a claim may be another gateway's: as long after it was last renewed as it lasts. A
 * gateway that cannot reach the database, or did not run for a while, finds out so.
 */
export interface Lease {
  /** @param beganMs on the monotonic clock, from before the database was asked */
  renewed(beganMs: number): void;
  end(): void;
}

export interface LeaseOptions {
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly onOver: () => void;
}

export function createLease({ clock, leaseMs, onOver }: LeaseOptions, beganMs: number): Lease {
  let timer: NodeJS.Timeout | undefined;
  const renewed = (sinceMs: number): void => {
    clearTimeout(timer);
    timer = setTimeout(onOver, Math.max(0, sinceMs + leaseMs - clock.monotonicMs())).unref();
  };
  renewed(beganMs);
  return { renewed, end: () => clearTimeout(timer) };
}
