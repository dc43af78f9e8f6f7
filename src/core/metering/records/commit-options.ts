import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { Spool } from '#base/spool.ts';

export interface GroupCommitOptions<Item> {
  readonly log: Log;
  readonly clock: Clock;
  readonly batchMax: number;
  /** Writes all items or none; must be safe to repeat if it is unknown whether an earlier try succeeded. */
  readonly write: (items: readonly Item[]) => Promise<void>;
  /** Closes the connection on which a `write` waits; that `write` then rejects. */
  readonly abandon: () => void;
  /** Stores an item that the store permanently rejects where an operator finds it. Repeated until it resolves. */
  readonly quarantine: (item: Item | null, data: Buffer, error: unknown) => Promise<void>;
  /** Returns the group of an item. Items of different groups need not wait for each other. */
  readonly groupOf: (item: Item) => string;
  readonly spool: Spool;
  readonly encode: (item: Item) => Buffer;
  /** Returns the fields of an item that may be logged. */
  readonly describe: (item: Item) => object;
  /** Decodes an item. @throws if the bytes are not an item that this version knows */
  readonly decode: (data: Buffer) => Item;
  /**
   * Called with items that were spooled, by this process or an earlier one, once the store has them or permanently
   * rejects them.
   */
  readonly onUnspooled: (items: readonly Item[], isBooked: boolean) => void;
  /** Milliseconds between two tries, doubled after each failure. */
  readonly retryDelayMs: number;
  readonly retryDelayMsMax: number;
  /** Milliseconds that an item waits for the store before it is spooled. */
  readonly spoolAfterMs: number;
  /** Milliseconds after which a `write` is abandoned: drivers may wait forever without an error. */
  readonly stallMs: number;
  /** Called with every written batch: its number of items, and its duration. */
  readonly onCommit?: (items: number, durationMs: number) => void;
}
