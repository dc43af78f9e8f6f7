/** No slot is available for one name: too much of its work waits, or waited too long where names share no slots. */
export class TooManyWaitError extends Error {
  constructor() {
    super('too many wait for a slot of this name');
    this.name = 'TooManyWaitError';
  }
}

/** No slot is available because of other names: too much work waits in total, or no shared slot was free in time. */
export class NoSlotError extends Error {
  constructor() {
    super('no slot in time');
    this.name = 'NoSlotError';
  }
}

export interface ConcurrencyBounds {
  /** Work that runs at once, and work that waits, under one name. */
  readonly atOncePerNameMax: number;
  readonly waitingPerNameMax: number;
  /** The same under all names together; absent: no bound. */
  readonly atOnceMax?: number;
  readonly waitingMax?: number;
  /** Milliseconds that work waits; absent: indefinitely. */
  readonly waitMsMax?: number;
}

export interface SlotOptions {
  /** Part of something that has begun: it waits as long as it takes, and is not counted as waiting. */
  readonly isBegun?: boolean;
}

interface Waiting {
  readonly isBegun: boolean;
  readonly begin: () => void;
}

interface Line {
  running: number;
  /** Waiting work that has not begun elsewhere. */
  counted: number;
  readonly waiting: Waiting[];
}

/**
 * Bounds work that runs at once under one name, first come first served, and under all names together. Shared slots go
 * to the name with the fewest running; among several, to the name whose last slot is oldest.
 */
export class ConcurrencyLimit {
  readonly #bounds: Required<ConcurrencyBounds>;
  /** Lines of names with running or waiting work, in the order of their last slot, the latest last. */
  readonly #lines = new Map<string, Line>();
  #running = 0;
  #waiting = 0;

  constructor(bounds: ConcurrencyBounds) {
    this.#bounds = { atOnceMax: Infinity, waitingMax: Infinity, waitMsMax: Infinity, ...bounds };
  }

  /**
   * Waits for a slot.
   * @returns the function that frees the slot, to be called once
   * @throws TooManyWaitError, NoSlotError
   */
  async take(name: string, { isBegun = false }: SlotOptions = {}): Promise<() => void> {
    const line = this.#lines.get(name) ?? { running: 0, counted: 0, waiting: [] };
    if (this.#mayRun(line)) this.#begin(name, line);
    else await this.#wait(name, line, isBegun);
    return () => this.#end(name, line);
  }

  /** Runs work in a slot, which ends with the work. @throws TooManyWaitError, NoSlotError, and what `run` throws */
  async during<T>(name: string, run: () => Promise<T>, options?: SlotOptions): Promise<T> {
    const end = await this.take(name, options);
    try {
      return await run();
    } finally {
      end();
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

  #wait(name: string, line: Line, isBegun: boolean): Promise<void> {
    const { waitingMax, waitingPerNameMax, waitMsMax } = this.#bounds;
    if (!isBegun) {
      if (line.counted >= waitingPerNameMax) throw new TooManyWaitError();
      if (this.#waiting >= waitingMax) throw new NoSlotError();
      this.#count(line, 1);
    }
    this.#lines.set(name, line);
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        isBegun,
        begin: () => {
          clearTimeout(timer);
          if (!isBegun) this.#count(line, -1);
          resolve();
        },
      };
      const giveUp = (): void => {
        line.waiting.splice(line.waiting.indexOf(waiting), 1);
        this.#count(line, -1);
        this.#forgetIdle(name, line);
        reject(this.#bounds.atOnceMax === Infinity ? new TooManyWaitError() : new NoSlotError());
      };
      const timer = isBegun || waitMsMax === Infinity ? undefined : setTimeout(giveUp, waitMsMax);
      if (isBegun) line.waiting.unshift(waiting);
      else line.waiting.push(waiting);
    });
  }

  #count(line: Line, more: 1 | -1): void {
    line.counted += more;
    this.#waiting += more;
  }

  #end(name: string, line: Line): void {
    line.running -= 1;
    this.#running -= 1;
    const next = this.#next(name, line);
    if (next !== null) {
      this.#begin(next.name, next.line);
      next.line.waiting.shift()?.begin();
    }
    this.#forgetIdle(name, line);
  }

  #forgetIdle(name: string, { running, waiting }: Line): void {
    if (running === 0 && waiting.length === 0) this.#lines.delete(name);
  }

  /** Returns the line that gets a free slot: where slots are not shared, only the line that freed it. */
  #next(name: string, line: Line): { name: string; line: Line } | null {
    if (this.#bounds.atOnceMax === Infinity) return line.waiting.length > 0 ? { name, line } : null;
    let next: { name: string; line: Line } | null = null;
    for (const [other, candidate] of this.#lines) {
      if (candidate.waiting.length === 0 || !this.#mayRun(candidate)) continue;
      if (next === null || candidate.running < next.line.running) next = { name: other, line: candidate };
    }
    return next;
  }
}
