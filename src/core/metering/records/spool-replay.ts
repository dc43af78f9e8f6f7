import { setTimeout } from 'node:timers/promises';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { Spool, SpoolEntry } from '#base/spool.ts';
import { classify } from './commit-errors.ts';
import type { GroupCommitOptions } from './commit-options.ts';

interface Entry<Item> {
  readonly item: Item;
  readonly entry: SpoolEntry;
}

/** A batch that is retried later, so that others need not wait for it. */
interface SetAside<Item> {
  readonly entries: Entry<Item>[];
  /** Group whose rows are locked; null if it is unknown what is wrong with the batch. */
  readonly group: string | null;
  tries: number;
  /** Monotonic milliseconds. */
  dueMs: number;
  /** Number of commits of others when it first failed. */
  readonly commitsBefore: number;
}

/** Number of tries of a batch that Postgres rejects for an unknown reason, before others are tried without it. */
const triesMin = 5;
/** Maximum number of items set aside in memory. Beyond it, nothing more is read from the spool. */
const setAsideMax = 20_000;

/**
 * Writes spooled items to the store, oldest first. Items of a group whose rows are locked are set aside, and others are
 * written. A batch that the store rejects for an unknown reason is set aside too. Once others were written after it,
 * the fault is its own, and it is halved until a single item is left.
 */
export class SpoolReplay<Item> {
  readonly #options: GroupCommitOptions<Item>;
  readonly #spool: Spool;
  readonly #clock: Clock;
  readonly #log: Log;
  #setAside: SetAside<Item>[] = [];
  #commits = 0;
  #isStopped = false;
  #wakers: (() => void)[] = [];
  readonly #stopping = new AbortController();

