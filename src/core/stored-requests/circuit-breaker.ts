import { isDatabaseUnavailable } from '#base/database/database.ts';
import { within } from '#base/within.ts';

/** Number of unanswered queries, or failures in a row, after which the database is treated as unavailable. */
const unansweredMax = 4;
/** While the database is treated as unavailable, one query per interval is sent as a probe. */
const probeMs = 1000;

/** Thrown if nothing was sent: the store is unavailable, or no slot became free in time. */
export class NotAskedError extends Error {}

/** Queries a store whose driver may wait indefinitely: each query is answered, or fails, in time. */
export class BoundedAsking {
  readonly #timeoutMs: number;
  #unanswered = 0;
  /** Failures in a row because the database was unavailable. */
  #failures = 0;
  #isProbed = false;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * @param onLate called when a query has ended after its timeout
   * @throws Error if there is no answer in time, NotAskedError while the store is unavailable, and the errors of `ask`
   */
  async ask<T>(ask: () => Promise<T>, onLate: () => void): Promise<T> {
    if (this.#unanswered + this.#failures >= unansweredMax) this.#probe();
    const asked = this.#heard(ask());
    return within(asked, this.#timeoutMs, () => {
      this.#unanswered += 1;
      const ended = (): void => {
        this.#unanswered -= 1;
        onLate();
      };
      asked.then(ended, ended);
      throw new Error(`no answer within ${this.#timeoutMs} ms`);
    });
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
    if (this.#isProbed) throw new NotAskedError('earlier queries are still unanswered');
    this.#isProbed = true;
    setTimeout(() => (this.#isProbed = false), probeMs).unref();
  }
}
