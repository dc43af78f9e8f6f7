/** A store of answers, limited in size and age. A key is hexadecimal and belongs to one organization. */
export interface CacheStore {
  /** Returns null if nothing is stored, or if the store does not answer in time. */
  get(entry: CacheEntryRef): Buffer | null | Promise<Buffer | null>;
  /** Stores an answer, and evicts older ones. Never throws and never rejects. */
  set(entry: CacheEntryRef, answer: Buffer): void | Promise<void>;
}

export interface CacheEntryRef {
  readonly organizationId: string;
  readonly key: string;
}

export interface CacheBounds {
  /** Maximum bytes of all answers together. */
  readonly bytesMax: number;
  readonly ageMaxMs: number;
}
