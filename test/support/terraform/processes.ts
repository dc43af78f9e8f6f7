import { globSync, readFileSync } from 'node:fs';

/** Numbers of the processes that have this line in their environment. */
export function processesWith(line: string): number[] {
  return globSync('/proc/[0-9]*/environ').flatMap((path) => {
    try {
      return readFileSync(path, 'utf8').split('\0').includes(line) ? [Number(path.split('/')[2])] : [];
    } catch {
      // It ended since it was listed.
      return [];
    }
  });
}
