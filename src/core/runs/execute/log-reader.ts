import { type ChangeSummary, type LogLine, type PieceMask, readLogLine } from '#core/runs/lifecycle/lifecycle.ts';
import type { Unreached } from '#core/runs/runner/runner.ts';

/** Maximum size of a run's log; later output is read and not stored. */
export const logBytesMax = 5 * 1024 * 1024;
/** Maximum lines of a run's log: a line costs more than its text. */
export const logLinesMax = 50_000;
/** A longer line is split into pieces. */
const lineBytesMax = 65_536;

export interface LogChunk {
  readonly lines: readonly LogLine[];
  /** Bytes that need not be read again; the rest is the beginning of a line. */
  readonly bytes: number;
  readonly changes: ChangeSummary | null;
  readonly error: string | null;
  /** Ports that the run's network could not connect to, in the order of the log. */
  readonly unreached: readonly Unreached[];
}

export interface ReadLog {
  /** True if no more output comes: the rest is a line too. */
  readonly ended: boolean;
  readonly mask: PieceMask;
  /** Returns the time by which this many bytes of the chunk had been written; null if unknown. */
  readonly writtenAt?: (bytes: number) => number | null;
}

/**
 * Splits a phase's output into whole lines. A line without a time gets the time of its writing, however late it is
 * read.
 */
export function readLogChunk(chunk: Buffer, { ended, mask, writtenAt = () => null }: ReadLog): LogChunk {
  const lines: LogLine[] = [];
  let bytes = 0;
  let changes: ChangeSummary | null = null;
  let error: string | null = null;
  const unreached: Unreached[] = [];
  for (let end = nextEnd(chunk, bytes, ended); end > bytes; end = nextEnd(chunk, bytes, ended)) {
    const facts = readLogLine(chunk.toString('utf8', bytes, end).replace(/\r?\n$/, ''), mask);
    if (facts.line !== null) lines.push({ ...facts.line, atMs: facts.line.atMs ?? writtenAt(end) });
    changes = facts.changes ?? changes;
    error ??= facts.error;
    if (facts.unreached !== null) unreached.push(facts.unreached);
    bytes = end;
  }
  return { lines: boundedTimes(lines), bytes, changes, error, unreached };
}

/** Limits the time of each text line to that of the next line with a time of its own: the text was written before. */
function boundedTimes(lines: readonly LogLine[]): LogLine[] {
  let latestMs: number | null = null;
  return lines
    .toReversed()
    .map((line) => {
      const atMs = latestMs === null ? line.atMs : Math.min(line.atMs ?? latestMs, latestMs);
      if (line.type !== 'text') {
        latestMs = line.atMs;
        return line;
      }
      return { ...line, atMs };
    })
    .toReversed();
}

/** Returns the end of the line that begins here, after its newline; `begin` if the line has not ended yet. */
function nextEnd(chunk: Buffer, begin: number, ended: boolean): number {
  const newline = chunk.indexOf(0x0a, begin);
  if (newline !== -1 && newline - begin < lineBytesMax) return newline + 1;
  const rest = chunk.length - begin;
  if (rest >= lineBytesMax) return begin + lineBytesMax;
  return ended ? chunk.length : begin;
}
