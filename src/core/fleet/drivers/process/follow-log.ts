import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import type { LogOptions } from '#core/fleet/drivers/driver.ts';
import { lastLogLines } from '#core/fleet/drivers/log-without-probes.ts';
import { isProbe } from '#core/fleet/drivers/cause-line.ts';
import { readLogTail } from './files.ts';

const followEveryMs = 200;
const chunkBytes = 65_536;
const lineCharsMax = 65_536;
/** Read of a log's end for its last lines: most of these bytes may be lines of probes, which are left out. */
const tailBytesMax = 1_048_576;

/**
 * The lines of a child's log, and with `follow` those that come, until the child has ended. A log that was cut while it grew
 * (`boundLog` in files.ts) is read on from its new beginning.
 * @param path null for a child that is not there: it has no lines
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
  /** What was written since; bounded, the rest comes with the next call. */
  read(): string;
  close(): void;
}

/** Stands at the end of the file as it is now. */
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
