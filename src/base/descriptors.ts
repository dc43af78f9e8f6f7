import { readFileSync } from 'node:fs';

const unknownMax = 1_000_000;

/** How many files and connections this process may have open; a large number where the system does not say. */
export function descriptorsMax(): number {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? unknownMax : Number(soft);
  } catch {
    return unknownMax;
  }
}
