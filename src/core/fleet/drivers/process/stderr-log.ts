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
 * What a child writes on stderr goes to a file of its own, so that the cause of its end is not mistaken for what it
 * printed last, and from there into its log, in whole lines. How far that has come is written down for whoever goes on
 * with it.
 */

export const errorFolder = 'stderr';
const chunkBytes = 1_048_576;
const bytesMax = 4 * 1_048_576;
/** A line that never ends, such as a progress bar, is cut. */
const lineBytesMax = 65_536;
const lineFeed = 0x0a;

/** In a folder beside that of the logs. */
export function errorPathOf(logPath: string): string {
  return join(dirname(logPath), '..', errorFolder, basename(logPath));
}

function markPathOf(logPath: string): string {
  return `${errorPathOf(logPath)}.at`;
}

/** Opens an empty one for a new child. */
export function openErrorLog(logPath: string): number {
  const path = errorPathOf(logPath);
  for (const old of [path, markPathOf(logPath)]) rmSync(old, { force: true });
  return openSync(path, 'a', 0o600);
}

/**
 * Adds to the log what was written on stderr since; bounded, the rest comes with the next call.
 * @param isLast the child has ended: a last line without its end goes along
 */
export function addErrors(logPath: string, isLast = false): void {
  let file: number;
  try {
    file = openSync(errorPathOf(logPath), 'r');
  } catch {
    // A child of a gateway that knew no such file, or one that is gone.
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

/** 0 where nothing was added yet, or the file has become shorter since. */
function readMark(logPath: string, size: number): number {
  try {
    const at = Number(readFileSync(markPathOf(logPath), 'latin1'));
    return Number.isSafeInteger(at) && at >= 0 && at <= size ? at : 0;
  } catch {
    return 0;
  }
}

/** All of it is in the log, which keeps what a log keeps. */
function startAnew(logPath: string): void {
  truncateSync(errorPathOf(logPath), 0);
  writeFileSync(markPathOf(logPath), '0', { mode: 0o600 });
}
