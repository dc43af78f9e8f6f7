import { TooManyWaitError } from './concurrency-limit.ts';

/** No turn is available: too many callers wait in total, or this caller has waited too long. */
export class NoTurnError extends Error {
  constructor() {
    super('there is no turn in time');
    this.name = 'NoTurnError';
  }
}

export interface FairTurnBounds {
  /** Under all names together, and under one while others may come. */
  readonly atOnceMax: number;
  readonly atOncePerNameMax: number;
  readonly waitingMax: number;
  readonly waitingPerNameMax: number;
  readonly waitMsMax: number;
}

export interface TurnOptions {
  /** Part of something that has begun: it waits as long as it takes, and is not counted among those who wait. */
  readonly isBegun?: boolean;
}

interface Waiting {
  readonly isBegun: boolean;
  readonly begin: () => void;
}

interface Line {
  running: number;
  readonly waiting: Waiting[];
}

/**
 * Bounds work that runs at once under all names together, and shares it: the next turn goes to the name with the fewest
 * running, among several to the name without a turn for longest. One name runs at most `atOncePerNameMax`.
 */
export class FairTurns {
  readonly #bounds: FairTurnBounds;
  /** Lines in the order of their last turn, the latest last. */
  readonly #lines = new Map<string, Line>();
  #running = 0;
  #waiting = 0;

  constructor(bounds: FairTurnBounds) {
    this.#bounds = bounds;
  }

  /**
   * Runs work with a turn, which ends with the work.
   * @throws TooManyWaitError where too many of this name wait already, NoTurnError, and what `run` throws
   */
  async during<T>(name: string, run: () => Promise<T>, { isBegun = false }: TurnOptions = {}): Promise<T> {
    const line = this.#lines.get(name) ?? { running: 0, waiting: [] };
    this.#lines.set(name, line);
    if (this.#mayRun(line)) this.#begin(name, line);
    else await this.#wait(line, isBegun);
    try {
      return await run();
    } finally {
      this.#end(name, line);
    }
  }

  #mayRun({ running }: Line): boolean {
    return this.#running < this.#bounds.atOnceMax && running < this.#bounds.atOncePerNameMax;
  }

  #begin(name: string, line: Line): void {
    line.running += 1;
    this.#running += 1;
    this.#lines.delete(name);
    this.#lines.set(name, line);
  }

  #wait(line: Line, isBegun: boolean): Promise<void> {
    const { waitingMax, waitingPerNameMax, waitMsMax } = this.#bounds;
    if (!isBegun) {
      if (line.waiting.filter((other) => !other.isBegun).length >= waitingPerNameMax) throw new TooManyWaitError();
      if (this.#waiting >= waitingMax) throw new NoTurnError();
      this.#waiting += 1;
    }
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        isBegun,
        begin: () => {
          clearTimeout(timer);
          if (!isBegun) this.#waiting -= 1;
          resolve();
        },
      };
      const giveUp = (): void => {
        line.waiting.splice(line.waiting.indexOf(waiting), 1);
        this.#waiting -= 1;
        reject(new NoTurnError());
      };
      const timer = isBegun ? undefined : setTimeout(giveUp, waitMsMax);
      if (isBegun) line.waiting.unshift(waiting);
      else line.waiting.push(waiting);
    });
  }

  #end(name: string, line: Line): void {
    line.running -= 1;
    this.#running -= 1;
    const next = this.#next();
    if (next !== null) {
      this.#begin(next.name, next.line);
      next.line.waiting.shift()?.begin();
    }
    if (line.running === 0 && line.waiting.length === 0) this.#lines.delete(name);
  }

  #next(): { name: string; line: Line } | null {
    let next: { name: string; line: Line } | null = null;
    for (const [name, line] of this.#lines) {
      if (line.waiting.length === 0 || !this.#mayRun(line)) continue;
      if (next === null || line.running < next.line.running) next = { name, line };
    }
    return next;
  }
}
