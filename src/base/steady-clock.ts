import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

export interface SteadyClockOptions {
  /** The machine's. */
  readonly clock: Clock;
  /** What another clock says that can be asked, such as the database's, in milliseconds since the Unix epoch. */
  readonly askTime: () => Promise<number>;
  readonly log: Log;
}

/** What a clock is set by while it runs is less. */
const jumpMs = 1000;
/** Between two questions while the machine's clock says something else. */
const askAgainMs = 5000;

/**
 * A clock that goes on where the machine's jumps, by what has passed. Whether the machine was right before or is right
 * now says another clock: this one follows the jump when that one agrees, and not before.
 */
export function createSteadyClock(options: SteadyClockOptions): Clock {
  return new SteadyClock(options);
}

class SteadyClock implements Clock {
  readonly #options: SteadyClockOptions;
  /** Time of day less monotonic time. */
  #offsetMs: number;
  #isAsking = false;
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(options: SteadyClockOptions) {
    this.#options = options;
    this.#offsetMs = options.clock.now() - options.clock.monotonicMs();
  }

  now(): number {
    const { clock } = this.#options;
    const machineMs = clock.now();
    const monotonicMs = clock.monotonicMs();
    if (Math.abs(machineMs - monotonicMs - this.#offsetMs) < jumpMs) {
      this.#offsetMs = machineMs - monotonicMs;
      return machineMs;
    }
    if (!this.#isAsking && monotonicMs - this.#askedMs >= askAgainMs) void this.#ask();
    return Math.floor(monotonicMs + this.#offsetMs);
  }

  monotonicMs(): number {
    return this.#options.clock.monotonicMs();
  }

  async #ask(): Promise<void> {
    const { clock, askTime, log } = this.#options;
    this.#isAsking = true;
    this.#askedMs = clock.monotonicMs();
    try {
      const otherMs = await askTime();
      const machineMs = clock.now();
      const monotonicMs = clock.monotonicMs();
      const hereMs = monotonicMs + this.#offsetMs;
      const isFollowed = Math.abs(otherMs - machineMs) < Math.abs(otherMs - hereMs);
      const byMs = Math.round(machineMs - hereMs);
      log.warn({ byMs, isFollowed }, 'the clock of this machine jumped');
      if (isFollowed) this.#offsetMs = machineMs - monotonicMs;
    } catch (error) {
      log.warn({ err: error }, 'the clock of this machine jumped, and no other could be asked');
    } finally {
      this.#isAsking = false;
    }
  }
}
