import { within } from '#base/within.ts';

/** PostgreSQL could not be asked, or did not answer in time. */
export class StoreAwayError extends Error {
  constructor(what: string, cause?: unknown) {
    super(`PostgreSQL did not answer (${what})`, cause === undefined ? {} : { cause });
  }
}

const unansweredMax = 8;

/**
 * Sends statements to PostgreSQL with a time limit. A statement that was given up may still take effect later, so each
 * must be harmless then. While too many are unanswered, no more are sent.
 */
export class BoundedStore {
  #unanswered = 0;

  /** @throws StoreAwayError for every failure, late answers included */
  async ask<T>(what: string, timeoutMs: number, run: () => PromiseLike<T>): Promise<T> {
    if (this.#unanswered >= unansweredMax) throw new StoreAwayError(what);
    this.#unanswered += 1;
    try {
      return await within(this.#run(run), timeoutMs, () => {
        throw new StoreAwayError(what);
      });
    } catch (error) {
      throw error instanceof StoreAwayError ? error : new StoreAwayError(what, error);
    }
  }

  async #run<T>(run: () => PromiseLike<T>): Promise<T> {
    try {
      return await run();
    } finally {
      this.#unanswered -= 1;
    }
  }
}
