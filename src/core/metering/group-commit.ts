import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { isConnectionError, isConflictOfTransactions } from '#base/db.ts';

/**
 * Group commit: a commit starts at once when none is running, what arrives meanwhile is the next one. A batch that
 * fails because the store is away is tried again until it is back; one that the store refuses is halved until the
 * item at fault stands alone, so that one bad item never holds up the others.
 */
export interface GroupCommitOptions<Item> {
  readonly log: Log;
  readonly clock: Clock;
  readonly batchMax: number;
  /** Writes all items or none; must be safe to repeat when it is not known whether an earlier try took effect. */
  readonly write: (items: readonly Item[]) => Promise<void>;
  readonly retryDelayMs: number;
  /** A commit that takes longer than this counts as a store that is away: drivers may reconnect for ever in silence. */
  readonly stallMs: number;
  /** Called after every batch that was written with its items, and how long it took with all its tries. */
  readonly onCommit?: (items: number, durationMs: number) => void;
}

export interface GroupCommit<Item> {
  /** Resolves when the item is durable; rejects only when the store refused this very item. */
  add(item: Item): Promise<void>;
  /** False while the last try of the current batch failed because the store is away, or says nothing at all. */
  readonly healthy: boolean;
  /** Items that are not durable yet. */
  readonly pending: number;
  /** How long the oldest of them has waited, in milliseconds; 0 when there are none. */
  readonly oldestPendingMs: number;
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
  return new CommitQueue(options);
}

const writeFailed =
  'usage records cannot be written: PostgreSQL is away; they wait in memory, and requests are refused until it is back';

class CommitQueue<Item> implements GroupCommit<Item> {
  readonly #options: GroupCommitOptions<Item>;
  #queue: Waiting<Item>[] = [];
  #inFlight = 0;
  /** Monotonic milliseconds at which the oldest item of each came. */
  #queuedSinceMs = 0;
  #inFlightSinceMs = 0;
  /** Monotonic milliseconds at which the try that is running began. */
  #tryingSinceMs: number | null = null;
  #answers = true;
  #running = false;
  #stopped = false;
  #idlers: (() => void)[] = [];

  constructor(options: GroupCommitOptions<Item>) {
    this.#options = options;
  }

  get healthy(): boolean {
    if (!this.#answers || this.#tryingSinceMs === null) return this.#answers;
    const { clock, stallMs } = this.#options;
    return clock.monotonicMs() - this.#tryingSinceMs < stallMs;
  }

  get pending(): number {
    return this.#queue.length + this.#inFlight;
  }

  get oldestPendingMs(): number {
    if (this.pending === 0) return 0;
    const sinceMs = this.#inFlight > 0 ? this.#inFlightSinceMs : this.#queuedSinceMs;
    return this.#options.clock.monotonicMs() - sinceMs;
  }

  add(item: Item): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      if (this.#queue.length === 0) this.#queuedSinceMs = this.#options.clock.monotonicMs();
      this.#queue.push({ item, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  idle(): Promise<void> {
    return this.#running ? new Promise((resolve) => this.#idlers.push(resolve)) : Promise.resolve();
  }

  stop(): void {
    this.#stopped = true;
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#queue.length > 0) {
      const { batchMax } = this.#options;
      const batch = this.#queue.slice(0, batchMax);
      this.#queue = this.#queue.length > batchMax ? this.#queue.slice(batchMax) : [];
      this.#inFlight = batch.length;
      this.#inFlightSinceMs = this.#queuedSinceMs;
      await this.#commit(batch);
      this.#inFlight = 0;
    }
    this.#running = false;
    for (const resolve of this.#idlers) resolve();
    this.#idlers = [];
  }

  async #commit(batch: readonly Waiting<Item>[]): Promise<void> {
    const { clock, onCommit } = this.#options;
    const sinceMs = clock.monotonicMs();
    const error = await this.#writeUntilKnown(batch);
    if (error === null) {
      onCommit?.(batch.length, clock.monotonicMs() - sinceMs);
      for (const waiting of batch) waiting.resolve();
    } else if (batch.length === 1 || isConnectionError(error)) {
      // A store that is away comes here only once stop() has given up waiting for it.
      const items = batch.map(({ item }) => item);
      this.#options.log.error(
        { err: error, items },
        'usage records could not be written and are given up: their requests are not charged',
      );
      for (const waiting of batch) waiting.reject(error);
    } else {
      const middle = batch.length >> 1;
      await this.#commit(batch.slice(0, middle));
      await this.#commit(batch.slice(middle));
    }
  }

  /** Null once the batch is written, else why the store refused it. */
  async #writeUntilKnown(batch: readonly Waiting<Item>[]): Promise<unknown> {
    const { write, log, retryDelayMs, clock } = this.#options;
    for (;;) {
      try {
        this.#tryingSinceMs = clock.monotonicMs();
        await write(batch.map(({ item }) => item));
        this.#answers = true;
        return null;
      } catch (error) {
        // A deadlock or the like says nothing of the items: the same batch goes through when it is tried again.
        if (isConflictOfTransactions(error)) continue;
        if (!isConnectionError(error)) return error;
        if (this.#answers) log.error({ err: error, pending: this.pending }, writeFailed);
        this.#answers = false;
        if (this.#stopped) return error;
        await new Promise((resolve) => setTimeout(resolve, retryDelayMs));
      } finally {
        this.#tryingSinceMs = null;
      }
    }
  }
}
