import type { Log } from '#base/log.ts';
import { openRunQueue } from '#base/queues/queues.ts';

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

/** Time that a call may take: `short` if the caller can decide without Redis. */
export type Patience = 'short' | 'long';

/**
 * A call fails after a number of the watch's ticks and not of milliseconds, so that a late event loop is not mistaken
 * for a late Redis. From its start to its end pass `ticksMax` ticks, or up to one more.
 */
const tickMs = 25;
const ticksMax: Readonly<Record<Patience, number>> = { short: 4, long: 20 };
export const shortTimeoutMs = tickMs * (ticksMax.short + 1);
export const answerTimeoutMs = tickMs * ticksMax.long;
/**
 * If this process had to wait for a processor, Redis may have to wait as well: a tick that comes this late, or after a
 * wait this long, counts as a fifth for calls of short patience.
 */
const lateTickMs = 2 * tickMs;
const waitedMsMax = 5;
const starvedTick = ticksMax.short / ticksMax.long;
/** Ticks between pings; there is one ping at a time. */
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

/** Tracks whether Redis answers: by calls, and by pings even if there are no calls. */
export class AnswerWatch {
  readonly #options: AnswerWatchOptions;
  /** Calls without an answer, oldest first. */
  readonly #waiting: Readonly<Record<Patience, Set<Waiting>>> = { short: new Set(), long: new Set() };
  readonly #timer: NodeJS.Timeout;
  readonly #listeners: (() => void)[] = [];
  readonly #runQueue = openRunQueue();
  /** Ticks so far; a tick of a starved process counts less for short patience. */
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

  /** False from the first short timeout, or a lost connection, until a ping is answered. */
  get answers(): boolean {
    return this.#answers && this.#options.isConnected();
  }

  /** True from a long timeout until a ping is answered: calls would be useless. */
  get isSilent(): boolean {
    return this.#isSilent;
  }

  /** Called when `answers` turns false. */
  onSilence(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Notes that the connection was lost. */
  lost(): void {
    this.#unanswered();
  }

  /**
   * Returns the answer, unless it takes too long.
   * @param recover returns a result in place of an error that Redis answers, or throws
   * @throws RedisAwayError
   */
  wait(answer: Promise<unknown>, patience: Patience, recover: (error: unknown) => unknown): Promise<unknown> {
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
            resolve(recover(error));
          } catch (unrecovered) {
            reject(unrecovered);
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

  /** Reads answers that have arrived before it gives up calls: the poll phase is between timers and immediates. */
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

  /** Gives up calls that have waited for enough ticks. */
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

  /** Sends a ping. A late answer counts, too: from then on Redis answers. */
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
