import type { Log } from './log.ts';

/** Errors of a server that cannot work at the moment or must not write. The command itself is not wrong. */
const isUnable = /^(LOADING|CLUSTERDOWN|READONLY|MASTERDOWN|BUSY|TRYAGAIN|OOM|MISCONF|NOREPLICAS)/;

const sayEveryMs = 60_000;
const lastsMs = 5000;

/** Knows whether Redis answers and does not do what it is asked, and says so in the log: it is no use then. */
export class Refusals {
  readonly #log: Log;
  #saidMs = -Infinity;
  #lastMs = -Infinity;
  #last = '';

  constructor(log: Log) {
    this.#log = log;
  }

  /** @returns whether an error that Redis answered with says that it is unable */
  note(message: string): boolean {
    if (!isUnable.test(message)) return false;
    const nowMs = performance.now();
    this.#lastMs = nowMs;
    this.#last = message;
    if (nowMs - this.#saidMs > sayEveryMs) {
      this.#saidMs = nowMs;
      const mend = message.startsWith('OOM') ? ' Raise its maxmemory (REDIS_MAXMEMORY in compose/.env).' : '';
      this.#log.error({ refusal: message }, `Redis refuses, and is done without as if it were away.${mend}`);
    }
    return true;
  }

  /** Its words when it has refused something within the last seconds, else null. */
  get current(): string | null {
    return performance.now() - this.#lastMs < lastsMs ? this.#last : null;
  }
}
