import { readFileSync } from 'node:fs';

/**
 * Reads how often the kernel killed a process because memory ran out. SIGKILL does not name its sender, but each
 * control group counts these kills. Children are in the gateway's group.
 */

/** Returns the count of the gateway's control group; null if there is none. */
export type CountOomKills = () => number | null;

export interface OomKills {
  /** Returns the count of kills before a child that starts now. */
  begin(): number;
  /**
   * Called whenever a child has ended: each kill is attributed to the first child that ends after it.
   * @param begun the child's count from `begin`
   * @returns true if there was a kill since
   */
  take(begun: number): boolean;
}

export function createOomKills(count: CountOomKills = countOomKills): OomKills {
  let taken = 0;
  return {
    begin: () => count() ?? 0,
    take(begun) {
      const now = count() ?? 0;
      const isNew = now > Math.max(begun, taken);
      taken = now;
      return isNew;
    },
  };
}

function countOomKills(): number | null {
  for (const path of oomFiles(readText('/proc/self/cgroup') ?? '')) {
    const match = /^oom_kill (\d+)$/m.exec(readText(path) ?? '');
    if (match !== null) return Number(match[1]);
  }
  return null;
}

/**
 * Returns files that have the count, most reliable first: `memory.events` of cgroup v2, `memory.oom_control` of v1. In
 * a container the group may be mounted as the root of its tree.
 * @param groups /proc/self/cgroup, cgroups(7)
 */
export function oomFiles(groups: string): string[] {
  return groups.split('\n').flatMap((line) => {
    const [, controllers = '', path = ''] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    const folder = path === '/' ? '' : path;
    if (path !== '' && controllers === '') return both('/sys/fs/cgroup', folder, 'memory.events');
    if (controllers.split(',').includes('memory')) return both('/sys/fs/cgroup/memory', folder, 'memory.oom_control');
    return [];
  });
}

function both(root: string, folder: string, file: string): string[] {
  return [...new Set([`${root}${folder}/${file}`, `${root}/${file}`])];
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return null;
  }
}
