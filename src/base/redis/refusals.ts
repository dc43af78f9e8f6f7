import type { Log } from '#base/log.ts';

/** Errors of a server that cannot work at the moment or must not write. The command itself is not wrong. */
const isUnable = /^(LOADING|CLUSTERDOWN|READONLY|MASTERDOWN|BUSY|TRYAGAIN|OOM|MISCONF|NOREPLICAS)/;

const sayEveryMs = 60_000;
const lastsMs = 5000;

/** Tracks and logs whether Redis answers with errors that make it unusable. */
export class Refusals {
  readonly #log: Log;
  #saidMs = -Infinity;
  #lastMs = -Infinity;
  #last = '';

  constructor(log: Log) {
    this.#log = log;
  }

  /** @returns true if an error of Redis says that Redis is unable to work */
  note(message: string): boolean {
    if (!isUnable.test(message)) return false;
    const nowMs = performance.now();
    this.#lastMs = nowMs;
    this.#last = message;
    if (nowMs - this.#saidMs > sayEveryMs) {
      this.#saidMs = nowMs;
      const advice = message.startsWith('OOM') ? '. Raise its maxmemory (REDIS_MAXMEMORY in compose/.env)' : '';
      this.#log.error({ refusal: message }, `Redis rejects commands; the gateway treats Redis as unreachable${advice}`);
    }
    return true;
  }

  /** Message of a rejection within the last 5 seconds, else null. */
  get current(): string | null {
    return performance.now() - this.#lastMs < lastsMs ? this.#last : null;
  }
}
