import { openSync, writeSync } from 'node:fs';
import type { Sequence } from './scheduler.ts';

/**
 * Counts of `/metrics`, token by token and in a file: a killed engine loses its counters, and
 * the lines stay. Several runs of an engine may write to one file.
 * @returns a function to call for every token once it is counted
 */
export function openJournal(path: string): (sequence: Sequence) => void {
  const file = openSync(path, 'a', 0o600);
  return ({ id, promptTokens, generated }) => {
    writeSync(file, `${process.pid} ${id} ${promptTokens} ${generated}\n`);
  };
}
