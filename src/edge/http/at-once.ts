import { AppError } from '#base/errors.ts';

/** Counts what somebody has going on at once, by a name: nothing is kept of those who have nothing. */
export class AtOnce {
  readonly #counts = new Map<string, number>();

  /** @returns false, and counts nothing, where there are `max` already */
  enter(name: string, max: number): boolean {
    const count = this.#counts.get(name) ?? 0;
    if (count >= max) return false;
    this.#counts.set(name, count + 1);
    return true;
  }

  leave(name: string): void {
    const count = (this.#counts.get(name) ?? 0) - 1;
    if (count > 0) this.#counts.set(name, count);
    else this.#counts.delete(name);
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
   * @throws AppError concurrency_limit_exceeded when too many wait
   */
  async take(name: string): Promise<() => void> {
    const { atOnceMax, waitingMax } = this.#bounds;
    const line = this.#lines.get(name) ?? { running: 0, waiting: [] };
    this.#lines.set(name, line);
    if (line.running < atOnceMax) line.running += 1;
    else if (line.waiting.length < waitingMax) await new Promise<void>((resolve) => line.waiting.push(resolve));
    else {
      const message = `Of ${atOnceMax + waitingMax} requests here none is answered or read yet: wait for some to end.`;
      throw new AppError('concurrency_limit_exceeded', { message, headers: { 'retry-after': '1' } });
    }
    return () => this.#end(name, line);
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
