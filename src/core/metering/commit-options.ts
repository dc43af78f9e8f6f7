import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { Spool } from '#base/spool.ts';

export interface GroupCommitOptions<Item> {
  readonly log: Log;
  readonly clock: Clock;
  readonly batchMax: number;
  /** Writes all items or none; must be safe to repeat when it is not known whether an earlier try took effect. */
  readonly write: (items: readonly Item[]) => Promise<void>;
  /** Gives up the connection on which a `write` waits, which then rejects. */
  readonly abandon: () => void;
  /** Keeps an item that the store will never take where somebody finds it. Repeated until it resolves. */
  readonly quarantine: (item: Item | null, data: Buffer, error: unknown) => Promise<void>;
  /** Items of different groups need not wait for each other. */
  readonly groupOf: (item: Item) => string;
  readonly spool: Spool;
  readonly encode: (item: Item) => Buffer;
  /** What the log may say of an item. */
  readonly describe: (item: Item) => object;
  /** @throws when the bytes are no item that this version knows */
  readonly decode: (data: Buffer) => Item;
  /** Told of items that were spooled, by this process or an earlier one, once the store has them or never will. */
  readonly onUnspooled: (items: readonly Item[], isBooked: boolean) => void;
  /** Between two tries, twice as long after each that fails. */
  readonly retryDelayMs: number;
  readonly retryDelayMsMax: number;
  /** An item waits so long for the store, then it is spooled. */
  readonly spoolAfterMs: number;
  /** A `write` that takes longer is abandoned: drivers may wait for ever in silence. */
  readonly stallMs: number;
  /** Told of every batch that was written: its items, and how long it took. */
  readonly onCommit?: (items: number, durationMs: number) => void;
}
