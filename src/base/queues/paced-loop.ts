/** Repeats a piece of work, which says itself how long to pause after it. */
export interface PacedLoop {
  /** Begins with a pause; a second call changes nothing. */
  start(firstPauseMs: number): void;
  /** Ends the pause that is now. */
  wake(): void;
  /** Ends the loop, and waits for the work that is under way. */
  close(): Promise<void>;
}

/** @param work never rejects; @returns the milliseconds until the next one */
export function createPacedLoop(work: () => Promise<number>): PacedLoop {
  let running: Promise<void> | null = null;
  let closed = false;
  let endPause: () => void = () => undefined;

  async function run(firstPauseMs: number): Promise<void> {
    let pauseMs = firstPauseMs;
    while (!closed) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pauseMs).unref();
        endPause = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      if (!closed) pauseMs = await work();
    }
  }

  return {
    start(firstPauseMs) {
      if (!closed) running ??= run(firstPauseMs);
    },
    wake: () => endPause(),
    async close() {
      closed = true;
      endPause();
      await running;
    },
  };
}
