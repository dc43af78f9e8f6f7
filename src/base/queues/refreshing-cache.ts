import type { Clock } from '#base/clock.ts';

/**
 * A bounded map in front of a slow source. A cached value is answered at once, at any age; a value older than
 * `refreshAfterMs` is looked up again after the answer. While the source is unavailable, cached values stay, and are
 * answered for `staleMs`. Missing names are not cached, so that made-up names cannot displace real ones.
 */
export interface RefreshingCache<V> {
  /** @throws the source's error, if there is no cached value or it is too old */
  get(name: string): V | null | Promise<V | null>;
  /** The cached value, without a look-up. */
  peek(name: string): V | null;
  /** Applies a change in the source to the cached value, and restarts a running look-up of the name. */
  update(name: string, change: (held: V) => V): void;
  /** Applies a change to every value that `applies` matches, and restarts all look-ups. Null removes the value. */
  updateWhere(applies: (held: V) => boolean, change: (held: V) => V | null): void;
  /** Returns all cached values. */
  values(): readonly V[];
}

export interface RefreshingCacheOptions<V> {
  readonly clock: Clock;
  readonly entriesMax: number;
  readonly refreshAfterMs: number;
  /** Looks a name up in the source; null if the source does not have it. */
  readonly load: (name: string) => Promise<V | null>;
  /** Milliseconds for which cached values are answered while the source is unavailable; absent: indefinitely. */
  readonly staleMs?: number;
  /** True if a look-up failed because the source is unavailable. If absent, every failure means that. */
  readonly isUnavailable?: (error: unknown) => boolean;
  /** Called when a look-up after an answer fails; the cached value stays. */
  readonly onRefreshFailed: (error: unknown) => void;
}

interface Entry<V> {
  value: V;
  /** Monotonic milliseconds after which the value is looked up again. */
  refreshAtMs: number;
  refreshing: boolean;
  /** True if the entry was used since eviction last passed it over. */
  used: boolean;
}

interface LookUp<V> {
  readonly promise: Promise<V | null>;
  /** True if the value was changed after the look-up began. */
  outdated: boolean;
}

/** Milliseconds between look-ups while the source is unavailable. */
const retryAfterMs = 1000;
/** Attempts of a look-up whose value changes meanwhile; the answer of the last attempt is not cached. */
const attemptsMax = 10;

interface CachedValues<V> {
  readonly entries: Map<string, Entry<V>>;
  readonly hold: (name: string, value: V, refreshAtMs: number) => void;
}

function createCachedValues<V>(entriesMax: number): CachedValues<V> {
  const entries = new Map<string, Entry<V>>();
  /** Removes the oldest entry unused since it was last passed over: close to least recently used, but cheaper. */
  const evict = (): void => {
    for (const [name, entry] of entries) {
      entries.delete(name);
      if (!entry.used) return;
      entry.used = false;
      entries.set(name, entry);
    }
  };
  const hold = (name: string, value: V, refreshAtMs: number): void => {
    const entry = entries.get(name);
    if (entry !== undefined) {
      entry.value = value;
      entry.refreshAtMs = refreshAtMs;
      return;
    }
    if (entries.size >= entriesMax) evict();
    entries.set(name, { value, refreshAtMs, refreshing: false, used: false });
  };
  return { entries, hold };
}

/** Tracks whether the source answers, by the outcomes of the last look-ups. */
class Source {
  readonly #options: Pick<RefreshingCacheOptions<unknown>, 'clock' | 'staleMs' | 'isUnavailable'>;
  /** Monotonic time at which the first failed look-up began; null while look-ups succeed. */
  #unavailableSinceMs: number | null = null;
  #failedMs = 0;
  #error: unknown;

  constructor(options: Pick<RefreshingCacheOptions<unknown>, 'clock' | 'staleMs' | 'isUnavailable'>) {
    this.#options = options;
  }

