import { setTimeout as sleep } from 'node:timers/promises';
import { BoundedStore } from '#base/bounded-store.ts';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { parseId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { readRecentChanges, type RecentChange } from '#core/audit/audit.ts';

/** Milliseconds between two looks of a gateway at what changed. */
export const changesLookMs = 1000;
/** No caller is known by what was looked at longer ago, while PostgreSQL answers; in milliseconds. */
const freshMs = 2000;
/** So long after its commit every gateway goes by a change that nobody has told it of, while PostgreSQL answers it. */
export const changesKnownMs = freshMs + 200;

/** How far two clocks may be apart, and how long a transaction may take to be seen. */
const overlapMs = 60_000;
/** A connection that was lost without a word may never answer. */
const lookTimeoutMs = 5000;
/** How long requests wait for a look that is due. */
const waitMs = 250;
/** After a look that failed no request waits for another one. */
const quietMs = 1000;
/** One that was under way when the process was frozen says nothing of what happened since. */
const looksMax = 2;

export interface ChangeWatchOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** Take over what PostgreSQL says of these. Ids are UUIDs. */
  readonly refreshKeys: (keyIds: readonly string[]) => Promise<void>;
  readonly refreshOrganizations: (organizationIds: readonly string[]) => Promise<void>;
}

/**
 * Finds in PostgreSQL what changed of keys and organizations: by other gateways whose message did not come, and by
 * commands on the machine, which tell nobody.
 */
export class ChangeWatch {
  readonly #options: ChangeWatchOptions;
  readonly #store = new BoundedStore();
  #sinceMs: number;
  #seen: ReadonlySet<string> = new Set();
  /** When the last look began that succeeded, on the monotonic clock. What was not known then is read as it is. */
  #asOfMs: number;
  #looking: Promise<boolean> | null = null;
  #waiting: Promise<void> | null = null;
  /** On the monotonic clock. */
  #quietUntilMs = 0;
  /** It is said once that looks fail. */
  #isAway = false;

  constructor(options: ChangeWatchOptions) {
    this.#options = options;
    this.#sinceMs = options.clock.now() - overlapMs;
    this.#asOfMs = options.clock.monotonicMs();
  }

  /** Looks once, or waits for the look that is under way. False while PostgreSQL does not answer. */
  look(): Promise<boolean> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  /**
   * Null where the last look is young enough; else what ends when there was one, after `waitMs` at most. While
   * PostgreSQL is away nobody waits.
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
    // Nobody waits for the same look a second time.
    if (!isDone) this.#quietUntilMs = Number.POSITIVE_INFINITY;
  }

  async #catchUp(): Promise<boolean> {
    for (let looks = 0; looks < looksMax; looks += 1) {
      if (!(await this.look())) return false;
      if (this.#isFresh()) return true;
    }
    return false;
  }

  async #look(): Promise<boolean> {
    const { db, clock, log } = this.#options;
    const [startedMs, nowMs] = [clock.monotonicMs(), clock.now()];
    try {
      const changes = await this.#store.ask('changes of keys', lookTimeoutMs, async () => {
        const read = await readRecentChanges(db, ['api_key', 'organization'], this.#sinceMs);
        await this.#takeOver(read.filter(({ id }) => !this.#seen.has(id)));
        return read;
      });
      this.#seen = new Set(changes.map(({ id }) => id));
      this.#sinceMs = nowMs - overlapMs;
      this.#asOfMs = startedMs;
      this.#isAway = false;
      return true;
    } catch (error) {
      if (!this.#isAway) {
        log.warn({ err: error }, 'changes of keys and organizations cannot be read; they are looked for every second');
      }
      this.#isAway = true;
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
