import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { descendantsOf, findMarkedProcesses, processIdentity } from '#base/process-identity.ts';
import { programsPath } from './environment.ts';
import type { PhaseState } from './types.ts';

/** A shell that holds a phase: it outlives the gateway, and writes down in files who it is and how the phase ended. */

/** A phase of a run, as its holder knows it. */
export interface HeldPhase {
  /** `<run>/<phase>`: marks the holder's process. */
  readonly mark: string;
  /** What the names of its files begin with: `.pid`, `.log`, `.code`. */
  readonly files: string;
}

/** In the environment of every shell that holds a phase, and of nothing below it. */
const runVariable = 'HEADGATE_RUN_PHASE';

/**
 * Writes down who it is before anything runs, and how it ended. `set -C` lets one process alone write the first file:
 * a phase never runs twice. What a phase prints is unmasked, and for the gateway alone. $1 is the phase's files, then
 * come the files of control groups that it enters, `--`, and the command. Where memory runs out it goes before others.
 */
const holder = `
set -C
{ IFS= read -r stat </proc/$$/stat && IFS= read -r boot </proc/sys/kernel/random/boot_id; } || exit 70
stat=\${stat##*) }
files=$1
shift
{ echo "$$ $boot $stat" >"$files.pid"; } 2>/dev/null || exit 70
set +C
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  echo $$ >"$1" || exit 70
  shift
done
shift
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
(umask 077; : >"$files.log")
"$@" >>"$files.log" 2>&1 </dev/null
echo $? >"$files.code.part"
mv "$files.code.part" "$files.code"
`;

/** Field of /proc/<pid>/stat (proc_pid_stat(5)), counted from the third. */
const startTicksIndex = 19;

interface Holder {
  readonly pid: number;
  /** As `processIdentity` says it. */
  readonly identity: string;
}

/** Begins a phase in the background; one that was begun before is left alone. */
export function startHolder(
  { mark, files }: HeldPhase,
  {
    cwd,
    groups,
    command,
  }: { readonly cwd: string; readonly groups: readonly string[]; readonly command: readonly string[] },
): Promise<void> {
  // Its own session: a Ctrl-C for the gateway is none for the run.
  const child = spawn('/bin/sh', ['-c', holder, 'run', files, ...groups, '--', ...command], {
    cwd,
    detached: true,
    stdio: 'ignore',
    env: { PATH: programsPath, [runVariable]: mark },
  });
  child.unref();
  return new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
}

export function observeHolder({ mark, files }: HeldPhase): PhaseState {
  // Whoever looks between the exit of the holder and a look at its code would see a phase that is lost.
  const found = holderOf(files);
  // A holder may not yet have written down who it is.
  if (found === null) return { kind: findMarkedProcesses(runVariable, mark).length > 0 ? 'running' : 'absent' };
  const runs = processIdentity(found.pid) === found.identity;
  const exitCode = exitCodeOf(files);
  if (exitCode !== null) {
    const because = becauseOf(files);
    return { kind: 'ended', exitCode, ...(because !== null && { because, isExceeded: true }) };
  }
  return { kind: runs ? 'running' : 'lost' };
}

/** SIGINT for the program of a phase, and for nothing else of it. */
export function interruptHeld({ files }: HeldPhase, program: string): void {
  const held = holderOf(files);
  if (held === null || processIdentity(held.pid) !== held.identity) return;
  // The kernel cuts names of programs.
  const name = basename(program).slice(0, 15);
  const found = descendantsOf(held.pid).find((below) => below.program === name);
  if (found !== undefined) signal(found.pid, 'SIGINT');
}

/** SIGKILL for everything that a phase started, and for what it left running when it ended. */
export function killHeld({ files }: HeldPhase): void {
  const held = holderOf(files);
  if (held !== null) killAll(held);
}

function holderOf(files: string): Holder | null {
  try {
    return readHolder(readFileSync(`${files}.pid`, 'latin1'));
  } catch {
    return null;
  }
}

/** Null also where a full disk took the file and not what is in it: nothing is 0 as a number. */
function exitCodeOf(files: string): number | null {
  try {
    const text = readFileSync(`${files}.code`, 'latin1');
    return /^\d{1,3}\n$/.test(text) ? Number(text) : null;
  } catch {
    return null;
  }
}

/** What its keeper says of its end; null where it has nothing to say. */
function becauseOf(files: string): string | null {
  try {
    return readFileSync(`${files}.because`, 'utf8') || null;
  } catch {
    return null;
  }
}

/** Null while the line is being written: a process id of 0 would stand for our own group. */
function readHolder(line: string): Holder | null {
  const [pid = '', boot = '', ...stat] = line.trimEnd().split(' ');
  const startTicks = stat[startTicksIndex];
  if (!line.endsWith('\n') || !/^[1-9]\d*$/.test(pid) || startTicks === undefined) return null;
  return { pid: Number(pid), identity: `${boot}:${startTicks}` };
}

function killAll({ pid, identity }: Holder): void {
  const runs = processIdentity(pid) === identity;
  // Found before anything ends: who loses its parent would not be found any more.
  const below = runs ? descendantsOf(pid) : [];
  // The holder first: of what was killed nobody writes down how it ended.
  if (runs || processIdentity(pid) === null) signal(-pid, 'SIGKILL');
  for (const { pid: child } of below) signal(child, 'SIGKILL');
}

function signal(target: number, name: NodeJS.Signals): void {
  try {
    process.kill(target, name);
  } catch {
    // Ended meanwhile.
  }
}
