/** So many questions without an answer are taken for a database that says nothing. */
const unansweredMax = 4;
/** Then one more is asked in this time, to see whether it does again. */
const probeMs = 1000;

/** Asks a store that may be silent for as long as its driver waits: each question is answered, or fails, in time. */
export class BoundedAsking {
  readonly #timeoutMs: number;
  #unanswered = 0;
  #isProbed = false;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * @param onLate told when a question has ended that nobody waits for any more
   * @throws an Error when there is no answer in time, and what `ask` throws
   */
  async ask<T>(ask: () => Promise<T>, onLate: () => void): Promise<T> {
    if (this.#unanswered >= unansweredMax) this.#probe();
    const asked = ask();
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

  #probe(): void {
    if (this.#isProbed) throw new Error('earlier questions have no answer yet');
    this.#isProbed = true;
    setTimeout(() => (this.#isProbed = false), probeMs).unref();
  }
}
