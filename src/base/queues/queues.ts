export { BoundedStore } from './bounded-store.ts';
export { type ConcurrencyBounds, ConcurrencyLimit, NoSlotError, TooManyWaitError } from './concurrency-limit.ts';
export { FairQueue } from './fair-queue.ts';
export { createSerial } from './keyed-mutex.ts';
export { createPacedLoop, type PacedLoop } from './paced-loop.ts';
export { createRefreshingCache, type RefreshingCache } from './refreshing-cache.ts';
export { openRunQueue } from './run-queue.ts';
export { createSlotList, type SlotList, type Slotted } from './slot-list.ts';
