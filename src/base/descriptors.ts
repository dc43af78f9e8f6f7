import { readFileSync } from 'node:fs';

const unknownMax = 1_000_000;

/** Returns how many files and connections this process may open; a large number if the system does not report it. */
export function descriptorsMax(): number {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? unknownMax : Number(soft);
  } catch {
    return unknownMax;
  }
}
