import { FairQueue } from '#base/queues/queues.ts';
import type { AcquireResult } from './lease.ts';

/** The weight of a waiting request against the others. */
export interface Fairness {
  readonly keyId: string;
  /** Tokens that the request is expected to use, input and output together. */
  readonly tokens: number;
}

/**
 * Replicas that could not be reached. Times are monotonic milliseconds: when they failed, and when they should have
 * been found ill.
 */
export interface Tried {
  readonly ids: ReadonlySet<string>;
  readonly sinceMs: number;
  readonly untilMs: number;
}

export interface Waiter {
  /** Monotonic milliseconds after which the request stops waiting. */
  readonly deadlineMs: number;
  /** Failed starts of the engine when the request began to wait. */
  failedStarts: number;
  /** Replicas that could not be reached; null if none. */
  readonly tried: Tried | null;
}

/** A bounded queue of requests that wait for an engine; each may leave at any time. */
export interface WaitQueue {
  size(): number;
  isFull(): boolean;
  /** Resolves with the request's answer; rejects if the signal aborts first. */
  join(waiter: Waiter, fairness: Fairness | undefined, signal: AbortSignal | undefined): Promise<AcquireResult>;
  /**
   * Calls `answer` once per waiting request, fair among keys by tokens. Requests for which it returns null keep
   * waiting.
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
      // A refused request costs its key nothing; a request that got a replica keeps its cost.
      queue.correct(keyId, result?.ok === true ? 0 : -tokens);
      if (result === null) kept.push(next);
      else next.settle(result);
    }
    for (const entry of kept) add(entry);
  }

  return { size: () => queue.size, isFull: () => queue.size >= sizeMax, join, answerAll };
}

/** Returns the signal's own reason if that is an error. */
export function abortError(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new Error('The request was canceled while it waited for an engine.');
}
