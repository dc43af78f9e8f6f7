import { existsSync, writeFileSync } from 'node:fs';

/**
 * Runs work while no other process has this lock; waits for a process that has it. The lock is the operating system's
 * lock on a file (through SQLite, the only way to such locks in Node), so a killed process leaves no lock. The file is
 * created, stays, and is empty.
 * @param waitMs milliseconds to wait at most; the process does nothing else meanwhile
 * @throws Error if the lock is not available in time
 */
export function withFileLock<T>(path: string, waitMs: number, work: () => T): T {
  // Not imported: Node versions in which the module is experimental print a warning when it is loaded.
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
