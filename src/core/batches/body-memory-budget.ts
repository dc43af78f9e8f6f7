import type { Clock } from '#base/clock.ts';

/** Limits shared by the batches of this gateway. */
export interface BodyMemoryBudget {
  /** Requests that one batch may have running now. */
  readonly share: number;
  /** True if other batches may be waiting for a place here. */
  readonly isFull: boolean;
  /**
   * Reserves the memory of a body; false if there is not enough now, or another batch has waited too long. Small bodies
   * would keep a large one from ever being sent: after a while only the waiting batch is served.
   * @param batch that owns the body
   */
  takeBytes(batch: object, bytes: number): boolean;
  giveBytes(bytes: number): void;
}

export interface BudgetParts {
  readonly clock: Clock;
  /** Number of batches worked on here. */
  readonly batches: () => number;
  /** Number of these batches that send requests. */
  readonly asking: () => number;
  /** Most requests of all batches at once. */
  readonly concurrency: number;
  readonly batchesMax: number;
}

/** Most bytes of bodies of running requests; a single body may be larger. */
const bodiesBytesMax = 67_108_864;
/** Milliseconds after which a waiting batch takes precedence over all others. */
const patienceMs = 10_000;
/** Milliseconds without another attempt after which a waiting batch has ended or waits for something else. */
const lapseMs = 5000;

interface Waiting {
  readonly sinceMs: number;
  readonly askedMs: number;
}

export function createBodyMemoryBudget({
  clock,
  batches,
  asking,
  concurrency,
  batchesMax,
}: BudgetParts): BodyMemoryBudget {
  let bytes = 0;
  /** Waiting batches, in the order of their first rejected attempt. */
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
