/**
 * A clock that advances in steps, for the time limits of many calls without a timer each. It runs only while needed. A
 * late step (a busy process, a machine that slept) counts as two steps at most: no call fails for time in which nothing
 * was read.
 */
export interface CoarseClock {
  /** Milliseconds of running time; only differences are meaningful, exact to one step. */
  readonly nowMs: number;
  readonly stepMs: number;
  /** Starts the clock, until a step finds nothing left to watch. */
  wake(): void;
  stop(): void;
}

/** Creates a clock. `onStep` is called after each step and returns true if there is more to watch. */
export function createCoarseClock(stepMs: number, onStep: () => boolean): CoarseClock {
  let timer: NodeJS.Timeout | null = null;
  let lastStepAt = 0;
  const clock = { nowMs: 0, stepMs, wake, stop };

  function wake(): void {
    if (timer !== null) return;
    lastStepAt = performance.now();
    timer = setInterval(step, stepMs);
    timer.unref();
  }

  function step(): void {
    const now = performance.now();
    clock.nowMs += Math.min(now - lastStepAt, 2 * stepMs);
    lastStepAt = now;
    if (!onStep()) stop();
  }

  function stop(): void {
    if (timer !== null) clearInterval(timer);
    timer = null;
  }

  return clock;
}
