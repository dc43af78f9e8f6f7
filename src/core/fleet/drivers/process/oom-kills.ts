import { readFileSync } from 'node:fs';

/**
 * What the kernel says of its own kills. SIGKILL alone does not tell who sent it, and each control group counts the
 * processes of it that ended because memory ran out. Children are in the group of the gateway.
 */

/** Of the gateway's control group; null where nobody counts. */
export type CountOomKills = () => number | null;

export interface OomKills {
  /** What a child that begins now does not have to do with. */
  begin(): number;
  /**
   * To be asked whenever a child has ended: each kill is put down to the first that ends after it.
   * @param begun of that child
   * @returns whether there was one since
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
 * Files that hold the count, the surest first: `memory.events` of cgroup v2, `memory.oom_control` of v1. In a container
 * the group may be mounted as the root of its tree.
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
