import type { StoredFacts } from './facts.ts';
import type { UsageRecord } from './record.ts';

/**
 * What a request's time went to, in the order in which it passed, in whole milliseconds: together they are the time from
 * its first byte until its record was written, which is when the last bytes of its answer leave.
 */
export interface Timeline {
  /** Key, body, limits and wallet; an answer of another request that was waited for. */
  readonly admittedMs: number;
  /** Waiting for a replica that runs. */
  readonly queuedMs: number;
  readonly coldStartMs: number;
  /** From the engine's turn to its first byte; null where none came. */
  readonly firstByteMs: number | null;
  /** From there to its last byte, or to the end of waiting for one. */
  readonly lastByteMs: number;
  readonly committedMs: number;
}

/** Moments are put in order, so that what was rounded still adds up. */
export function timelineOf(record: UsageRecord, facts: StoredFacts): Timeline {
  const { queuedMs, firstByteMs, totalMs } = record;
  const within = (from: number, lengthMs: number): number => Math.min(from + Math.max(0, lengthMs), totalMs);
  const admitted = within(0, facts.admittedMs);
  const queued = within(admitted, queuedMs - facts.coldMs);
  const started = within(queued, facts.coldMs);
  const first = firstByteMs === null ? null : Math.min(Math.max(firstByteMs, started), totalMs);
  return {
    admittedMs: admitted,
    queuedMs: queued - admitted,
    coldStartMs: started - queued,
    firstByteMs: first === null ? null : first - started,
    lastByteMs: totalMs - (first ?? started),
    committedMs: facts.committedMs,
  };
}
