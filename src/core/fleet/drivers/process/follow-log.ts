import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import type { LogOptions } from '#core/fleet/drivers/driver.ts';
import { lastLogLines } from '#core/fleet/drivers/log-without-probes.ts';
import { isProbe } from '#core/fleet/drivers/cause-line.ts';
import { readLogTail } from './files.ts';

const followEveryMs = 200;
const chunkBytes = 65_536;
const lineCharsMax = 65_536;
/** Bytes read at a log's end for its last lines: most of them may be probe lines, which are left out. */
const tailBytesMax = 1_048_576;

/**
 * Yields the lines of a child's log, and with `follow` later lines until the child has ended. A log that was truncated
 * while it grew (`boundLog` in files.ts) continues from its new beginning.
 * @param path null for a child that does not exist: it has no lines
 */
export async function* followLog(
  path: string | null,
  hasEnded: () => boolean,
  { tailLines, follow, signal }: LogOptions,
): AsyncGenerator<string> {
  if (path === null) return;
  const reader = openReader(path);
  if (reader === null) return;
  try {
    yield* lastLogLines(readLogTail(path, tailBytesMax), tailLines);
    if (!follow) return;
    let rest = '';
    while (!signal.aborted) {
      const isLast = hasEnded();
      const parts = `${rest}${reader.read()}`.split('\n');
      rest = (parts.pop() ?? '').slice(0, lineCharsMax);
      yield* parts.filter((line) => !isProbe(line)).map((line) => line.replace(/\r$/, ''));
      if (isLast) break;
      await pause(followEveryMs, signal);
    }
    if (rest !== '') yield rest;
  } finally {
    reader.close();
  }
}

interface LogReader {
  /** Returns what was written since the last call; bounded, the rest follows with the next call. */
  read(): string;
  close(): void;
}

/** Opens a reader at the current end of the file. */
function openReader(path: string): LogReader | null {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return null;
  }
  const decoder = new StringDecoder('utf8');
  let position = fstatSync(file).size;
  return {
    read() {
      const { size } = fstatSync(file);
      if (size < position) position = 0;
      const buffer = Buffer.alloc(Math.min(chunkBytes, size - position));
      const read = readSync(file, buffer, 0, buffer.length, position);
      position += read;
      return decoder.write(buffer.subarray(0, read));
    },
    close: () => closeSync(file),
  };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
