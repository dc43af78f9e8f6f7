export { BoundedStore } from './bounded-store.ts';
export { TooManyWaitError, Turns } from './concurrency-limit.ts';
export { type FairTurnBounds, FairTurns, NoTurnError } from './fair-concurrency-limit.ts';
export { FairQueue } from './fair-queue.ts';
export { createSerial } from './keyed-mutex.ts';
export { createPacedLoop, type PacedLoop } from './paced-loop.ts';
export { createRefreshingCache, type RefreshingCache } from './refreshing-cache.ts';
export { openRunQueue } from './run-queue.ts';
