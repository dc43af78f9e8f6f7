import type { Log } from '#base/log.ts';
import { isConnectionError, isConflictOfTransactions } from '#base/db.ts';

/**
 * Group commit: a commit starts at once when none is running, what arrives meanwhile is the next one. A batch that
 * fails because the store is away is tried again until it is back; one that the store refuses is halved until the
 * item at fault stands alone, so that one bad item never holds up the others.
 */
export interface GroupCommitOptions<Item> {
  readonly log: Log;
  readonly batchMax: number;
  /** Writes all items or none; must be safe to repeat when it is not known whether an earlier try took effect. */
  readonly write: (items: readonly Item[]) => Promise<void>;
  readonly retryDelayMs: number;
}

export interface GroupCommit<Item> {
  /** Resolves when the item is durable; rejects only when the store refused this very item. */
  add(item: Item): Promise<void>;
  /** False while the last try of the current batch failed because the store is away. */
  readonly healthy: boolean;
  /** Items that are not durable yet. */
  readonly pending: number;
  /** Resolves when nothing is pending. */
  idle(): Promise<void>;
  /** Gives up waiting for a store that is away: what is pending is rejected. */
  stop(): void;
}

interface Waiting<Item> {
  readonly item: Item;
  resolve(): void;
  reject(error: unknown): void;
}

export function createGroupCommit<Item>(options: GroupCommitOptions<Item>): GroupCommit<Item> {
  const { log, batchMax, write, retryDelayMs } = options;
  let queue: Waiting<Item>[] = [];
  let running = false;
  let inFlight = 0;
  let healthy = true;
  let stopped = false;
  let idlers: (() => void)[] = [];

  async function writeUntilKnown(batch: readonly Waiting<Item>[]): Promise<unknown> {
    for (;;) {
      try {
        await write(batch.map(({ item }) => item));
        healthy = true;
        return null;
      } catch (error) {
        // A deadlock or the like says nothing of the items: the same batch goes through when it is tried again.
        if (isConflictOfTransactions(error)) continue;
        if (!isConnectionError(error)) return error;
        if (healthy) log.error({ err: error, pending: batch.length }, 'the books cannot be written; trying again');
        healthy = false;
        if (stopped) return error;
        await new Promise((resolve) => setTimeout(resolve, retryDelayMs));
      }
    }
  }

  async function commit(batch: readonly Waiting<Item>[]): Promise<void> {
    const error = await writeUntilKnown(batch);
    if (error === null) {
      for (const waiting of batch) waiting.resolve();
    } else if (batch.length === 1 || stopped) {
      log.error({ err: error, items: batch.map(({ item }) => item) }, 'the books refused a record');
      for (const waiting of batch) waiting.reject(error);
    } else {
      const middle = batch.length >> 1;
      await commit(batch.slice(0, middle));
      await commit(batch.slice(middle));
    }
  }

  async function run(): Promise<void> {
    running = true;
    while (queue.length > 0) {
      const batch = queue.slice(0, batchMax);
      queue = queue.length > batchMax ? queue.slice(batchMax) : [];
      inFlight = batch.length;
      await commit(batch);
      inFlight = 0;
    }
    running = false;
    for (const resolve of idlers) resolve();
    idlers = [];
  }

  return {
    add(item) {
      return new Promise<void>((resolve, reject) => {
        queue.push({ item, resolve, reject });
        if (!running) void run();
      });
    },
    idle: () => (running ? new Promise((resolve) => idlers.push(resolve)) : Promise.resolve()),
    stop() {
      stopped = true;
    },
    get healthy() {
      return healthy;
    },
    get pending() {
      return queue.length + inFlight;
    },
  };
}
