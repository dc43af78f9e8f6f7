import type { Clock } from '#base/clock.ts';

/** What the batches of this gateway have together. */
export interface AskingRoom {
  /** Requests that one batch may have running now. */
  readonly share: number;
  /** Whether other batches may wait for a place here. */
  readonly isFull: boolean;
  /**
   * Takes the memory of a body; false where there is not as much now, or another batch has waited for too long. Small
   * bodies would keep a large one from ever being sent: after a while nobody else is served until it was.
   * @param batch whose it is
   */
  takeBytes(batch: object, bytes: number): boolean;
  giveBytes(bytes: number): void;
}

export interface RoomParts {
  readonly clock: Clock;
  /** All that are worked at here. */
  readonly batches: () => number;
  /** Those of them that ask. */
  readonly asking: () => number;
  /** Requests of all batches at once. */
  readonly concurrency: number;
  readonly batchesMax: number;
}

/** Bodies of requests that run, beside the largest of them. */
const bodiesBytesMax = 67_108_864;
/** Who waits for longer than this comes before all others. */
const patienceMs = 10_000;
/** Who does not ask again for so long has ended, or waits for something else. */
const lapseMs = 5000;

interface Waiting {
  readonly sinceMs: number;
  readonly askedMs: number;
}

export function createRoom({ clock, batches, asking, concurrency, batchesMax }: RoomParts): AskingRoom {
  let bytes = 0;
  /** In the order in which they were refused. */
  const waiting = new Map<object, Waiting>();
  const mustWait = (batch: object, nowMs: number): boolean => {
    for (const [one, { askedMs }] of waiting) if (nowMs - askedMs > lapseMs) waiting.delete(one);
    const [first] = waiting;
    return first !== undefined && first[0] !== batch && nowMs - first[1].sinceMs > patienceMs;
  };
  return {
    get share() {
      return Math.max(1, Math.floor(concurrency / Math.max(1, asking())));
    },
    get isFull() {
      return batches() >= batchesMax;
    },
    takeBytes(batch, wanted) {
      const nowMs = clock.monotonicMs();
      const fits = !mustWait(batch, nowMs) && (bytes === 0 || bytes + wanted <= bodiesBytesMax);
      if (fits) {
        waiting.delete(batch);
        bytes += wanted;
      } else {
        waiting.set(batch, { sinceMs: waiting.get(batch)?.sinceMs ?? nowMs, askedMs: nowMs });
      }
      return fits;
    },
    giveBytes: (given) => void (bytes -= given),
  };
}
