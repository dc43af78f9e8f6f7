import type { Clock } from '#base/clock.ts';
import { uuidTimeMs } from '#base/id.ts';
import type { LedgerHealth, CountedTokens, KeyRef, Settlement } from '#core/admission/contract/contract.ts';
import { type KeyLimits, type KeyUse, monthStartMs, reserve, unusedKey } from '#core/limits/limits.ts';

export interface Key {
  readonly use: KeyUse;
  /** Start of the month that `use.monthTokens` counts; null if the count is not known. */
  monthMs: number | null;
  /** Counts admissions and settlements. Tokens that are read while one happens may or may not include it. */
  changes: number;
}

/** Counts of a request in the month of its key. */
export interface MonthHold {
  readonly keyId: string;
  readonly estimatedTokens: number;
  /** Month in which the request is counted, and the number of tokens. */
  monthMs: number | null;
  monthTokens: number;
  /** Usage if it is durable and not in the database yet, else null. */
  readonly spooled: Settlement | null;
}

export interface MemoryKeysOptions {
  readonly loadTokens: (
    key: Pick<KeyRef, 'keyId' | 'organizationId'>,
    sinceMs: number,
    requestIds: readonly string[],
  ) => Promise<CountedTokens>;
  /** Requests that run or wait to be recorded. */
  readonly holds: ReadonlyMap<string, MonthHold>;
  readonly books: LedgerHealth;
  readonly clock: Clock;
}

/** If there are this many keys, those without state to remember are dropped. */
const keysKeptMax = 10_000;

/** Use of keys, in this process's memory. */
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

  /** Returns the state of a key, creating it if needed. @param windowsNowMs time in which windows are counted */
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

  /** Reads the month from the database, and adds the requests that run or wait to be recorded. */
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
      const recordedIds = new Set(counted);
      for (const [id, hold] of holds) {
        if (hold.keyId !== keyId) continue;
        // A request that was accepted last month counts in that month in the database, however long it runs.
        const isCounted = !recordedIds.has(id) && uuidTimeMs(id) >= sinceMs;
        hold.monthMs = isCounted ? sinceMs : null;
        hold.monthTokens = hold.spooled?.tokens ?? reserveOfMonth(hold.estimatedTokens, limits);
        if (isCounted) key.use.monthTokens += hold.monthTokens;
      }
      return;
    }
  }

  /**
   * Drops keys without a window, debt or running requests: they equal new ones. Their month is read again, so keys with
   * a known month stay while the database is unavailable.
   */
  #forgetOld(windowsNowMs: number): void {
    const endedMs = windowsNowMs - 60_000;
    for (const [keyId, { use, monthMs }] of this.#keys) {
      if (use.running > 0 || use.tokens > 0 || use.windowStartMs >= endedMs) continue;
      if (monthMs === null || !this.#options.books.isUnavailable) this.#keys.delete(keyId);
    }
  }
}

/** Tokens that a request counts as in a counted month, with or without a limit. */
export function reserveOfMonth(estimatedTokens: number, { monthlyTokenLimit }: KeyLimits): number {
  return monthlyTokenLimit === null ? estimatedTokens : reserve(estimatedTokens, monthlyTokenLimit);
}
