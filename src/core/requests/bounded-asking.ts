import { isDatabaseUnavailable } from '#base/db.ts';

/** So many questions without an answer, or failures in a row, are taken for a database that is away. */
const unansweredMax = 4;
/** Then one more is asked in this time, to see whether it does again. */
const probeMs = 1000;

/** Nothing was asked: the store is away, or there was no turn in time. */
export class NotAskedError extends Error {}

/** Asks a store that may be silent for as long as its driver waits: each question is answered, or fails, in time. */
export class BoundedAsking {
  readonly #timeoutMs: number;
  #unanswered = 0;
  /** In a row, because the database could not be used. */
  #failures = 0;
  #isProbed = false;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * @param onLate told when a question has ended that nobody waits for any more
   * @throws an Error when there is no answer in time, NotAskedError while the store is away, and what `ask` throws
   */
  async ask<T>(ask: () => Promise<T>, onLate: () => void): Promise<T> {
    if (this.#unanswered + this.#failures >= unansweredMax) this.#probe();
    const asked = this.#heard(ask());
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      this.#unanswered += 1;
      const ended = (): void => {
        this.#unanswered -= 1;
        onLate();
      };
      asked.then(ended, ended);
      reject(new Error(`no answer within ${this.#timeoutMs} ms`));
    }, this.#timeoutMs);
    try {
      return await Promise.race([asked, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #heard<T>(asked: Promise<T>): Promise<T> {
    try {
      const answer = await asked;
      this.#failures = 0;
      return answer;
    } catch (error) {
      if (isDatabaseUnavailable(error)) this.#failures += 1;
      throw error;
    }
  }

  #probe(): void {
    if (this.#isProbed) throw new NotAskedError('earlier questions have no answer');
    this.#isProbed = true;
    setTimeout(() => (this.#isProbed = false), probeMs).unref();
  }
}
