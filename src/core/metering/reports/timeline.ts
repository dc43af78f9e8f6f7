import type { UsageRecord } from '#core/metering/records/records.ts';
import type { StoredFacts } from '#core/metering/tables/tables.ts';

/**
 * Phases of a request in their order, in whole milliseconds. Together they are the time from its first byte until its
 * record was written, which is when the last bytes of its answer leave.
 */
export interface Timeline {
  /** Checks of key, body, limits and wallet; the wait for another request's answer. */
  readonly admittedMs: number;
  /** Wait for a running replica. */
  readonly queuedMs: number;
  readonly coldStartMs: number;
  /** Time from the start of the engine's work to its first byte; null if none came. */
  readonly firstByteMs: number | null;
  /** Time from there to its last byte, or to the end of waiting for one. */
  readonly lastByteMs: number;
  readonly committedMs: number;
}

/** Returns the timeline. Times are forced into order, so that rounded values still add up. */
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
