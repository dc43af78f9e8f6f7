import type { Clock } from '#base/clock.ts';

/** Reconciles repeatedly: soon after a change, when something is due, and at least every second. */
export interface ReconcileLoop {
  /** Runs the first reconciliation and its immediate follow-ups; later ones run by themselves. */
  start(): Promise<void>;
  /** Requests a reconciliation soon; several requests cause one. */
  wake(): void;
  /** Reconciles until `isSettled`, then ends. */
  close(isSettled: () => boolean): Promise<void>;
}

export interface ReconcileLoopOptions {
  readonly clock: Clock;
  /** @returns when to call it again, in monotonic milliseconds; never rejects */
  readonly reconcile: () => Promise<number>;
}

/** The longest time between two reconciliations. */
const reconcileEveryMs = 1000;

export function createReconcileLoop({ clock, reconcile }: ReconcileLoopOptions): ReconcileLoop {
  let started = false;
  let ended = false;
  let again = false;
  let running: Promise<void> | null = null;
  let timer: NodeJS.Timeout | null = null;
  let isSettled: (() => boolean) | null = null;
  let onSettled: () => void = () => undefined;

  async function reconcileUntilQuiet(): Promise<void> {
    let dueAtMs: number;
    do {
      again = false;
      dueAtMs = await reconcile();
    } while ((again || dueAtMs <= clock.monotonicMs()) && !ended);
    running = null;
    if (isSettled?.() === true) onSettled();
    if (ended) return;
    const dueInMs = Math.min(dueAtMs - clock.monotonicMs(), reconcileEveryMs);
    timer = setTimeout(wake, Math.max(1, dueInMs));
  }

  function wake(): void {
    if (!started || ended) return;
    again = true;
    if (running !== null) return;
    if (timer !== null) clearTimeout(timer);
    timer = null;
    running = reconcileUntilQuiet();
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
