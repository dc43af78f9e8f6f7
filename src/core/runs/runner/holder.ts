import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { descendantsOf, findMarkedProcesses, processIdentity } from '#base/process-identity.ts';
import { programsPath } from './environment.ts';
import type { PhaseState } from './types.ts';

/** The shell around a phase. It outlives the gateway, and records in files its process and how the phase ended. */

/** The names by which a phase's holder is found. */
export interface HeldPhase {
  /** `<run>/<phase>`: marks the holder's process. */
  readonly mark: string;
  /** Prefix of the phase's files `.pid`, `.log` and `.code`. */
  readonly files: string;
}

/** Set in the environment of the holder, and not passed to its child processes. */
const runVariable = 'HEADGATE_RUN_PHASE';

/**
 * Records its process before anything runs, and the exit code at the end. `set -C` lets only one process create the
 * first file: a phase never runs twice. The output is unmasked, so only the gateway may read it. $1 is the prefix of
 * the phase's files; then come the files of the control groups to enter, `--`, and the command. Its OOM score makes the
 * kernel kill it before other processes.
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
  /** Result of `processIdentity`. */
  readonly identity: string;
}

/** Starts a phase in the background. Does nothing if the phase was started before. */
export function startHolder(
  { mark, files }: HeldPhase,
  {
    cwd,
    groups,
    command,
  }: { readonly cwd: string; readonly groups: readonly string[]; readonly command: readonly string[] },
): Promise<void> {
  // A session of its own: Ctrl-C in the gateway's terminal does not reach the run.
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
  // The process is checked before the exit code: in the other order, a holder that exits in between would look lost.
  const found = holderOf(files);
  // The holder may not have recorded its process yet.
  if (found === null) return { kind: findMarkedProcesses(runVariable, mark).length > 0 ? 'running' : 'absent' };
  const runs = processIdentity(found.pid) === found.identity;
  const exitCode = exitCodeOf(files);
  if (exitCode !== null) {
    const because = becauseOf(files);
    return { kind: 'ended', exitCode, ...(because !== null && { because, isExceeded: true }) };
  }
  return { kind: runs ? 'running' : 'lost' };
}

/** Sends SIGINT to the program of a phase, and to no other process. */
export function interruptHeld({ files }: HeldPhase, program: string): void {
  const held = holderOf(files);
  if (held === null || processIdentity(held.pid) !== held.identity) return;
  // The kernel truncates program names to 15 characters.
  const name = basename(program).slice(0, 15);
  const found = descendantsOf(held.pid).find((below) => below.program === name);
  if (found !== undefined) signal(found.pid, 'SIGINT');
}

/** Sends SIGKILL to all processes of a phase, also those that are left after its end. */
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

/** Returns null also for an empty file, as a full disk leaves it: `Number('')` would be 0. */
function exitCodeOf(files: string): number | null {
  try {
    const text = readFileSync(`${files}.code`, 'latin1');
    return /^\d{1,3}\n$/.test(text) ? Number(text) : null;
  } catch {
    return null;
  }
}

/** Returns the keeper's reason for the end; null if there is none. */
function becauseOf(files: string): string | null {
  try {
    return readFileSync(`${files}.because`, 'utf8') || null;
  } catch {
    return null;
  }
}

/** Returns null while the line is being written: a process id of 0 would mean the gateway's own group. */
function readHolder(line: string): Holder | null {
  const [pid = '', boot = '', ...stat] = line.trimEnd().split(' ');
  const startTicks = stat[startTicksIndex];
  if (!line.endsWith('\n') || !/^[1-9]\d*$/.test(pid) || startTicks === undefined) return null;
  return { pid: Number(pid), identity: `${boot}:${startTicks}` };
}

function killAll({ pid, identity }: Holder): void {
  const runs = processIdentity(pid) === identity;
  // Collected before anything is killed: a process that loses its parent could not be found anymore.
  const below = runs ? descendantsOf(pid) : [];
  // The holder is killed first, so that it records no exit code for what was killed.
  if (runs || processIdentity(pid) === null) signal(-pid, 'SIGKILL');
  for (const { pid: child } of below) signal(child, 'SIGKILL');
}

function signal(target: number, name: NodeJS.Signals): void {
  try {
    process.kill(target, name);
  } catch {
    // The process has ended meanwhile.
  }
}
