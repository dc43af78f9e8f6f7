/** A line of a file with its offset and its bytes without the line end; the bytes are null if the line is too long. */
export interface FileLine {
  /** Line number from 1. */
  readonly number: number;
  readonly at: number;
  readonly bytes: Buffer | null;
}

const newline = 0x0a;
const carriageReturn = 0x0d;
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

const withoutReturn = (bytes: Buffer): Buffer =>
  bytes.at(-1) === carriageReturn ? bytes.subarray(0, bytes.length - 1) : bytes;

/**
 * Splits a file into lines while reading. Only one line is in memory, and never more than its limit.
 * @param lineBytesMax longer lines are returned without their bytes
 */
export async function* splitLines(chunks: AsyncIterable<Buffer>, lineBytesMax: number): AsyncGenerator<FileLine, void> {
  let parts: Buffer[] = [];
  let length = 0;
  let isTooLong = false;
  let at = 0;
  let number = 0;
  const take = (bytes: Buffer): void => {
    length += bytes.length;
    isTooLong ||= length > lineBytesMax;
    if (isTooLong) parts = [];
    else parts.push(bytes);
  };
  const end = (): FileLine => {
    number += 1;
    const whole = Buffer.concat(parts);
    const skipped = number === 1 && whole.subarray(0, 3).equals(byteOrderMark) ? 3 : 0;
    const line = { number, at: at + skipped, bytes: isTooLong ? null : withoutReturn(whole.subarray(skipped)) };
    at += length;
    parts = [];
    length = 0;
    isTooLong = false;
    return line;
  };
  for await (const chunk of chunks) {
    let from = 0;
    for (let to = chunk.indexOf(newline); to !== -1; to = chunk.indexOf(newline, from)) {
      take(chunk.subarray(from, to));
      yield end();
      at += 1;
      from = to + 1;
    }
    // Copied, so that the rest of the chunk can be freed.
    if (from < chunk.length) take(Buffer.from(chunk.subarray(from)));
  }
  if (length > 0) yield end();
}
