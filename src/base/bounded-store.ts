/** The store could not be asked, or did not answer in time. */
export class StoreAwayError extends Error {
  constructor(what: string, cause?: unknown) {
    super(`the database was asked for ${what} and did not answer`, cause === undefined ? {} : { cause });
  }
}

const unansweredMax = 8;

/**
 * Asks Postgres within a time. A statement that was given up may still take effect later, so each of them must be
 * harmless then; while too many are unanswered, no more are sent.
 */
export class BoundedStore {
  #unanswered = 0;

  /** @throws StoreAwayError whatever went wrong, late answers included */
  async ask<T>(what: string, timeoutMs: number, run: () => PromiseLike<T>): Promise<T> {
    if (this.#unanswered >= unansweredMax) throw new StoreAwayError(what);
    this.#unanswered += 1;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new StoreAwayError(what)), timeoutMs);
    });
    try {
      return await Promise.race([this.#run(run), late]);
    } catch (error) {
      throw error instanceof StoreAwayError ? error : new StoreAwayError(what, error);
    } finally {
      clearTimeout(timer);
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
