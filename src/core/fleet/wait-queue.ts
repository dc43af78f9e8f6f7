import type { AcquireResult } from './lease.ts';

/** Requests that wait for an engine, bounded, each free to leave. */
export interface WaitQueue {
  size(): number;
  isFull(): boolean;
  /** Settles with the answer that all get; rejects when the signal aborts first. */
  join(signal: AbortSignal | undefined): Promise<AcquireResult>;
  /** Calls `answer` once for each that waits, in the order they came, and empties the queue. */
  answerAll(answer: () => AcquireResult): void;
}

export function createWaitQueue(sizeMax: number): WaitQueue {
  const waiters = new Set<(result: AcquireResult) => void>();

  function join(signal: AbortSignal | undefined): Promise<AcquireResult> {
    return new Promise((resolve, reject) => {
      const answer = (result: AcquireResult) => {
        signal?.removeEventListener('abort', leave);
        resolve(result);
      };
      const leave = () => {
        waiters.delete(answer);
        reject(abortError(signal));
      };
      signal?.addEventListener('abort', leave, { once: true });
      waiters.add(answer);
    });
  }

  return {
    size: () => waiters.size,
    isFull: () => waiters.size >= sizeMax,
    join,
    answerAll(answer) {
      const answered = [...waiters];
      waiters.clear();
      for (const resolve of answered) resolve(answer());
    },
  };
}

/** The signal's own reason where that is an error. */
export function abortError(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new Error('The wait for an engine was given up.');
}
