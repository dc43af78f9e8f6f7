import type { Clock } from '#base/clock.ts';
import type { CacheBounds, CacheEntryRef, CacheStore } from './store.ts';

interface Entry {
  readonly answer: Buffer;
  readonly expiresMs: number;
}

/** Bytes of an entry besides its answer: the key, the map's slot, the Buffer object. */
const entryOverheadBytes = 512;
const sizeOf = ({ answer }: Entry): number => answer.length + entryOverheadBytes;

/** Creates a store in this process's memory; the least recently used answer is evicted first. */
export function createMemoryStore(options: CacheBounds & { readonly clock: Clock }): CacheStore {
  return new MemoryStore(options);
}

class MemoryStore implements CacheStore {
  readonly #clock: Clock;
  readonly #bytesMax: number;
  readonly #ageMaxMs: number;
  /** Entries in the order of their last use, the newest last. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor({ clock, bytesMax, ageMaxMs }: CacheBounds & { readonly clock: Clock }) {
    this.#clock = clock;
    this.#bytesMax = bytesMax;
    this.#ageMaxMs = ageMaxMs;
  }

  get({ key }: CacheEntryRef): Buffer | null {
    const entry = this.#entries.get(key);
    if (entry === undefined) return null;
    this.#drop(key, entry);
    if (entry.expiresMs <= this.#clock.monotonicMs()) return null;
    this.#put(key, entry);
    return entry.answer;
  }

  set({ key }: CacheEntryRef, answer: Buffer): void {
    const entry = { answer, expiresMs: this.#clock.monotonicMs() + this.#ageMaxMs };
    if (sizeOf(entry) > this.#bytesMax) return;
    const old = this.#entries.get(key);
    if (old !== undefined) this.#drop(key, old);
    this.#put(key, entry);
    for (const [oldest, { answer: bytes, expiresMs }] of this.#entries) {
      if (this.#bytes <= this.#bytesMax) break;
      this.#drop(oldest, { answer: bytes, expiresMs });
    }
  }

  #put(key: string, entry: Entry): void {
    this.#entries.set(key, entry);
    this.#bytes += sizeOf(entry);
  }

  #drop(key: string, entry: Entry): void {
    this.#entries.delete(key);
    this.#bytes -= sizeOf(entry);
  }
}
