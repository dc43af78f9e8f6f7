import { FairQueue } from '#base/fair-queue.ts';
import type { AcquireResult } from './lease.ts';

/** By what a request that waits is weighed against the others. */
export interface Fairness {
  readonly keyId: string;
  /** Expected to be used, input and output together. */
  readonly tokens: number;
}

/** Monotonic milliseconds of when they could not be reached, and of when they should have been found to be away. */
export interface Tried {
  readonly ids: ReadonlySet<string>;
  readonly sinceMs: number;
  readonly untilMs: number;
}

export interface Waiter {
  /** Monotonic milliseconds after which it is not to wait any longer. */
  readonly deadlineMs: number;
  /** Failed starts of the engine when it came. */
  failedStarts: number;
  /** Replicas that could not be reached; null: none. */
  readonly tried: Tried | null;
}

/** Requests that wait for an engine, bounded, each free to leave. */
export interface WaitQueue {
  size(): number;
  isFull(): boolean;
  /** Settles with the answer that it gets; rejects when the signal aborts first. */
  join(waiter: Waiter, fairness: Fairness | undefined, signal: AbortSignal | undefined): Promise<AcquireResult>;
  /**
   * Calls `answer` once for each that waits, fair among their keys by tokens; those for which it returns null wait on.
   */
  answerAll(answer: (waiter: Waiter) => AcquireResult | null): void;
}

interface Entry {
  readonly waiter: Waiter;
  readonly fairness: Fairness;
  readonly settle: (result: AcquireResult) => void;
}

const nobody: Fairness = { keyId: '', tokens: 1 };

export function createWaitQueue(sizeMax: number): WaitQueue {
  const queue = new FairQueue<Entry>();

  function add(entry: Entry): void {
    queue.add(entry.fairness.keyId, entry.fairness.tokens, entry);
  }

  function join(waiter: Waiter, fairness: Fairness = nobody, signal: AbortSignal | undefined): Promise<AcquireResult> {
    return new Promise((resolve, reject) => {
      const entry: Entry = {
        waiter,
        fairness,
        settle(result) {
          signal?.removeEventListener('abort', leave);
          resolve(result);
        },
      };
      const leave = (): void => {
        queue.remove(fairness.keyId, entry);
        reject(abortError(signal));
      };
      signal?.addEventListener('abort', leave, { once: true });
      add(entry);
    });
  }

  function answerAll(answer: (waiter: Waiter) => AcquireResult | null): void {
    const kept: Entry[] = [];
    for (let next = queue.take(); next !== null; next = queue.take()) {
      const { keyId, tokens } = next.fairness;
      const result = answer(next.waiter);
      // Who was refused has cost nothing; whoever got a replica goes on beyond this queue.
      queue.correct(keyId, result?.ok === true ? 0 : -tokens);
      if (result === null) kept.push(next);
      else next.settle(result);
    }
    for (const entry of kept) add(entry);
  }

  return { size: () => queue.size, isFull: () => queue.size >= sizeMax, join, answerAll };
}

/** The signal's own reason where that is an error. */
export function abortError(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new Error('The wait for an engine was given up.');
}
