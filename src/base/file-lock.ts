import { existsSync, writeFileSync } from 'node:fs';

/**
 * Runs `work` under an exclusive lock; waits while another process has the lock. The lock is the operating system's own
 * lock on a file (taken through SQLite, Node's only way to such locks), so a killed process cannot leave one behind.
 * The file is created, stays, and is empty.
 * @param waitMs maximum wait in milliseconds; the process is blocked meanwhile
 * @throws Error if the lock is not free in time
 */
export function withFileLock<T>(path: string, waitMs: number, work: () => T): T {
  // Not imported: where it is still an experiment, Node says so to everybody who loads it.
  const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
  // A process that can read a file can also lock it.
  if (!existsSync(path)) writeFileSync(path, '', { flag: 'a', mode: 0o600 });
  const database = new DatabaseSync(path, { timeout: waitMs });
  try {
    database.exec('PRAGMA journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
    return work();
  } finally {
    database.close();
  }
}
