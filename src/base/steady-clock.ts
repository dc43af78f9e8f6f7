import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

export interface SteadyClockOptions {
  /** Clock of the machine. */
  readonly clock: Clock;
  /** Asks another clock, such as the database's, for its time in milliseconds since the Unix epoch. */
  readonly askTime: () => Promise<number>;
  readonly log: Log;
}

/** Smallest change of the time that counts as a jump; a running clock is adjusted by less. */
const jumpMs = 1000;
/** Milliseconds between two questions about one jump, while the other clock does not answer. */
const askAgainMs = 5000;

const followedText = "the clock of this machine jumped towards PostgreSQL's time; the gateway uses the new time";
const keptText =
  "the clock of this machine jumped away from PostgreSQL's time; the gateway ignores the jump. Set this clock, with NTP " +
  'for example';

/**
 * Opens a clock that continues by elapsed time when the machine's clock jumps. Another clock decides whether the
 * machine was right before or is right now: the steady clock follows a jump only when the other clock agrees. The
 * other clock also corrects a machine that is wrong from the start.
 * @throws the error of `askTime`
 */
export async function openSteadyClock(options: SteadyClockOptions): Promise<Clock> {
  const { clock, askTime, log } = options;
  const byMs = Math.round((await askTime()) - clock.now());
  if (Math.abs(byMs) < jumpMs) return new SteadyClock(options, 0);
  log.warn(
    { byMs },
    "the clock of this machine differs from PostgreSQL's clock; the gateway uses PostgreSQL's time. Set this clock, with NTP for example",
  );
  return new SteadyClock(options, byMs);
}

class SteadyClock implements Clock {
  readonly #options: SteadyClockOptions;
  /** Time of day less monotonic time, as this clock has it. */
  #offsetMs: number;
  /** The same as the machine had it when it was last believed, or its jump was known. */
  #machineOffsetMs: number;
  #isAsking = false;
  #askedMs = Number.NEGATIVE_INFINITY;

  /** @param byMs is added to what the machine shows */
  constructor(options: SteadyClockOptions, byMs: number) {
    this.#options = options;
    this.#machineOffsetMs = options.clock.now() - options.clock.monotonicMs();
    this.#offsetMs = this.#machineOffsetMs + byMs;
  }

  now(): number {
    const { clock } = this.#options;
    const machineMs = clock.now();
    const monotonicMs = clock.monotonicMs();
    const offsetMs = machineMs - monotonicMs;
    const byMs = offsetMs - this.#machineOffsetMs;
    if (Math.abs(byMs) < jumpMs) {
      const isTheMachines = this.#offsetMs === this.#machineOffsetMs;
      this.#offsetMs += byMs;
      this.#machineOffsetMs = offsetMs;
      // Adding an amount and subtracting it again is not exact.
      if (isTheMachines) this.#offsetMs = offsetMs;
    } else if (!this.#isAsking && monotonicMs - this.#askedMs >= askAgainMs) void this.#ask();
    return this.#offsetMs === offsetMs ? machineMs : Math.floor(monotonicMs + this.#offsetMs);
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
      const offsetMs = machineMs - clock.monotonicMs();
      const hereMs = machineMs - offsetMs + this.#offsetMs;
      const isFollowed = Math.abs(otherMs - machineMs) < Math.abs(otherMs - hereMs);
      log.warn(
        { byMs: Math.round(offsetMs - this.#machineOffsetMs), isFollowed },
        isFollowed ? followedText : keptText,
      );
      this.#machineOffsetMs = offsetMs;
      if (isFollowed) this.#offsetMs = offsetMs;
      this.#askedMs = Number.NEGATIVE_INFINITY;
    } catch (error) {
      log.warn(
        { err: error },
        "the clock of this machine jumped, and PostgreSQL's time could not be read; the gateway ignores the jump for now and asks again",
      );
    } finally {
      this.#isAsking = false;
    }
  }
}
