import type { Log } from './log.ts';
import { openRunQueue } from './run-queue.ts';

/** Redis cannot be asked at the moment. */
export class RedisAwayError extends Error {
  /** The command may have reached Redis: nobody knows whether it ran. */
  readonly uncertain: boolean;

  constructor(message: string, uncertain: boolean, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'RedisAwayError';
    this.uncertain = uncertain;
  }
}

/** How long a call is waited for: `short` where something else can decide in Redis' place. */
export type Patience = 'short' | 'long';

/**
 * A call fails when it has seen so many ticks of the watch, so that a late event loop is not taken for a late Redis.
 * Between this many ticks and one more pass from its start to its end.
 */
const tickMs = 25;
const ticksMax: Readonly<Record<Patience, number>> = { short: 4, long: 20 };
export const shortTimeoutMs = tickMs * (ticksMax.short + 1);
export const answerTimeoutMs = tickMs * ticksMax.long;
/**
 * Where this process had to wait for a processor, Redis may have to as well: a tick that came so late, or saw it wait so
 * long, counts a fifth for those of short patience.
 */
const lateTickMs = 2 * tickMs;
const waitedMsMax = 5;
const starvedTick = ticksMax.short / ticksMax.long;
/** Pings leave so many ticks apart, one at a time. */
const pingTicks = 4;

interface Waiting {
  /** The watch's ticks when the call was sent, as its patience counts them. */
  readonly sentTick: number;
  readonly reject: (error: Error) => void;
}

export interface AnswerWatchOptions {
  /** Resolves when every server has answered. */
  readonly ping: () => Promise<unknown>;
  readonly isConnected: () => boolean;
  readonly log: Log;
}

/** Knows at any moment whether Redis answers, also where nobody asks it anything. */
export class AnswerWatch {
  readonly #options: AnswerWatchOptions;
  /** Oldest first. */
  readonly #waiting: Readonly<Record<Patience, Set<Waiting>>> = { short: new Set(), long: new Set() };
  readonly #timer: NodeJS.Timeout;
  readonly #listeners: (() => void)[] = [];
  readonly #runQueue = openRunQueue();
  /** Ticks so far; those of a starved process are less for short patience. */
  readonly #ticks: Record<Patience, number> = { short: 0, long: 0 };
  #tickedMs = performance.now();
  #waitedMs = 0;
  #pingedTick = Number.NEGATIVE_INFINITY;
  #isPinging = false;
  #answers = true;
  #isSilent = false;

  constructor(options: AnswerWatchOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#tick(), tickMs).unref();
  }

  /** False from the first thing that was not answered shortly, or a lost connection, until a ping is answered. */
  get answers(): boolean {
    return this.#answers && this.#options.isConnected();
  }

  /** Since something was not answered for long, until a ping is answered: there is no use in asking. */
  get isSilent(): boolean {
    return this.#isSilent;
  }

  /** Called when `answers` turns false. */
  onSilence(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** The connection was lost. */
  lost(): void {
    this.#unanswered();
  }

  /**
   * The answer, unless it takes too long.
   * @param mend what comes in the place of an answer that is an error
   * @throws RedisAwayError
   */
  wait(answer: Promise<unknown>, patience: Patience, mend: (error: unknown) => unknown): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const all = this.#waiting[patience];
      const waiting: Waiting = { sentTick: this.#ticks[patience], reject };
      all.add(waiting);
      answer.then(
        (value) => {
          all.delete(waiting);
          resolve(value);
        },
        (error: unknown) => {
          if (!all.delete(waiting)) return;
          try {
            resolve(mend(error));
          } catch (mended) {
            reject(mended);
          }
        },
      );
    });
  }

  /** Rejects all waiting calls. Listeners are not notified. */
  close(): void {
    clearInterval(this.#timer);
    this.#runQueue.close();
    this.#listeners.length = 0;
    for (const patience of ['short', 'long'] as const) {
      for (const waiting of this.#waiting[patience]) this.#expire(waiting, patience);
    }
  }

  /** Answers that have arrived are read before calls are given up: the poll phase comes between timers and immediates. */
  #tick(): void {
    this.#ticks.long += 1;
    this.#ticks.short += this.#isStarved() ? starvedTick : 1;
    if (!this.#isPinging && this.#ticks.long - this.#pingedTick >= pingTicks && this.#options.isConnected())
      this.#ping();
    if (this.#waiting.short.size + this.#waiting.long.size > 0) setImmediate(() => this.#giveUp());
  }

  #isStarved(): boolean {
    const [nowMs, waitedMs] = [performance.now(), this.#runQueue.waitedMs()];
    const isStarved = nowMs - this.#tickedMs >= lateTickMs || waitedMs - this.#waitedMs > waitedMsMax;
    this.#tickedMs = nowMs;
    this.#waitedMs = waitedMs;
    return isStarved;
  }

  /** Calls that were sent before a tick have waited long enough. */
  #giveUp(): void {
    for (const patience of ['short', 'long'] as const) {
      const lastTick = this.#ticks[patience] - ticksMax[patience];
      for (const waiting of this.#waiting[patience]) {
        if (waiting.sentTick >= lastTick) break;
        if (patience === 'long' && !this.#isSilent) {
          this.#options.log.warn({}, 'Redis does not answer');
          this.#isSilent = true;
        }
        this.#unanswered();
        this.#expire(waiting, patience);
      }
    }
  }

  #expire(waiting: Waiting, patience: Patience): void {
    this.#waiting[patience].delete(waiting);
    waiting.reject(new RedisAwayError('Redis did not answer in time', true));
  }

  #unanswered(): void {
    if (!this.#answers) return;
    this.#answers = false;
    for (const listener of this.#listeners) listener();
  }

  /** One that is answered late is an answer all the same: from then on Redis answers. */
  #ping(): void {
    this.#isPinging = true;
    this.#pingedTick = this.#ticks.long;
    const pong = this.#options.ping();
    this.wait(pong, 'short', asIs).catch(() => this.#unanswered());
    pong.then(
      () => {
        this.#isPinging = false;
        this.#answers = true;
        if (this.#isSilent) this.#options.log.info({}, 'Redis answers again');
        this.#isSilent = false;
      },
      () => {
        this.#isPinging = false;
      },
    );
  }
}

function asIs(error: unknown): never {
  throw error;
}
