/** Why something was not begun: too much of it waits already. */
export class TooManyWaitError extends Error {
  constructor() {
    super('too much of this waits already');
    this.name = 'TooManyWaitError';
  }
}

/**
 * Lets a function run so often at once, and makes further calls wait in their order.
 * @returns a function that rejects with TooManyWaitError when `waitingMax` calls wait
 */
export function atMost<Args extends readonly unknown[], Result>(
  { atOnceMax, waitingMax }: { readonly atOnceMax: number; readonly waitingMax: number },
  run: (...args: Args) => Promise<Result>,
): (...args: Args) => Promise<Result> {
  const waiting: (() => void)[] = [];
  let running = 0;
  return async (...args) => {
    if (running < atOnceMax) running += 1;
    else if (waiting.length < waitingMax) await new Promise<void>((resolve) => waiting.push(resolve));
    else throw new TooManyWaitError();
    try {
      return await run(...args);
    } finally {
      // Its place goes on to the next one that waits.
      const next = waiting.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}
