import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { isUuid } from '#base/id.ts';

/** Control groups (cgroups(7)): limits for all processes of a run together. */

export interface GroupLimits {
  readonly memoryBytes: number;
  /** Thousandths of a core. */
  readonly milliCpus: number;
}

export interface Groups {
  /**
   * Creates the groups of a run, if they are missing.
   * @returns files to which a process writes its id to enter the groups
   */
  enter(runId: string): readonly string[];
  /** True if the kernel has killed a process of the run because its memory ran out. */
  ranOut(runId: string): boolean;
  remove(runId: string): Promise<void>;
  /**
   * Removes orphaned groups: those without a folder here and without processes that are older than an hour, as after
   * the folder of runs was deleted.
   */
  sweep(hasFolder: (runId: string) => boolean): void;
}

const root = '/sys/fs/cgroup';
const folder = 'headgate-runs';
const pidsMax = 512;
/** Memory of the phase's keeper, which is in the run's groups too. */
const keeperBytes = 96 * 1024 * 1024;
const cpuPeriodMicros = 100_000;

/** A folder for groups of runs, and the files to write in each group. */
interface Hierarchy {
  readonly folder: string;
  readonly settings: readonly { readonly file: string; readonly value: string; readonly isNeeded: boolean }[];
  /** The file whose line `oom_kill <number>` counts killed processes; null if another hierarchy has it. */
  readonly killed: string | null;
}

/**
 * @param mode `ask`: leaves nothing that did not exist before
 * @returns a sentence if this process may not create groups that limit memory and processes
 */
export function findGroups(limits: GroupLimits, mode: 'make' | 'ask' = 'make'): Groups | string {
  try {
    const found = existsSync(join(root, 'cgroup.controllers')) ? unified(limits) : legacy(limits);
    if (typeof found === 'string') return found;
    if (mode === 'ask') for (const { folder: made } of found) dropEmpty(made);
    return createGroups(found);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    return `control groups cannot be created on this machine (${code})`;
  }
}

const cpuQuota = ({ milliCpus }: GroupLimits): number => Math.round((milliCpus * cpuPeriodMicros) / 1000);
const memoryOf = ({ memoryBytes }: GroupLimits): string => String(memoryBytes + keeperBytes);

/** Version 2: one hierarchy. A group has either processes or subgroups, not both. */
function unified(limits: GroupLimits): readonly Hierarchy[] | string {
  const own = join(root, ownPath(/^0::(.*)$/m));
  for (const parent of new Set([own, dirname(own), root])) {
    if (!parent.startsWith(root) || !hasControllers(parent)) continue;
    const made = join(parent, folder);
    if (!isMade(made) || !hasControllers(made)) continue;
    const settings = [
      { file: 'memory.max', value: memoryOf(limits), isNeeded: true },
      { file: 'memory.swap.max', value: '0', isNeeded: false },
      { file: 'pids.max', value: String(pidsMax), isNeeded: true },
      { file: 'cpu.max', value: `${cpuQuota(limits)} ${cpuPeriodMicros}`, isNeeded: false },
    ];
    return [{ folder: made, settings, killed: 'memory.events' }];
  }
  return "control groups may not be created: in a systemd service, the gateway's unit needs Delegate=yes and DelegateSubgroup=gateway";
}

/**
 * Enables limits of memory and processes for subgroups, and of cores where possible.
 * @returns true if the first two are enabled
 */
function hasControllers(group: string): boolean {
  const file = join(group, 'cgroup.subtree_control');
  for (const names of ['+memory +pids', '+cpu']) {
    try {
      writeFileSync(file, names);
    } catch {
      // The controllers may be enabled already, or unavailable.
    }
  }
  const there = readText(file).split(/\s/);
  return there.includes('memory') && there.includes('pids');
}

