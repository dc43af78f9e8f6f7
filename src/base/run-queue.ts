import { closeSync, openSync, readSync } from 'node:fs';

/** How long this process could have run and had no processor; Linux alone says so. */
export interface RunQueue {
  /** Milliseconds since the process began; 0 where nobody knows. */
  waitedMs(): number;
  close(): void;
}

/** https://docs.kernel.org/scheduler/sched-stats.html: nanoseconds on a processor, nanoseconds waited, slices of time */
const path = '/proc/self/schedstat';
const bytesMax = 128;

export function openRunQueue(): RunQueue {
  let file: number | null = null;
  try {
    file = openSync(path, 'r');
  } catch {
    return { waitedMs: () => 0, close: () => undefined };
  }
  const bytes = Buffer.alloc(bytesMax);
  return {
    waitedMs() {
      if (file === null) return 0;
      const length = readSync(file, bytes, 0, bytesMax, 0);
      return Number(bytes.toString('latin1', 0, length).split(' ')[1]) / 1e6;
    },
    close() {
      if (file !== null) closeSync(file);
      file = null;
    },
  };
}
