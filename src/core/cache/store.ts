/** Where answers are kept, bounded in size and age. A key is hexadecimal and belongs to one organization. */
export interface CacheStore {
  /** Null where nothing is kept, or when it cannot be said in time. */
  get(entry: CacheEntryRef): Buffer | null | Promise<Buffer | null>;
  /** Keeps an answer; older ones make room for it. Never throws and never rejects. */
  set(entry: CacheEntryRef, answer: Buffer): void | Promise<void>;
}

export interface CacheEntryRef {
  readonly organizationId: string;
  readonly key: string;
}

export interface CacheBounds {
  /** Bytes of all answers together. */
  readonly bytesMax: number;
  readonly ageMaxMs: number;
}
