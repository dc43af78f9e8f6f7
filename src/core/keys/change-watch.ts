import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { parseId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { BoundedStore } from '#base/queues/queues.ts';
import { readRecentChanges, type RecentChange } from '#core/audit/audit.ts';

/** Milliseconds between two polls of a gateway for changes. */
export const changesPollMs = 1000;
/** Maximum age in milliseconds of the poll that a request's verification relies on, while PostgreSQL answers. */
const freshMs = 2000;
/**
 * Milliseconds after a commit until every gateway applies a change without any notification, while PostgreSQL answers.
 */
export const changesKnownMs = freshMs + 200;

/** Milliseconds that two clocks may differ, plus the time a transaction may take until others see it. */
const overlapMs = 60_000;
/** Milliseconds after which a poll fails: a silently lost connection may never answer. */
const pollTimeoutMs = 5000;
/** Milliseconds that requests wait for a due poll. */
const waitMs = 250;
/** Milliseconds after a failed poll in which no request waits for another poll. */
const quietMs = 1000;
/** Polls per wait: a poll that was under way while the process was frozen misses what changed since. */
const pollsMax = 2;

export interface ChangeWatchOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** Apply the rows that PostgreSQL has for these ids (UUIDs). */
  readonly refreshKeys: (keyIds: readonly string[]) => Promise<void>;
  readonly refreshOrganizations: (organizationIds: readonly string[]) => Promise<void>;
}

/**
 * Polls PostgreSQL for changed keys and organizations. This finds changes whose notification from another gateway was
 * lost, and changes by commands on the machine, which notify no gateway.
 */
export class ChangeWatch {
  readonly #options: ChangeWatchOptions;
  readonly #store = new BoundedStore();
  #sinceMs: number;
  #seen: ReadonlySet<string> = new Set();
  /** Start of the last successful poll, on the monotonic clock. Keys unknown at that time are read from PostgreSQL. */
  #asOfMs: number;
  #polling: Promise<boolean> | null = null;
  #waiting: Promise<void> | null = null;
  /** End of the time in which no request waits, on the monotonic clock. */
  #quietUntilMs = 0;
  /** True while polls fail, so that the failure is logged once. */
  #isFailing = false;

  constructor(options: ChangeWatchOptions) {
    this.#options = options;
    this.#sinceMs = options.clock.now() - overlapMs;
    this.#asOfMs = options.clock.monotonicMs();
  }

  /** Polls once, or waits for the poll under way. Returns false if PostgreSQL does not answer. */
  poll(): Promise<boolean> {
    this.#polling ??= this.#poll().finally(() => {
      this.#polling = null;
    });
    return this.#polling;
  }

  /**
   * Returns null if the last poll is recent enough. Otherwise the promise resolves after a new poll, or after `waitMs`.
   * While PostgreSQL is unavailable, this returns null and no request waits.
   */
  untilFresh(): Promise<void> | null {
    if (this.#isFresh() || this.#options.clock.monotonicMs() < this.#quietUntilMs) return null;
    this.#waiting ??= this.#wait().finally(() => {
      this.#waiting = null;
    });
    return this.#waiting;
  }

  #isFresh(): boolean {
    return this.#options.clock.monotonicMs() - this.#asOfMs <= freshMs;
  }

  async #wait(): Promise<void> {
    let isDone = false;
    const caughtUp = this.#catchUp().then((isFresh) => {
      isDone = true;
      this.#quietUntilMs = isFresh ? 0 : this.#options.clock.monotonicMs() + quietMs;
    });
    await Promise.race([caughtUp, sleep(waitMs, undefined, { ref: false })]);
    // No request waits for the same poll a second time.
    if (!isDone) this.#quietUntilMs = Number.POSITIVE_INFINITY;
  }

  async #catchUp(): Promise<boolean> {
    for (let polls = 0; polls < pollsMax; polls += 1) {
      if (!(await this.poll())) return false;
      if (this.#isFresh()) return true;
    }
    return false;
  }

  async #poll(): Promise<boolean> {
    const { db, clock, log } = this.#options;
    const [startedMs, nowMs] = [clock.monotonicMs(), clock.now()];
    try {
      const changes = await this.#store.ask('changes of keys', pollTimeoutMs, async () => {
        const read = await readRecentChanges(db, ['api_key', 'organization'], this.#sinceMs);
        await this.#takeOver(read.filter(({ id }) => !this.#seen.has(id)));
        return read;
      });
      this.#seen = new Set(changes.map(({ id }) => id));
      this.#sinceMs = nowMs - overlapMs;
      this.#asOfMs = startedMs;
      this.#isFailing = false;
      return true;
    } catch (error) {
      if (!this.#isFailing) {
        log.warn(
          { err: error },
          'changes of API keys and organizations cannot be read from PostgreSQL; known keys work for HEADGATE_AUTH_STALE_SECONDS. Retrying every second',
        );
      }
      this.#isFailing = true;
      return false;
    }
  }

  async #takeOver(changes: readonly RecentChange[]): Promise<void> {
    const idsOf = (type: string, prefix: 'key' | 'org'): string[] => {
      const ids = changes
        .filter(({ targetType }) => targetType === type)
        .map(({ targetId }) => parseId(prefix, targetId));
      return [...new Set(ids.filter((id) => id !== null))];
    };
    await this.#options.refreshKeys(idsOf('api_key', 'key'));
    await this.#options.refreshOrganizations(idsOf('organization', 'org'));
  }
}
