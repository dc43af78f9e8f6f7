import type { Clock } from '#base/clock.ts';
import { uuidTimeMs } from '#base/id.ts';
import { type KeyLimits, type KeyUse, monthStartMs, reserve, unusedKey } from '#core/limits/limits.ts';
import type { BooksWatch } from './books-watch.ts';
import type { CountedTokens, KeyRef, Settlement } from './contract.ts';

export interface Key {
  readonly use: KeyUse;
  /** First moment of the month that `use.monthTokens` counts; null while that is not known. */
  monthMs: number | null;
  /** Counts admissions and settlements: what is read of the books while one happens may hold it or not. */
  changes: number;
}

/** What a request counts as in the month of its key. */
export interface MonthHold {
  readonly keyId: string;
  readonly estimatedTokens: number;
  /** The month that counts this request, and as what. */
  monthMs: number | null;
  monthTokens: number;
  /** Durable, and not in the books yet: what was used, else null. */
  readonly spooled: Settlement | null;
}

export interface MemoryKeysOptions {
  readonly loadTokens: (
    key: Pick<KeyRef, 'keyId' | 'organizationId'>,
    sinceMs: number,
    requestIds: readonly string[],
  ) => Promise<CountedTokens>;
  /** Requests that run or wait to be booked. */
  readonly holds: ReadonlyMap<string, MonthHold>;
  readonly books: BooksWatch;
  readonly clock: Clock;
}

/** Keys with nothing to remember are forgotten when there are this many of them. */
const keysKeptMax = 10_000;

/** What keys have used, in this process's memory. */
export class MemoryKeys {
  readonly #options: MemoryKeysOptions;
  readonly #keys = new Map<string, Key>();
  readonly #monthsLoading = new Map<string, Promise<void>>();

  constructor(options: MemoryKeysOptions) {
    this.#options = options;
  }

  find(keyId: string): Key | undefined {
    return this.#keys.get(keyId);
  }

  /** @param windowsNowMs in the time in which windows are counted */
  keyOf(keyId: string, windowsNowMs: () => number): Key {
    const found = this.#keys.get(keyId);
    if (found !== undefined) return found;
    if (this.#keys.size >= keysKeptMax) this.#forgetOld(windowsNowMs());
    const key: Key = { use: unusedKey(), monthMs: null, changes: 0 };
    this.#keys.set(keyId, key);
    return key;
  }

  knowsMonth(key: Key, limits: KeyLimits): boolean {
    return limits.monthlyTokenLimit === null || key.monthMs === monthStartMs(this.#options.clock.now());
  }

  loadMonth({ keyId, organizationId, limits }: KeyRef, key: Key): Promise<void> {
    const running = this.#monthsLoading.get(keyId);
    if (running !== undefined) return running;
    const started = this.#readMonth({ keyId, organizationId, limits }, key).finally(() =>
      this.#monthsLoading.delete(keyId),
    );
    this.#monthsLoading.set(keyId, started);
    return started;
  }

  /** Has the months of all keys read again. */
  forget(): void {
    for (const key of this.#keys.values()) {
      key.changes += 1;
      key.monthMs = null;
    }
  }

  /** What the books have, and what runs or waits to be booked beside it. */
  async #readMonth({ keyId, organizationId, limits }: KeyRef, key: Key): Promise<void> {
    const { clock, holds, books, loadTokens } = this.#options;
    const sinceMs = monthStartMs(clock.now());
    for (;;) {
      const { changes } = key;
      const ids = [...holds].filter(([, hold]) => hold.keyId === keyId).map(([id]) => id);
      const { tokens, counted } = await books.ask(() => loadTokens({ keyId, organizationId }, sinceMs, ids));
      if (key.changes !== changes) continue;
      key.monthMs = sinceMs;
      key.use.monthTokens = tokens;
      const inBooks = new Set(counted);
      for (const [id, hold] of holds) {
        if (hold.keyId !== keyId) continue;
        // One that was accepted in the month before is in the books of that one, however long it runs.
        const isCounted = !inBooks.has(id) && uuidTimeMs(id) >= sinceMs;
        hold.monthMs = isCounted ? sinceMs : null;
        hold.monthTokens = hold.spooled?.tokens ?? reserveOfMonth(hold.estimatedTokens, limits);
        if (isCounted) key.use.monthTokens += hold.monthTokens;
      }
      return;
    }
  }

  /**
   * A key without a window, debt and running requests is as good as a new one; its month is read again, unless nobody
   * could say it.
   */
  #forgetOld(windowsNowMs: number): void {
    const endedMs = windowsNowMs - 60_000;
    for (const [keyId, { use, monthMs }] of this.#keys) {
      if (use.running > 0 || use.tokens > 0 || use.windowStartMs >= endedMs) continue;
      if (monthMs === null || !this.#options.books.isAway) this.#keys.delete(keyId);
    }
  }
}

/** What a request counts as in a month that is counted, whether it is limited or not. */
export function reserveOfMonth(estimatedTokens: number, { monthlyTokenLimit }: KeyLimits): number {
  return monthlyTokenLimit === null ? estimatedTokens : reserve(estimatedTokens, monthlyTokenLimit);
}
