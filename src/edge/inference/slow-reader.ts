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
 * Time is counted in steps, after each of which whatever the client has taken by then is heard: a gateway that stood still
 * itself has not waited for its client. Who takes what is buffered in less than a step takes it faster than any is made.
 */
const stepMs = 50;

/**
 * A client that takes its stream slower than it is made. Nothing is read from the engine meanwhile, which goes on all the
 * same, counted by nobody.
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
