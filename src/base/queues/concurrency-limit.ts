/** No turn is available: too many callers wait already, or none ended in time. */
export class TooManyWaitError extends Error {
  constructor() {
    super('too many wait for a turn');
    this.name = 'TooManyWaitError';
  }
}

export interface TurnBounds {
  readonly atOnceMax: number;
  /** How many may wait for a turn of one name. */
  readonly waitingMax: number;
  /** Milliseconds that a caller waits; absent: indefinitely. */
  readonly waitMsMax?: number;
}

interface Line {
  running: number;
  readonly waiting: (() => void)[];
}

/** Bounds work that runs at once under one name; further work waits, first come first served. */
export class Turns {
  readonly #bounds: TurnBounds;
  readonly #lines = new Map<string, Line>();

  constructor(bounds: TurnBounds) {
    this.#bounds = bounds;
  }

  /**
   * @returns the function that ends the turn, to be called once
   * @throws TooManyWaitError
   */
  async take(name: string): Promise<() => void> {
    const { atOnceMax, waitingMax } = this.#bounds;
    const line = this.#lines.get(name) ?? { running: 0, waiting: [] };
    this.#lines.set(name, line);
    if (line.running < atOnceMax) line.running += 1;
    else if (line.waiting.length < waitingMax) await this.#wait(line);
    else throw new TooManyWaitError();
    return () => this.#end(name, line);
  }

  async #wait({ waiting }: Line): Promise<void> {
    const { waitMsMax } = this.#bounds;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    waiting.push(resolve);
    const leave = (): void => {
      waiting.splice(waiting.indexOf(resolve), 1);
      reject(new TooManyWaitError());
    };
    const timer = waitMsMax === undefined ? undefined : setTimeout(leave, waitMsMax);
    await promise;
    clearTimeout(timer);
  }

  /** Runs work with a turn, which ends with the work. @throws TooManyWaitError, and the error of `run` */
  async during<T>(name: string, run: () => Promise<T>): Promise<T> {
    const end = await this.take(name);
    try {
      return await run();
    } finally {
      end();
    }
  }

  /** Passes the turn on to the next caller. */
  #end(name: string, line: Line): void {
    const next = line.waiting.shift();
    if (next !== undefined) {
      next();
      return;
    }
    line.running -= 1;
    if (line.running === 0) this.#lines.delete(name);
  }
}
