import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** Linux's figures about processes. Elsewhere CPU and memory are unknown (NaN) and nothing is pinned. */

export const isLinux = process.platform === 'linux';

/** Clock ticks of /proc are hundredths of a second on every Linux that Node runs on. */
const microsPerTick = 10_000;

interface Stat {
  readonly parentPid: number;
  readonly name: string;
  /** User and system time, with that of children that have ended, in microseconds. */
  readonly cpuMicros: number;
}

function readStat(pid: number): Stat | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const nameEnd = text.lastIndexOf(')');
    const fields = text.slice(nameEnd + 2).split(' ');
    const ticks = [11, 12, 13, 14].reduce((sum, index) => sum + Number(fields[index]), 0);
    const name = text.slice(text.indexOf('(') + 1, nameEnd);
    return { parentPid: Number(fields[1]), name, cpuMicros: ticks * microsPerTick };
  } catch {
    return null;
  }
}

/** A process's own CPU time, without that of its children, in microseconds. */
export function ownCpuMicros(pid: number): number {
  if (!isLinux) return Number.NaN;
  const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * microsPerTick;
}

/** CPU time of processes and of their children that have ended, in microseconds. */
export function cpuMicros(pids: readonly number[]): number {
  if (!isLinux) return Number.NaN;
  return pids.reduce((sum, pid) => sum + (readStat(pid)?.cpuMicros ?? 0), 0);
}

/** All processes that descend from one, itself not among them, with their names. */
export function descendants(pid: number): { readonly pid: number; readonly name: string }[] {
  if (!isLinux) return [];
  const children = new Map<number, { pid: number; name: string }[]>();
  for (const entry of readdirSync('/proc')) {
    const stat = /^\d+$/.test(entry) ? readStat(Number(entry)) : null;
    if (stat === null) continue;
    const siblings = children.get(stat.parentPid) ?? [];
    siblings.push({ pid: Number(entry), name: stat.name });
    children.set(stat.parentPid, siblings);
  }
  const found: { pid: number; name: string }[] = [];
  const queue = [pid];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    for (const child of children.get(next) ?? []) {
      found.push(child);
      queue.push(child.pid);
    }
  }
  return found;
}

/** Proportional share of a process's memory in MB (10^6 bytes): pages shared with others count in part. */
export function pssMb(pid: number): number {
  return memoryMb(pid, 'Pss');
}

export function rssMb(pid: number): number {
  return memoryMb(pid, 'Rss');
}

function memoryMb(pid: number, field: string): number {
  if (!isLinux) return Number.NaN;
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1');
  const found = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(text);
  return found === null ? Number.NaN : (Number(found[1]) * 1024) / 1e6;
}

/** Binds all threads of a process to one core; false where that cannot be done. */
export function pin(pid: number, core: number): boolean {
  if (!isLinux) return false;
  try {
    execFileSync('taskset', ['-acp', String(core), String(pid)], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
