import { classify } from './commit-errors.ts';
import type { GroupCommitOptions } from './commit-options.ts';
import { SpoolReplay } from './spool-replay.ts';

/** Place where an item is durable: in the store, or on its way there. */
export type Durable = 'booked' | 'spooled';

/**
 * Group commit: a commit starts at once if none is running; items that arrive meanwhile go into the next one. While the
 * store is unavailable, or takes longer than `spoolAfterMs`, items go to a spool on disk instead, which makes them
 * durable as well, and from there to the store once it is back. The store may get an item more than once.
 */
export interface GroupCommit<Item> {
  /**
   * Begins to write the items that other processes left in the spool; to be called again when more were moved there.
   */
  begin(): void;
  /** Resolves when the item is durable; rejects only if the store permanently rejects this item. */
  add(item: Item): Promise<Durable>;
  /** Items that are not durable yet. */
  readonly pending: number;
  /** Milliseconds that the oldest pending item has waited; 0 if there are none. */
  readonly oldestPendingMs: number;
  /** Items that are durable and not in the store, including those of an earlier process. */
  readonly spooled: number;
  /** Bytes of the spool's files. */
  readonly spooledBytes: number;
  /** Milliseconds for which the store has accepted nothing although there was something to write. */
  readonly unavailableMs: number;
  /** True if the store answered the last failed try: its rejection may be the fault of these items. */
  readonly isRefused: boolean;
  /** Resolves when everything is in the store. */
  idle(): Promise<void>;
  /** Ends all tries. Durable items stay durable; all others are rejected. */
  stop(): Promise<void>;
}

interface Waiting<Item> {
  readonly item: Item;
  /** Monotonic milliseconds. */
  readonly sinceMs: number;
  /** True if the item is durable, or rejected. */
  isDone: boolean;
  isAppending: boolean;
  resolve(durable: Durable): void;
  reject(error: unknown): void;
}

export function createGroupCommit<Item>(options: GroupCommitOptions<Item>): GroupCommit<Item> {
  return new CommitQueue(options);
}

const isOpen = ({ isDone }: { readonly isDone: boolean }): boolean => !isDone;
const undone = <Item>(waiting: readonly Waiting<Item>[]): Waiting<Item>[] => waiting.filter(isOpen);

class CommitQueue<Item> implements GroupCommit<Item> {
  readonly #options: GroupCommitOptions<Item>;
  readonly #replay: SpoolReplay<Item>;
  #queue: Waiting<Item>[] = [];
  /** Items that are being written to the store directly. */
  #inFlight: readonly Waiting<Item>[] = [];
  /** Items that are being written to the spool. */
  #appending: readonly Waiting<Item>[] = [];
  #appended: Promise<void> | null = null;
  /** Called after every try to append. */
  #appendListeners: (() => void)[] = [];
  /** True if the spool accepts nothing at the moment. */
  #isSpoolFull = false;
  /** True if new items go to the spool. */
  #isSpooling: boolean;
  #isRunning = false;
  #isStopped = false;
  #awaySinceMs: number | null = null;
  #isRefused = false;
  #idlers: (() => void)[] = [];

  constructor(options: GroupCommitOptions<Item>) {
    this.#options = options;
    this.#replay = new SpoolReplay({ ...options, write: (items) => this.#write(items) });
    this.#isSpooling = !options.spool.isRead;
  }

