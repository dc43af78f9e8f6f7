export interface SlowReaderOptions {
  /** For so long in one go a client may take nothing, in milliseconds. */
  readonly stallMs: number;
  readonly onStalled: () => void;
  /** Called once, when the client was waited for so long in all that its engine may be far ahead. */
  readonly onUnread: () => void;
}

/** An engine makes some hundred tokens in this time: about as many as a hold is ahead of the counts. */
const unreadMs = 500;

/**
 * A client that takes its stream slower than it is made. Nothing is read from the engine meanwhile, which goes on all the
 * same, counted by nobody.
 */
export class SlowReader {
  readonly #options: SlowReaderOptions;
  #sinceMs: number | null = null;
  #unreadLeftMs = unreadMs;
  #timers: NodeJS.Timeout[] = [];

  constructor(options: SlowReaderOptions) {
    this.#options = options;
  }

  waits(): void {
    if (this.#sinceMs !== null) return;
    this.#sinceMs = performance.now();
    const { stallMs, onStalled } = this.#options;
    this.#timers.push(setTimeout(onStalled, stallMs));
    if (this.#unreadLeftMs > 0) this.#timers.push(setTimeout(() => this.#isUnread(), this.#unreadLeftMs));
  }

  caughtUp(): void {
    if (this.#sinceMs === null) return;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
    const waitedMs = performance.now() - this.#sinceMs;
    this.#sinceMs = null;
    // A timer that was due and did not run yet runs in the next wait.
    if (this.#unreadLeftMs > 0) this.#unreadLeftMs = Math.max(1, this.#unreadLeftMs - waitedMs);
  }

  #isUnread(): void {
    this.#unreadLeftMs = 0;
    this.#options.onUnread();
  }
}