  constructor(options: GroupCommitOptions<Item>) {
    this.#options = options;
    ({ spool: this.#spool, clock: this.#clock, log: this.#log } = options);
  }

  /** True if the rows of any group are locked. */
  get isBlocked(): boolean {
    return this.#setAside.some(({ group }) => group !== null);
  }

  wake(): void {
    const wakers = this.#wakers;
    this.#wakers = [];
    for (const wake of wakers) wake();
  }

  stop(): void {
    this.#isStopped = true;
    this.#stopping.abort();
    this.wake();
  }

  /** Runs the next due step. @returns false if nothing is due */
  async step(): Promise<boolean> {
    const nowMs = this.#clock.monotonicMs();
    const due = this.#setAside.find(({ dueMs }) => dueMs <= nowMs);
    if (due !== undefined) {
      await this.#tryAgain(due);
      return true;
    }
    if (this.#spool.isRead) return false;
    if (this.#setAside.reduce((sum, { entries }) => sum + entries.length, 0) >= setAsideMax) return this.wait();
    await this.#readOn();
    return true;
  }

  /** Waits until something that is set aside is due, or until it is woken. @returns false if nothing is set aside */
  async wait(): Promise<boolean> {
    if (this.#setAside.length === 0) return false;
    const dueMs = Math.min(...this.#setAside.map((aside) => aside.dueMs));
    await this.sleep(Math.max(0, dueMs - this.#clock.monotonicMs()));
    return true;
  }

  async sleep(ms: number): Promise<void> {
    if (this.#isStopped) return;
    await new Promise<void>((resolve) => {
      const timer = globalThis.setTimeout(resolve, ms);
      this.#wakers.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /**
   * Quarantines an item that the store permanently rejects. @returns false if replay was stopped before that succeeded
   */
  async quarantine(item: Item | null, data: Buffer, error: unknown): Promise<boolean> {
    const described = item === null ? null : this.#options.describe(item);
    this.#log.error(
      { err: error, item: described },
      'PostgreSQL rejected a usage record; it is not billed. GET /v1/admin/quarantine lists such records; retry or discard each',
    );
    while (!this.#isStopped) {
      try {
        await this.#options.quarantine(item, data, error);
        return true;
      } catch (quarantineError) {
        this.#log.warn(
          { err: quarantineError },
          'a rejected usage record could not be put into quarantine (usage_quarantine); it stays in the spool. Retrying',
        );
        await this.#pause(this.#options.retryDelayMs);
      }
    }
    return false;
  }

  async #readOn(): Promise<void> {
    let read: SpoolEntry[];
    try {
      read = await this.#spool.read(this.#options.batchMax);
    } catch (error) {
      this.#log.error({ err: error }, 'usage records in the spool cannot be read, and are not billed yet; retrying');
      await this.#pause(this.#options.retryDelayMsMax);
      return;
    }
    const batch: Entry<Item>[] = [];
    for (const entry of read) {
      const item = await this.#decode(entry);
      if (item === null) continue;
      const group = this.#options.groupOf(item);
      const aside = this.#setAside.find((other) => other.group === group);
      if (aside === undefined) batch.push({ item, entry });
      else aside.entries.push({ item, entry });
    }
    await this.#book(batch);
  }

  async #decode(entry: SpoolEntry): Promise<Item | null> {
    try {
      return this.#options.decode(entry.data);
    } catch (error) {
      if (await this.quarantine(null, entry.data, error)) await this.#done(entry);
      return null;
    }
  }

  /** Writes entries, and retries until each one is written, rejected or set aside. */
  async #book(entries: readonly Entry<Item>[]): Promise<void> {
    for (let tries = 1; !this.#isStopped && entries.length > 0; tries += 1) {
      const error = await this.#write(entries);
      if (error === null) return;
      const kind = classify(error, tries);
      if (kind === 'conflict') continue;
      if (kind === 'data' || kind === 'blocked') return this.#part(entries, kind, error);
      // Only one batch at a time is suspected: if the next one fails as well, the batch is not the cause.
      const isSuspect = kind === 'refused' && tries >= triesMin && !this.#setAside.some(({ group }) => group === null);
      if (isSuspect) return this.#defer({ entries: [...entries], group: null, tries });
      await this.#pause(this.#delayMs(tries));
    }
  }

  async #part(entries: readonly Entry<Item>[], kind: 'data' | 'blocked', error: unknown): Promise<void> {
    if (kind === 'blocked') {
      const groups = Map.groupBy(entries, ({ item }) => this.#options.groupOf(item));
      for (const [group, own] of groups) {
        if (groups.size > 1) await this.#book(own);
        else this.#defer({ entries: own, group, tries: 1 });
      }
      return;
    }
    const [first] = entries;
    if (first !== undefined && entries.length === 1) return this.#refuse(first, error);
    const middle = entries.length >> 1;
    await this.#book(entries.slice(0, middle));
    await this.#book(entries.slice(middle));
  }

  async #tryAgain(aside: SetAside<Item>): Promise<void> {
    const { entries, group, commitsBefore } = aside;
    const error = await this.#write(entries);
    if (error === null) {
      this.#drop(aside);
      return;
    }
    aside.tries += 1;
    const kind = classify(error, aside.tries);
    aside.dueMs = this.#clock.monotonicMs() + this.#delayMs(aside.tries);
    if (kind === 'data') {
      this.#drop(aside);
      await this.#part(entries, kind, error);
    } else if (kind === 'refused' && group === null && this.#commits > commitsBefore) {
      const [first] = entries;
      if (first !== undefined && entries.length === 1) {
        if (aside.tries < triesMin) return;
        this.#drop(aside);
        await this.#refuse(first, error);
        return;
      }
      this.#drop(aside);
      const middle = entries.length >> 1;
      for (const half of [entries.slice(0, middle), entries.slice(middle)]) {
        this.#defer({ entries: half, group, tries: 0 });
      }
    }
  }

  #defer({ entries, group, tries }: Pick<SetAside<Item>, 'entries' | 'group' | 'tries'>): void {
    const dueMs = this.#clock.monotonicMs() + this.#delayMs(tries);
    this.#setAside.push({ entries, group, tries, dueMs, commitsBefore: this.#commits });
    this.#log.warn(
      { items: entries.length, group },
      'some usage records cannot be written to PostgreSQL yet, for example because of a lock; they stay in the spool. Retrying',
    );
  }

  #drop(aside: SetAside<Item>): void {
    this.#setAside = this.#setAside.filter((other) => other !== aside);
  }

  /** @returns null if they were written, else the error */
  async #write(entries: readonly Entry<Item>[]): Promise<unknown> {
    const items = entries.map(({ item }) => item);
    try {
      await this.#options.write(items);
    } catch (error) {
      return error;
    }
    this.#commits += 1;
    for (const { entry } of entries) await this.#done(entry);
    this.#options.onUnspooled(items, true);
    return null;
  }

  async #refuse({ item, entry }: Entry<Item>, error: unknown): Promise<void> {
    if (!(await this.quarantine(item, entry.data, error))) return;
    await this.#done(entry);
    this.#options.onUnspooled([item], false);
  }

  async #done(entry: SpoolEntry): Promise<void> {
    try {
      await this.#spool.done(entry);
    } catch (error) {
      // The file is written once more after the next start, which changes nothing.
      this.#log.warn(
        { err: error },
        'a file of the spool could not be deleted; its usage records are in PostgreSQL and are not billed twice',
      );
    }
  }

  #delayMs(tries: number): number {
    return Math.min(this.#options.retryDelayMs * 2 ** Math.min(tries, 10), this.#options.retryDelayMsMax);
  }

  /** Waits. Unlike `sleep`, new items do not end the wait. */
  async #pause(ms: number): Promise<void> {
    await setTimeout(ms, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
  }
}