  begin(): void {
    if (this.#options.spool.isRead) return;
    // Items that arrive meanwhile go to the disk, so that they do not wait until all older items are written.
    this.#spool();
    this.#start();
  }

  get pending(): number {
    return undone(this.#inFlight).length + this.#appending.length + this.#queue.length;
  }

  get oldestPendingMs(): number {
    const oldestMs = Math.min(
      this.#inFlight.find(isOpen)?.sinceMs ?? Infinity,
      this.#appending[0]?.sinceMs ?? Infinity,
      this.#queue[0]?.sinceMs ?? Infinity,
    );
    return oldestMs === Infinity ? 0 : this.#options.clock.monotonicMs() - oldestMs;
  }

  get spooled(): number {
    return this.#options.spool.count;
  }

  get spooledBytes(): number {
    return this.#options.spool.bytes;
  }

  get unavailableMs(): number {
    return this.#awaySinceMs === null ? 0 : this.#options.clock.monotonicMs() - this.#awaySinceMs;
  }

  get isRefused(): boolean {
    return this.#isRefused;
  }

  add(item: Item): Promise<Durable> {
    return new Promise((resolve, reject) => {
      if (this.#isStopped) {
        reject(new Error('the gateway is stopping and writes no more records'));
        return;
      }
      const sinceMs = this.#options.clock.monotonicMs();
      this.#queue.push({ item, sinceMs, isDone: false, isAppending: false, resolve, reject });
      if (this.#isSpooling) this.#append();
      this.#start();
    });
  }

  idle(): Promise<void> {
    return this.#isRunning ? new Promise((resolve) => this.#idlers.push(resolve)) : Promise.resolve();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#replay.stop();
    await this.#appended;
    for (const waiting of undone([...this.#inFlight, ...this.#queue])) {
      waiting.isDone = true;
      waiting.reject(new Error('the record was not stored before the gateway stopped'));
    }
    this.#queue = [];
    await this.#options.spool.close();
  }

  #start(): void {
    this.#replay.wake();
    if (this.#isRunning || this.#isStopped) return;
    this.#isRunning = true;
    void this.#run();
  }

  /** Writes to the store. Only one run at a time. */
  async #run(): Promise<void> {
    // Items that came between the end of a step and this line started no run, since one was running.
    while (!this.#isStopped && ((await this.#step()) || this.#queue.length > 0 || !this.#options.spool.isRead));
    // Nothing is left to write: whether the store would accept it is unknown now.
    this.#awaySinceMs = null;
    this.#isRefused = false;
    this.#isRunning = false;
    for (const resolve of this.#idlers) resolve();
    this.#idlers = [];
  }

  /** @returns false if there is nothing left to do */
  async #step(): Promise<boolean> {
    if (await this.#replay.step()) return true;
    if (!this.#isSpoolFull) {
      // Items of a blocked group would hold up another batch; spooled items are sorted by blocked groups.
      if (this.#replay.isBlocked) {
        this.#spool();
        return this.#replay.wait();
      }
      if (this.#appended !== null) {
        // Everything was read and written: new items can skip the disk.
        if (this.#awaySinceMs === null) this.#isSpooling = false;
        await new Promise<void>((resolve) => this.#appendListeners.push(resolve));
        return true;
      }
    }
    this.#isSpooling = false;
    if (this.#queue.length === 0) return this.#replay.wait();
    await this.#direct();
    return true;
  }

  async #direct(): Promise<void> {
    const { batchMax, retryDelayMs } = this.#options;
    this.#inFlight = this.#queue.slice(0, batchMax);
    this.#queue = this.#queue.length > batchMax ? this.#queue.slice(batchMax) : [];
    const isAnswered = await this.#commit(this.#inFlight);
    const unwritten = undone(this.#inFlight).filter(({ isAppending }) => !isAppending);
    this.#inFlight = [];
    if (unwritten.length > 0) this.#queue = [...unwritten, ...this.#queue];
    // The spool does not accept items either.
    if (!isAnswered && this.#isSpoolFull) await this.#replay.sleep(retryDelayMs);
  }

  /** @returns false if the store neither accepted nor rejected the items */
  async #commit(batch: readonly Waiting<Item>[], tries = 1): Promise<boolean> {
    const open = undone(batch);
    const [first] = open;
    if (first === undefined) return true;
    try {
      await this.#write(open.map(({ item }) => item));
    } catch (error) {
      const kind = classify(error, tries);
      if (kind === 'conflict') return this.#commit(batch, tries + 1);
      if (kind !== 'data') {
        this.#spool();
        return false;
      }
      if (open.length === 1) return this.#refuse(first, error);
      const middle = open.length >> 1;
      return (await this.#commit(open.slice(0, middle))) && this.#commit(open.slice(middle));
    }
    for (const waiting of undone(open)) {
      waiting.isDone = true;
      waiting.resolve('booked');
    }
    return true;
  }

  async #refuse(waiting: Waiting<Item>, error: unknown): Promise<boolean> {
    if (!(await this.#replay.quarantine(waiting.item, this.#options.encode(waiting.item), error))) return false;
    waiting.isDone = true;
    waiting.reject(error);
    return true;
  }

  async #write(items: readonly Item[]): Promise<void> {
    const { write, abandon, stallMs, spoolAfterMs, clock, onCommit } = this.#options;
    const sinceMs = clock.monotonicMs();
    const { promise: stalled, reject } = Promise.withResolvers<never>();
    const late = setTimeout(() => this.#spool(), spoolAfterMs);
    const timer = setTimeout(() => {
      reject(new Error(`no answer within ${stallMs} ms`));
      abandon();
    }, stallMs);
    try {
      await Promise.race([write(items), stalled]);
    } catch (error) {
      const kind = classify(error, 1);
      if (kind === 'away' || kind === 'refused') this.#isAway(sinceMs, error, kind === 'refused');
      throw error;
    } finally {
      clearTimeout(late);
      clearTimeout(timer);
    }
    this.#awaySinceMs = null;
    onCommit?.(items.length, clock.monotonicMs() - sinceMs);
  }

  #isAway(sinceMs: number, error: unknown, isRefused: boolean): void {
    this.#isRefused = isRefused;
    this.#spool();
    if (this.#awaySinceMs !== null) return;
    this.#awaySinceMs = sinceMs;
    this.#options.log.error(
      { err: error, pending: this.pending },
      'usage records cannot be written to PostgreSQL; the spool in the data folder keeps them, and they are billed later',
    );
  }

  #spool(): void {
    this.#isSpooling = true;
    this.#append();
  }

  #append(): void {
    if (this.#appended !== null || this.#isStopped) return;
    this.#appended = this.#appendAll().finally(() => {
      this.#appended = null;
      const listeners = this.#appendListeners;
      this.#appendListeners = [];
      for (const listener of listeners) listener();
      // Items that arrived in the last moment.
      if (this.#isSpooling && this.#queue.length > 0) this.#append();
    });
  }

  /** Appends to the spool. Only one run at a time; items that arrive meanwhile go into the next append. */
  async #appendAll(): Promise<void> {
    const { spool, encode, log, retryDelayMs } = this.#options;
    for (;;) {
      const taken = undone([...this.#inFlight, ...this.#queue]);
      this.#queue = [];
      if (taken.length === 0) return;
      for (const waiting of taken) waiting.isAppending = true;
      this.#appending = taken;
      try {
        await spool.append(taken.map(({ item }) => encode(item)));
        this.#isSpoolFull = false;
        for (const waiting of undone(taken)) {
          waiting.isDone = true;
          waiting.resolve('spooled');
        }
        this.#appending = [];
      } catch (error) {
        if (!this.#isSpoolFull)
          log.error(
            { err: error, items: taken.length },
            'usage records cannot be written to the spool in the data folder, and are only in memory: free disk space, and do not kill the gateway',
          );
        this.#isSpoolFull = true;
        for (const waiting of taken) waiting.isAppending = false;
        this.#appending = [];
        this.#queue = [...undone(taken).filter((waiting) => !this.#inFlight.includes(waiting)), ...this.#queue];
        this.#start();
        if (this.#isStopped) return;
        await this.#replay.sleep(retryDelayMs);
      }
      const listeners = this.#appendListeners;
      this.#appendListeners = [];
      for (const listener of listeners) listener();
      this.#start();
      if (!this.#isSpooling) return;
    }
  }
}
