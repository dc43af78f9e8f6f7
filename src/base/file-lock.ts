import { existsSync, writeFileSync } from 'node:fs';

/**
 * Does something while no other process does the same under this lock; waits for one that does. The lock is the operating
 * system's own on a file (taken through SQLite, Node's only door to such locks), so none can be left behind by a process
 * that was killed. The file is made, stays, and is empty.
 * @param waitMs how long, in milliseconds; the process does nothing else meanwhile
 * @throws Error where the lock is not to be had
 */
export function withFileLock<T>(path: string, waitMs: number, work: () => T): T {
  // Not imported: where it is still an experiment, Node says so to everybody who loads it.
  const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
  // Mode 600, because every user who can read a file can lock it.
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
