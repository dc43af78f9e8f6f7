/** Things to undo after a row: processes, folders, listening proxies. */
export interface Tidy {
  /** Undone in reverse order at the end. */
  add(undo: () => Promise<void> | void): void;
  /** Undoes all of it; errors of single steps come together at the end. */
  all(): Promise<void>;
}

export function createTidy(): Tidy {
  const undos: (() => Promise<void> | void)[] = [];
  return {
    add: (undo) => void undos.push(undo),
    async all() {
      const failed: unknown[] = [];
      for (const undo of undos.splice(0).toReversed()) {
        try {
          await undo();
        } catch (error) {
          failed.push(error);
        }
      }
      if (failed.length > 0) throw new AggregateError(failed, `not tidied: ${failed.map(String).join('; ')}`);
    },
  };
}

/** Processes of this run that still live. */
const pids = new Map<number, 'process' | 'group'>();
let isWatching = false;

/**
 * Has a process end with this one, however that ends (but by -9).
 * @returns to be called when it has ended by itself
 */
export function endWithUs(pid: number, how: 'process' | 'group' = 'process'): () => void {
  pids.set(pid, how);
  if (!isWatching) {
    isWatching = true;
    process.on('exit', () => {
      for (const [left, kind] of pids) kill(kind === 'group' ? -left : left);
    });
  }
  return () => void pids.delete(pid);
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}
