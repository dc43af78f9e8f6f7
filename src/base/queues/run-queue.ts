import { closeSync, openSync, readSync } from 'node:fs';

/** Time for which this process was ready to run and had no processor; only Linux reports it. */
export interface RunQueue {
  /** Returns the milliseconds waited since the process began; 0 if unknown. */
  waitedMs(): number;
  close(): void;
}

/** Nanoseconds run, nanoseconds waited, time slices: https://docs.kernel.org/scheduler/sched-stats.html */
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
