import { type ChangeSummary, type LogLine, readLogLine } from './log-line.ts';
import type { Mask } from './mask.ts';

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
}

/**
 * Whole lines of a phase's output.
 * @param ended nothing more comes: what is left is a line too
 */
export function readLogChunk(chunk: Buffer, ended: boolean, mask: Mask): LogChunk {
  const lines: LogLine[] = [];
  let bytes = 0;
  let changes: ChangeSummary | null = null;
  let error: string | null = null;
  for (let end = nextEnd(chunk, bytes, ended); end > bytes; end = nextEnd(chunk, bytes, ended)) {
    const facts = readLogLine(chunk.toString('utf8', bytes, end).replace(/\r?\n$/, ''), mask);
    if (facts.line !== null) lines.push(facts.line);
    changes = facts.changes ?? changes;
    error ??= facts.error;
    bytes = end;
  }
  return { lines, bytes, changes, error };
}

/** Where the line that begins here ends, behind its newline; the beginning itself where it has not ended yet. */
function nextEnd(chunk: Buffer, begin: number, ended: boolean): number {
  const newline = chunk.indexOf(0x0a, begin);
  if (newline !== -1 && newline - begin < lineBytesMax) return newline + 1;
  const rest = chunk.length - begin;
  if (rest >= lineBytesMax) return begin + lineBytesMax;
  return ended ? chunk.length : begin;
}
