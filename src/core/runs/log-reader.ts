import { type ChangeSummary, type LogLine, readLogLine } from './log-line.ts';
import type { PieceMask } from './mask.ts';
import type { Unreached } from '#core/runs/runner/runner.ts';

/** Of a whole run; what comes later is read and not kept. */
export const logBytesMax = 5 * 1024 * 1024;
/** Lines of a whole run; they cost more than their text. */
export const logLinesMax = 50_000;
/** A line that is longer is taken in pieces. */
const lineBytesMax = 65_536;

export interface LogChunk {
  readonly lines: readonly LogLine[];
  /** Bytes that need not be read again; what is left behind them is the beginning of a line. */
  readonly bytes: number;
  readonly changes: ChangeSummary | null;
  readonly error: string | null;
  /** Ports that the run's network could not be connected with, in the order of the log. */
  readonly unreached: readonly Unreached[];
}

export interface ReadLog {
  /** Nothing more comes: what is left is a line too. */
  readonly ended: boolean;
  readonly mask: PieceMask;
  /** When so many bytes of the chunk had been written; null where nobody knows. */
  readonly writtenAt?: (bytes: number) => number | null;
}

/** Whole lines of a phase's output. A line that says no time has the one of its writing, however late it is read. */
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

/** What was written before a line that says its time was written then at the latest. */
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

/** Where the line that begins here ends, behind its newline; the beginning itself where it has not ended yet. */
function nextEnd(chunk: Buffer, begin: number, ended: boolean): number {
  const newline = chunk.indexOf(0x0a, begin);
  if (newline !== -1 && newline - begin < lineBytesMax) return newline + 1;
  const rest = chunk.length - begin;
  if (rest >= lineBytesMax) return begin + lineBytesMax;
  return ended ? chunk.length : begin;
}
