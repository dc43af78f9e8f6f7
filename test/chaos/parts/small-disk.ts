import { execFileSync } from 'node:child_process';

const mounted = new Set<string>();
let isWatching = false;

/**
 * Puts a disk of its own in the place of a folder, in memory.
 * @returns takes it away again
 */
export function mountSmallDisk(dir: string, mebibytes: number): () => void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m,mode=711`, 'headgate-chaos', dir]);
  mounted.add(dir);
  if (!isWatching) {
    isWatching = true;
    process.on('exit', () => {
      for (const left of mounted) unmount(left);
    });
  }
  return () => unmount(dir);
}

function unmount(dir: string): void {
  if (!mounted.delete(dir)) return;
  // Lazily: a process that is about to end may still have a file open.
  execFileSync('umount', ['--lazy', dir]);
}