  async load<V>(load: () => Promise<V>): Promise<V> {
    const { clock, isUnavailable = () => true } = this.#options;
    const startedMs = clock.monotonicMs();
    try {
      const value = await load();
      this.#unavailableSinceMs = null;
      return value;
    } catch (error) {
      if (isUnavailable(error)) {
        this.#unavailableSinceMs ??= startedMs;
        this.#failedMs = clock.monotonicMs();
        this.#error = error;
      }
      throw error;
    }
  }

  /** True if the source was unavailable for longer than `staleMs`, so that cached values are not answered any more. */
  get isStale(): boolean {
    const { clock, staleMs = Number.POSITIVE_INFINITY } = this.#options;
    return this.#unavailableSinceMs !== null && clock.monotonicMs() - this.#unavailableSinceMs > staleMs;
  }

  /** Error of the last look-up if it is too recent to try again; otherwise null. */
  get failure(): { readonly error: unknown } | null {
    const isFresh = this.#options.clock.monotonicMs() - this.#failedMs < retryAfterMs;
    return this.#unavailableSinceMs !== null && isFresh ? { error: this.#error } : null;
  }
}

function changeEntry<V>(entry: Entry<V>, value: V, clock: Clock): void {
  entry.value = value;
  // Changes may arrive in another order than that of their commits, so the next use looks the value up again.
  entry.refreshAtMs = clock.monotonicMs();
}

export function createRefreshingCache<V>(options: RefreshingCacheOptions<V>): RefreshingCache<V> {
  const { clock, entriesMax, refreshAfterMs, load, onRefreshFailed } = options;
  const { entries, hold } = createCachedValues<V>(entriesMax);
  const lookUps = new Map<string, LookUp<V>>();
  const source = new Source(options);

  const lookUp = async (name: string, state: { outdated: boolean }): Promise<V | null> => {
    for (let attempt = 1; ; attempt += 1) {
      state.outdated = false;
      const value = await source.load(() => load(name));
      if (!state.outdated) {
        if (value === null) entries.delete(name);
        else hold(name, value, clock.monotonicMs() + refreshAfterMs);
        return value;
      }
      if (attempt === attemptsMax) return value;
    }
  };
  const lookUpOnce = (name: string): Promise<V | null> => {
    const running = lookUps.get(name);
    if (running !== undefined) return running.promise;
    const state = { outdated: false };
    const promise = lookUp(name, state).finally(() => lookUps.delete(name));
    lookUps.set(name, Object.assign(state, { promise }));
    return promise;
  };
  const refresh = async (name: string, entry: Entry<V>): Promise<void> => {
    entry.refreshing = true;
    try {
      await lookUpOnce(name);
    } catch (error) {
      entry.refreshAtMs = clock.monotonicMs() + retryAfterMs;
      onRefreshFailed(error);
    } finally {
      entry.refreshing = false;
    }
  };
  return {
    get(name) {
      const entry = entries.get(name);
      if (entry === undefined) return lookUpOnce(name);
      entry.used = true;
      if (source.isStale) {
        const { failure } = source;
        if (failure !== null) throw failure.error;
        return lookUpOnce(name);
      }
      if (!entry.refreshing && clock.monotonicMs() >= entry.refreshAtMs) void refresh(name, entry);
      return entry.value;
    },
    peek: (name) => entries.get(name)?.value ?? null,
    update(name, change) {
      const running = lookUps.get(name);
      if (running !== undefined) running.outdated = true;
      const entry = entries.get(name);
      if (entry === undefined) return;
      changeEntry(entry, change(entry.value), clock);
    },
    updateWhere(applies, change) {
      for (const lookUp of lookUps.values()) lookUp.outdated = true;
      for (const [name, entry] of entries) {
        if (!applies(entry.value)) continue;
        const value = change(entry.value);
        if (value === null) entries.delete(name);
        else changeEntry(entry, value, clock);
      }
    },
    values: () => [...entries.values()].map(({ value }) => value),
  };
}
