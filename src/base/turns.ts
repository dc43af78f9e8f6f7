/** Why somebody gets no turn: too many wait already. */
export class TooManyWaitError extends Error {
  constructor() {
    super('too many wait for a turn already');
    this.name = 'TooManyWaitError';
  }
}

export interface TurnBounds {
  readonly atOnceMax: number;
  /** Of those that wait for a turn. */
  readonly waitingMax: number;
}

interface Line {
  running: number;
  readonly waiting: (() => void)[];
}

/** Lets somebody do so much at once, by a name, and makes more of it wait in its order. */
export class Turns {
  readonly #bounds: TurnBounds;
  readonly #lines = new Map<string, Line>();

  constructor(bounds: TurnBounds) {
    this.#bounds = bounds;
  }

  /**
   * @returns what ends the turn, to be called once
   * @throws TooManyWaitError
   */
  async take(name: string): Promise<() => void> {
    const { atOnceMax, waitingMax } = this.#bounds;
    const line = this.#lines.get(name) ?? { running: 0, waiting: [] };
    this.#lines.set(name, line);
    if (line.running < atOnceMax) line.running += 1;
    else if (line.waiting.length < waitingMax) await new Promise<void>((resolve) => line.waiting.push(resolve));
    else throw new TooManyWaitError();
    return () => this.#end(name, line);
  }

  /** A turn for as long as something runs. @throws TooManyWaitError, and what `run` throws */
  async during<T>(name: string, run: () => Promise<T>): Promise<T> {
    const end = await this.take(name);
    try {
      return await run();
    } finally {
      end();
    }
  }

  /** A turn goes on to who waits for it. */
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
