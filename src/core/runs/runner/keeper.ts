import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { fstatSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { programsPath } from './environment.ts';
import { spawnInNetwork } from './keeper-network.ts';
import type { KeeperPlan, KeeperWatch } from './keeper-plan.ts';
import { diskBytesOf, UncountedError } from './keeper-watch.ts';
import { asRunUser } from './sandbox.ts';

/**
 * The keeper of a phase, a program of its own: it starts the phase in its network, watches what it takes of the disk,
 * and notes when its output was written. Its arguments are a `KeeperPlan` as JSON and the command. It outlives the
 * gateway, as the phase does, and ends with the phase, as which it exits; the phase ends with it.
 */

const lookAtLogMs = 200;
const lookAtDiskMs = 1000;
/** Counting takes at most this share of the time. */
const diskShare = 10;

const [planText = '', ...command] = process.argv.slice(2);
keep(JSON.parse(planText) as KeeperPlan);

function keep(plan: KeeperPlan): void {
  // In the language of the log that its output goes to: a line of text.
  const say = (text: string): void => void writeSync(1, `headgate: ${text}\n`);
  if (plan.say !== null) say(plan.say);
  // Opened now: the folder is not the run's user's.
  const noted = plan.watch === null ? null : openNotes(plan.watch);
  const child = startIn(plan, say);
  if (plan.user !== null) becomeUser(plan.user);
  const end = noted === null || plan.watch === null ? () => undefined : endingOf(plan.watch, noted, child);
  child.once('exit', (code, signal) => {
    if (plan.watch !== null) cutLog(plan.watch);
    noted?.time();
    process.exit(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
  });
  child.once('error', (error) => {
    say(`${command[0] ?? ''} cannot be run (${error.message})`);
    process.exit(127);
  });
  const holder = process.ppid;
  setInterval(() => {
    noted?.time();
    if (plan.watch !== null && printed() > plan.watch.logBytesMax) end(printedTooMuch(plan.watch));
    // Nobody would write down how the phase ends.
    if (process.ppid !== holder) process.exit(child.kill('SIGKILL') ? 137 : 1);
  }, lookAtLogMs);
  if (plan.watch !== null) void watchDisk(plan.watch, end);
}

/** Ends the phase and notes why, the first time. */
function endingOf({ workDir }: KeeperWatch, noted: Notes, child: ChildProcess): (because: string) => void {
  let isEnded = false;
  return (because) => {
    if (!isEnded) noted.because(because.replaceAll(workDir, 'the work folder'));
    isEnded = true;
    child.kill('SIGKILL');
  };
}

/** Bytes of the phase's output, which is this program's own. */
function printed(): number {
  return fstatSync(1).size;
}

function mebibytes(bytes: number): number {
  return Math.round(bytes / 1_048_576);
}

function printedTooMuch({ logBytesMax }: KeeperWatch): string {
  return `it printed more than ${mebibytes(logBytesMax)} MiB, which is the bound of one phase`;
}

/** Of a phase that has ended: what it printed beyond its bound takes no disk. */
function cutLog(watch: KeeperWatch): void {
  if (printed() <= watch.logBytesMax) return;
  ftruncateSync(1, watch.logBytesMax);
  writeSync(1, `\nheadgate: ${printedTooMuch(watch)}; the rest is cut\n`);
}

function startIn({ network, user }: KeeperPlan, say: (text: string) => void): ChildProcess {
  const asUser = user === null ? [] : asRunUser(user);
  if (network !== null) return spawnInNetwork(network, { command, asUser, say });
  const [program = '', ...args] = [...asUser, ...command];
  return spawn(program, args, { stdio: ['ignore', 'inherit', 'inherit'], env: { PATH: programsPath } });
}

function becomeUser({ uid, gid }: { readonly uid: number; readonly gid: number }): void {
  process.setgroups?.([]);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

interface Notes {
  /** Lines of `<bytes of the output> <milliseconds since the Unix epoch>`: by then it had become so long. */
  time(): void;
  /** Why the phase was ended. */
  because(text: string): void;
}

function openNotes({ files }: KeeperWatch): Notes {
  const times = openSync(`${files}.times`, 'a', 0o600);
  const because = openSync(`${files}.because`, 'a', 0o600);
  let known = 0;
  return {
    time() {
      const size = printed();
      if (size === known) return;
      known = size;
      writeSync(times, `${size} ${Date.now()}\n`);
    },
    because: (text) => void writeSync(because, text),
  };
}

async function watchDisk(watch: KeeperWatch, end: (because: string) => void): Promise<void> {
  const { diskBytesMax } = watch;
  const bound = `the ${mebibytes(diskBytesMax)} MiB that a run has (HEADGATE_RUNS_DISK_MIB)`;
  for (;;) {
    const beganMs = Date.now();
    try {
      if ((await takenBy(watch)) > diskBytesMax) return end(`its work folder took more than ${bound}`);
    } catch (error) {
      if (!(error instanceof UncountedError)) throw error;
      return end(`its work folder counts as larger than ${bound}: ${error.message}`);
    }
    const tookMs = Date.now() - beganMs;
    await new Promise((resolve) => setTimeout(resolve, Math.max(lookAtDiskMs, tookMs * diskShare)));
  }
}

async function takenBy({ workDir, diskBytesMax, printedBytes }: KeeperWatch): Promise<number> {
  const printedBy = printedBytes + printed();
  return printedBy + (await diskBytesOf(workDir, diskBytesMax - printedBy));
}
