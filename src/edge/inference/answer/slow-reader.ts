export interface SlowReaderOptions {
  /** Milliseconds in a row for which a client may read nothing. */
  readonly stallMs: number;
  readonly onStalled: () => void;
  /** Called once, when the total wait for the client is so long that its engine may be far ahead. */
  readonly onUnread: () => void;
}

/** Milliseconds in which an engine generates some hundred tokens: about as many as a hold is ahead of the counts. */
const unreadMs = 500;
/**
 * Milliseconds per step. After each step, reads by the client that are already pending are processed first, so that a
 * pause of the gateway itself does not count as a slow client. A client that drains the buffer within a step reads
 * faster than any engine generates.
 */
const stepMs = 50;

/**
 * Times a client that reads its stream more slowly than the engine generates it. Meanwhile the gateway reads nothing
 * from the engine, which continues without being counted.
 */
export class SlowReader {
  readonly #options: SlowReaderOptions;
  #unreadLeftMs = unreadMs;
  #wait: { readonly stalled: NodeJS.Timeout; readonly steps: NodeJS.Timeout | null } | null = null;

  constructor(options: SlowReaderOptions) {
    this.#options = options;
  }

  waits(): void {
    if (this.#wait !== null) return;
    const { stallMs, onStalled } = this.#options;
    const steps = this.#unreadLeftMs > 0 ? setInterval(() => this.#step(), stepMs) : null;
    this.#wait = { stalled: setTimeout(onStalled, stallMs), steps };
  }

  caughtUp(): void {
    clearTimeout(this.#wait?.stalled);
    clearInterval(this.#wait?.steps ?? undefined);
    this.#wait = null;
  }

  #step(): void {
    const wait = this.#wait;
    setImmediate(() => {
      if (wait === null || this.#wait !== wait || this.#unreadLeftMs <= 0) return;
      this.#unreadLeftMs -= stepMs;
      if (this.#unreadLeftMs > 0) return;
      clearInterval(wait.steps ?? undefined);
      this.#options.onUnread();
    });
  }
}
