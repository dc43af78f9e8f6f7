import { readFileSync, type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { ConfigError } from '#base/config-error.ts';

/** The user that PostgreSQL's processes run as. */
export interface RunAs {
  readonly uid: number;
  readonly gid: number;
}

/**
 * PostgreSQL refuses to run as root, so for root it becomes `nobody`, which every system has.
 * @returns null when this process' own user will do
 * @throws ConfigError naming DATABASE_URL when root has nobody to hand over to
 */
export function findRunAs(passwdPath = '/etc/passwd'): RunAs | null {
  if (process.geteuid?.() !== 0) return null;
  const line = /^nobody:[^:]*:(-?\d+):(-?\d+):/m.exec(readFileSync(passwdPath, 'utf8'));
  if (line === null) {
    throw new ConfigError(
      'DATABASE_URL: set it to a PostgreSQL, because the built-in one cannot run as root and there is no user "nobody".',
    );
  }
  return { uid: Number(line[1]), gid: Number(line[2]) };
}

/** Bits of one of the three classes of a mode. */
const READ = 4;
const ENTER = 1;

/** True if a user without further groups has the access `bits`: 4 read, 2 write, 1 execute or enter. */
function mayAccess(stats: Stats, bits: number, { uid, gid }: RunAs): boolean {
  const shift = stats.uid === uid >>> 0 ? 6 : stats.gid === gid >>> 0 ? 3 : 0;
  return ((stats.mode >> shift) & bits) === bits;
}

/**
 * The outermost folder on the way to `path` (itself included when it is a folder) that the user cannot enter.
 * @param path absolute, without symbolic links
 */
export function firstClosedFolder(path: string, runAs: RunAs): string | null {
  const above = dirname(path);
  const closed = above === path ? null : firstClosedFolder(above, runAs);
  if (closed !== null) return closed;
  const stats = statSync(path);
  return stats.isDirectory() && !mayAccess(stats, ENTER, runAs) ? path : null;
}

/** True if the user can read a file, and run it if it is a program. */
export function canUseFile(path: string, isProgram: boolean, runAs: RunAs): boolean {
  return mayAccess(statSync(path), isProgram ? READ | ENTER : READ, runAs);
}
