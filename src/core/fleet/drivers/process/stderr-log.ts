import {
  appendFileSync,
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';

/**
 * Collects a child's stderr in its own file, so that the cause of its end is not mistaken for its last output. From
 * there whole lines are copied to the child's log. The copied length is recorded, so that another gateway can continue.
 */

export const errorFolder = 'stderr';
const chunkBytes = 1_048_576;
const bytesMax = 4 * 1_048_576;
/** Cuts a line that never ends, such as a progress bar. */
const lineBytesMax = 65_536;
const lineFeed = 0x0a;

/** The file is in a folder beside the logs. */
export function errorPathOf(logPath: string): string {
  return join(dirname(logPath), '..', errorFolder, basename(logPath));
}

function markPathOf(logPath: string): string {
  return `${errorPathOf(logPath)}.at`;
}

/** Opens an empty file for a new child. */
export function openErrorLog(logPath: string): number {
  const path = errorPathOf(logPath);
  for (const old of [path, markPathOf(logPath)]) rmSync(old, { force: true });
  return openSync(path, 'a', 0o600);
}

/**
 * Appends new stderr output to the log; bounded, the rest follows with the next call.
 * @param isLast the child has ended: an incomplete last line is copied too
 */
export function addErrors(logPath: string, isLast = false): void {
  let file: number;
  try {
    file = openSync(errorPathOf(logPath), 'r');
  } catch {
    // The child was started by a gateway version without this file, or the file was removed.
    return;
  }
  try {
    const { size } = fstatSync(file);
    const at = readMark(logPath, size);
    const buffer = Buffer.alloc(Math.min(chunkBytes, size - at));
    const read = buffer.subarray(0, readSync(file, buffer, 0, buffer.length, at));
    const whole = isLast ? read : read.subarray(0, endOfLines(read));
    if (whole.length > 0) appendFileSync(logPath, whole);
    if (whole.length > 0) writeFileSync(markPathOf(logPath), String(at + whole.length), { mode: 0o600 });
    if (at + whole.length === size && size > bytesMax) startAnew(logPath);
  } finally {
    closeSync(file);
  }
}

function endOfLines(bytes: Buffer): number {
  const end = bytes.lastIndexOf(lineFeed) + 1;
  return end === 0 && bytes.length >= lineBytesMax ? bytes.length : end;
}

/** Returns 0 if nothing was copied yet, or the file has shrunk since. */
function readMark(logPath: string, size: number): number {
  try {
    const at = Number(readFileSync(markPathOf(logPath), 'latin1'));
    return Number.isSafeInteger(at) && at >= 0 && at <= size ? at : 0;
  } catch {
    return 0;
  }
}

/** Empties the file, whose content is all in the log. */
function startAnew(logPath: string): void {
  truncateSync(errorPathOf(logPath), 0);
  writeFileSync(markPathOf(logPath), '0', { mode: 0o600 });
}
