import type { Clock } from '#base/clock.ts';

/**
 * Detects locally when another gateway may have taken a claim: `leaseMs` after its last renewal. This works for a
 * gateway that cannot reach the database or was frozen for a while.
 */
export interface Lease {
  /** @param beganMs start of the renewal on the monotonic clock, before the database was called */
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
