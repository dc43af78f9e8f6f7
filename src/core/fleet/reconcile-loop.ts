import type { Clock } from '#base/clock.ts';

/** Looks again and again: soon after something changed, when something falls due, and at least every second. */
export interface LookLoop {
  /** The first look, and those that follow from it at once; others come by themselves. */
  start(): Promise<void>;
  /** Asks for a look soon; many asks make one. */
  wake(): void;
  /** Goes on until `isSettled`, then ends. */
  close(isSettled: () => boolean): Promise<void>;
}

export interface LookLoopOptions {
  readonly clock: Clock;
  /** @returns when it is to be called again, monotonic milliseconds; never rejects */
  readonly look: () => Promise<number>;
}

/** The longest time between two looks, whatever was or was not reported. */
const lookEveryMs = 1000;

export function createLookLoop({ clock, look }: LookLoopOptions): LookLoop {
  let started = false;
  let ended = false;
  let again = false;
  let running: Promise<void> | null = null;
  let timer: NodeJS.Timeout | null = null;
  let isSettled: (() => boolean) | null = null;
  let onSettled: () => void = () => undefined;

  async function lookUntilQuiet(): Promise<void> {
    let dueAtMs: number;
    do {
      again = false;
      dueAtMs = await look();
    } while ((again || dueAtMs <= clock.monotonicMs()) && !ended);
    running = null;
    if (isSettled?.() === true) onSettled();
    if (ended) return;
    const dueInMs = Math.min(dueAtMs - clock.monotonicMs(), lookEveryMs);
    timer = setTimeout(wake, Math.max(1, dueInMs));
  }

  function wake(): void {
    if (!started || ended) return;
    again = true;
    if (running !== null) return;
    if (timer !== null) clearTimeout(timer);
    timer = null;
    running = lookUntilQuiet();
  }

  return {
    async start() {
      started = true;
      wake();
      await running;
    },
    wake,
    async close(settled) {
      if (started && !settled()) {
        const isOver = new Promise<void>((resolve) => {
          onSettled = resolve;
        });
        isSettled = settled;
        wake();
        await isOver;
      }
      ended = true;
      if (timer !== null) clearTimeout(timer);
      await running;
    },
  };
}
