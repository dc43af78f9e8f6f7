import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/**
 * Process ids are used again. A process is identified by its id and the moment it started, and no process is ever
 * signalled whose moment differs from the one that was written down.
 */

/** @returns a text that no other process with this id has, or null when there is none or it is only a zombie */
export function processIdentity(pid: number): string | null {
  return process.platform === 'linux' ? linuxIdentity(pid) : psIdentity(pid);
}

/** Fields of /proc/<pid>/stat (proc_pid_stat(5)); the second may hold blanks and brackets, so count after its end. */
function readStat(pid: number): { state: string; group: number; startTicks: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state = 'X', , group = '0'] = fields;
    return { state, group: Number(group), startTicks: fields[19] ?? '' };
  } catch {
    // No such process any more.
    return null;
  }
}

function linuxIdentity(pid: number): string | null {
  const stat = readStat(pid);
  if (stat === null || stat.state === 'Z' || stat.state === 'X') return null;
  // Ticks count from the boot: the same number may come again after the next one.
  return `${bootId()}:${stat.startTicks}`;
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return 'unknown';
  }
}

function psIdentity(pid: number): string | null {
  try {
    const text = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], {
      encoding: 'latin1',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [state = '', ...started] = text.trim().split(/\s+/);
    return state === '' || state.startsWith('Z') ? null : started.join(' ');
  } catch {
    // ps ends with 1 when there is no such process.
    return null;
  }
}

/** Sends a signal to a process, if it is still the one that was meant. */
export function signalProcess(pid: number, identity: string, signal: NodeJS.Signals): void {
  if (processIdentity(pid) === identity) kill(pid, signal);
}

/**
 * Kills what is left of a process group whose leader has ended or may be killed with it. A group's number is not
 * given to a new process while the group has members, so it cannot be somebody else's unless a new leader took it.
 */
export function killGroup(leaderPid: number, leaderIdentity: string): void {
  const current = processIdentity(leaderPid);
  if (current === null || current === leaderIdentity) kill(-leaderPid, 'SIGKILL');
}

function kill(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal);
  } catch (error) {
    // ESRCH: already gone. EPERM: on macOS also what a group of zombies answers.
    const code = error instanceof Error && 'code' in error ? error.code : '';
    if (code !== 'ESRCH' && code !== 'EPERM') throw error;
  }
}

/** A process, and the process group that it is in. */
export interface FoundProcess {
  readonly pid: number;
  readonly group: number;
  readonly identity: string;
}

/**
 * Finds processes that have this variable with this value in their environment, even if the gateway died between
 * starting and recording them. Only on Linux; other systems do not show another process' environment cheaply.
 */
export function findMarkedProcesses(variable: string, value: string): FoundProcess[] {
  if (process.platform !== 'linux') return [];
  const mark = `\0${variable}=${value}\0`;
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && hasMark(name, mark))
    .flatMap((name) => {
      const pid = Number(name);
      const identity = linuxIdentity(pid);
      const stat = readStat(pid);
      return identity === null || stat === null ? [] : [{ pid, group: stat.group, identity }];
    });
}

function hasMark(pid: string, mark: string): boolean {
  try {
    return `\0${readFileSync(`/proc/${pid}/environ`, 'latin1')}`.includes(mark);
  } catch {
    // Ended meanwhile, or another user's.
    return false;
  }
}

/** A process below another one. */
export interface Descendant {
  readonly pid: number;
  /** The name of its program, cut to 15 bytes (proc_pid_comm(5)). */
  readonly program: string;
}

/** Lists all descendants of a process, parents before children, other users' processes included. Only on Linux. */
export function descendantsOf(pid: number): readonly Descendant[] {
  const children = new Map<number, Descendant[]>();
  for (const name of readdirSync('/proc')) {
    const found = /^\d+$/.test(name) ? readParent(Number(name)) : null;
    if (found === null) continue;
    const siblings = children.get(found.parent) ?? [];
    children.set(found.parent, [...siblings, { pid: Number(name), program: found.program }]);
  }
  const all: Descendant[] = [];
  for (let level = children.get(pid) ?? []; level.length > 0;) {
    all.push(...level);
    level = level.flatMap((child) => children.get(child.pid) ?? []);
  }
  return all;
}

function readParent(pid: number): { readonly parent: number; readonly program: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [, parent = '0'] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { parent: Number(parent), program: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')) };
  } catch {
    // Ended meanwhile.
    return null;
  }
}