/** Version 1: one hierarchy per controller. */
function legacy(limits: GroupLimits): readonly Hierarchy[] | string {
  const memory = memoryOf(limits);
  const wanted = [
    {
      controller: 'memory',
      killed: 'memory.oom_control',
      settings: [
        { file: 'memory.limit_in_bytes', value: memory, isNeeded: true },
        { file: 'memory.memsw.limit_in_bytes', value: memory, isNeeded: false },
      ],
    },
    {
      controller: 'pids',
      killed: null,
      settings: [{ file: 'pids.max', value: String(pidsMax), isNeeded: true }],
    },
    {
      controller: 'cpu',
      killed: null,
      settings: [
        { file: 'cpu.cfs_period_us', value: String(cpuPeriodMicros), isNeeded: false },
        { file: 'cpu.cfs_quota_us', value: String(cpuQuota(limits)), isNeeded: false },
      ],
    },
  ];
  const found = wanted.flatMap(({ controller, ...rest }): Hierarchy[] => {
    const top = join(root, controller);
    const own = join(top, ownPath(new RegExp(String.raw`^\d+:(?:[^:]*,)?${controller}(?:,[^:]*)?:(.*)$`, 'm')));
    const made = [own, top].map((parent) => join(parent, folder)).find((path) => isMade(path));
    return made === undefined ? [] : [{ ...rest, folder: made }];
  });
  const lacks = ['memory.limit_in_bytes', 'pids.max'].some(
    (file) => !found.some((hierarchy) => existsSync(join(hierarchy.folder, file))),
  );
  return lacks ? 'control groups for memory and processes may not be created on this machine' : found;
}

/** Returns the group of this process, as the kernel names it. */
function ownPath(pattern: RegExp): string {
  return pattern.exec(readText('/proc/self/cgroup'))?.[1] ?? '/';
}

function createGroups(hierarchies: readonly Hierarchy[]): Groups {
  return {
    enter(runId) {
      return hierarchies.map(({ folder: parent, settings }) => {
        const group = join(parent, runId);
        mkdirSync(group, { recursive: true });
        for (const { file, value, isNeeded } of settings) {
          try {
            writeFileSync(join(group, file), value);
          } catch (error) {
            if (isNeeded) throw error;
          }
        }
        return join(group, 'cgroup.procs');
      });
    },
    ranOut(runId) {
      return hierarchies.some(({ folder: parent, killed }) => {
        const memoryEvents = killed === null ? '' : readText(join(parent, runId, killed));
        return Number(/^oom_kill (\d+)$/m.exec(memoryEvents)?.[1] ?? 0) > 0;
      });
    },
    async remove(runId) {
      for (const { folder: parent } of hierarchies) await removeGroup(join(parent, runId));
    },
    sweep(hasFolder) {
      for (const { folder: parent } of hierarchies) {
        for (const runId of runGroupsIn(parent)) if (!hasFolder(runId)) dropEmpty(join(parent, runId));
      }
    },
  };
}

/**
 * Minimum age of orphaned groups: another gateway's run has no process between two phases, and a new group may be about
 * to get one.
 */
const sweptAfterMs = 3_600_000;

function runGroupsIn(parent: string): string[] {
  const isOld = (name: string): boolean => {
    const found = statSync(join(parent, name), { throwIfNoEntry: false });
    return found !== undefined && Date.now() - found.mtimeMs > sweptAfterMs;
  };
  return existsSync(parent) ? readdirSync(parent).filter((name) => isUuid(name) && isOld(name)) : [];
}

/** Killed processes stay in their group until the kernel has removed them. */
const removeTries = 40;

async function removeGroup(group: string): Promise<void> {
  for (let attempt = 1; existsSync(group); attempt += 1) {
    try {
      rmdirSync(group);
    } catch {
      if (attempt === removeTries) return;
      await pause(50);
    }
  }
}

/** Removes a group, unless it has subgroups or processes. */
function dropEmpty(group: string): void {
  try {
    rmdirSync(group);
  } catch {
    // In use.
  }
}

function isMade(path: string): boolean {
  try {
    mkdirSync(path, { recursive: true });
    // The existing folder may belong to somebody else: tests that a group can be created.
    const probe = join(path, `probe-${process.pid}`);
    mkdirSync(probe);
    rmdirSync(probe);
    return readdirSync(path).length > 0;
  } catch {
    return false;
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
