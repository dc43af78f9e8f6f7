import type { Clock } from '#base/clock.ts';
import { isLate } from '#base/is-late.ts';

export interface BooksWatchOptions {
  readonly clock: Clock;
  /** How long what is known may serve while the books do not answer. */
  readonly staleMs: number;
}

/** The books did not answer in time. */
export class BooksSilentError extends Error {
  constructor() {
    super(`the books did not answer within ${giveUpAfterMs / 1000} s`);
    this.name = 'BooksSilentError';
  }
}

/** An answer that takes longer is not waited for where something is known. */
const patienceMs = 250;
/** And never longer than this: a connection that was lost without a word may never answer. */
const giveUpAfterMs = 5000;
/** Between two tries while they are away; what is known serves meanwhile. */
const retryMs = 1000;

/** Whether the books answer, by what came of the last questions. */
export class BooksWatch {
  readonly #options: BooksWatchOptions;
  /** When the first question was asked that had no answer, on the monotonic clock; null while they answer. */
  #awaySinceMs: number | null = null;
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(options: BooksWatchOptions) {
    this.#options = options;
  }

  get isAway(): boolean {
    return this.#awaySinceMs !== null;
  }

  /** Whether what is known may serve although the books do not answer. */
  get mayServeKnown(): boolean {
    if (this.#awaySinceMs === null) return true;
    return this.#options.clock.monotonicMs() - this.#awaySinceMs <= this.#options.staleMs;
  }

  /** False while they are away and were asked a moment ago. */
  get isWorthATry(): boolean {
    return !this.isAway || this.#options.clock.monotonicMs() - this.#askedMs >= retryMs;
  }

  /**
   * @param question reads alone: it is asked once more where it fails at once, as on a connection that was just broken
   * @throws BooksSilentError, or what the question throws
   */
  async ask<T>(question: () => Promise<T>): Promise<T> {
    const askedMs = this.#options.clock.monotonicMs();
    this.#askedMs = askedMs;
    const isAway = (): void => {
      this.#awaySinceMs ??= askedMs;
    };
    const { promise: silence, reject } = Promise.withResolvers<never>();
    const late = setTimeout(isAway, patienceMs);
    const givenUp = setTimeout(() => reject(new BooksSilentError()), giveUpAfterMs);
    try {
      const answer = await Promise.race([this.#asked(question, askedMs), silence]);
      this.#awaySinceMs = null;
      return answer;
    } catch (error) {
      isAway();
      throw error;
    } finally {
      clearTimeout(late);
      clearTimeout(givenUp);
    }
  }

  async #asked<T>(question: () => Promise<T>, askedMs: number): Promise<T> {
    try {
      return await question();
    } catch (error) {
      if (this.isAway || this.#options.clock.monotonicMs() - askedMs >= patienceMs) throw error;
      return question();
    }
  }

  /** Waits for an answer as long as is bearable where something is known. */
  async orKnown(answer: Promise<unknown>): Promise<void> {
    await isLate(
      answer.catch(() => undefined),
      patienceMs,
    );
  }
}
