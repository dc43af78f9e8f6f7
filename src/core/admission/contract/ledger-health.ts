import type { Clock } from '#base/clock.ts';
import { isLate } from '#base/is-late.ts';
import { within } from '#base/within.ts';

export interface LedgerHealthOptions {
  readonly clock: Clock;
  /** Time in milliseconds for which known values may be used while the database does not answer. */
  readonly staleMs: number;
}

/** The database did not answer in time. */
export class BooksSilentError extends Error {
  constructor() {
    super(`the usage records did not answer within ${giveUpAfterMs / 1000} s`);
    this.name = 'BooksSilentError';
  }
}

/** Milliseconds to wait for an answer if a known value can be used instead. */
const patienceMs = 250;
/** Milliseconds to wait at most: a connection that was lost without notice may never answer. */
const giveUpAfterMs = 5000;
/** Milliseconds between two attempts while the database is unavailable. Known values are used meanwhile. */
const retryMs = 1000;

/** Tracks whether the database answers, by the results of the last queries. */
export class LedgerHealth {
  readonly #options: LedgerHealthOptions;
  /** Time of the first query without an answer, on the monotonic clock; null while the database answers. */
  #unavailableSinceMs: number | null = null;
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(options: LedgerHealthOptions) {
    this.#options = options;
  }

  get isUnavailable(): boolean {
    return this.#unavailableSinceMs !== null;
  }

  /** True if known values may be used although the database does not answer. */
  get mayServeKnown(): boolean {
    if (this.#unavailableSinceMs === null) return true;
    return this.#options.clock.monotonicMs() - this.#unavailableSinceMs <= this.#options.staleMs;
  }

  /** False if the database is unavailable and was asked a moment ago. */
  get isWorthATry(): boolean {
    return !this.isUnavailable || this.#options.clock.monotonicMs() - this.#askedMs >= retryMs;
  }

  /**
   * Runs a query with the time limit.
   * @param question only reads: a query that fails at once, for example on a connection that was just lost, is run
   *   again
   * @throws BooksSilentError, or what the question throws
   */
  async ask<T>(question: () => Promise<T>): Promise<T> {
    const askedMs = this.#options.clock.monotonicMs();
    this.#askedMs = askedMs;
    const noteSilence = (): void => {
      this.#unavailableSinceMs ??= askedMs;
    };
    const late = setTimeout(noteSilence, patienceMs);
    try {
      const answer = await within(this.#asked(question, askedMs), giveUpAfterMs, () => {
        throw new BooksSilentError();
      });
      this.#unavailableSinceMs = null;
      return answer;
    } catch (error) {
      noteSilence();
      throw error;
    } finally {
      clearTimeout(late);
    }
  }

  async #asked<T>(question: () => Promise<T>, askedMs: number): Promise<T> {
    try {
      return await question();
    } catch (error) {
      if (this.isUnavailable || this.#options.clock.monotonicMs() - askedMs >= patienceMs) throw error;
      return question();
    }
  }

  /** Waits for an answer as long as is acceptable if a known value can be used instead. */
  async orKnown(answer: Promise<unknown>): Promise<void> {
    await isLate(
      answer.catch(() => undefined),
      patienceMs,
    );
  }
}
