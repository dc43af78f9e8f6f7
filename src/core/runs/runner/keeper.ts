import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { fstatSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { programsPath } from './environment.ts';
import type { KeeperPlan, KeeperWatch } from './keeper-plan.ts';
import { diskBytesOf, UncountedError } from './keeper-watch.ts';
import { asRunUser } from './sandbox.ts';

/**
 * The keeper of a phase, a separate program. It starts the phase in its network, watches its disk usage, and records
 * when output was written. Its arguments are a `KeeperPlan` as JSON, and the command. It outlives the gateway, as the
 * phase does. It exits with the phase and with its exit code; the phase ends if the keeper ends.
 */

const logPollMs = 200;
const diskPollMs = 1000;
/** Pause after counting, as a multiple of the time that counting took. */
const diskShare = 10;

const [planText = '', ...command] = process.argv.slice(2);
const plan = JSON.parse(planText) as KeeperPlan;
// Loaded only where it is needed: without it, a keeper starts in a third of the time.
const network = plan.network === null ? null : await import('./keeper-network.ts');
keep();

function keep(): void {
  // A line of text, as in the log that the output goes to.
  const log = (text: string): void => void writeSync(1, `headgate: ${text}\n`);
  if (plan.say !== null) log(plan.say);
  // Opened before the keeper becomes the run's user, who cannot write to the folder.
  const noted = plan.watch === null ? null : openNotes(plan.watch);
  const child = start(log);
  // Now, because the run's user cannot write the cache.
  flushCompileCache();
  if (plan.user !== null) becomeUser(plan.user);
  const end = noted === null || plan.watch === null ? () => undefined : endingOf(plan.watch, noted, child);
  child.once('exit', (code, signal) => {
    if (plan.watch !== null) cutLog(plan.watch);
    noted?.time();
    process.exit(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
  });
  child.once('error', (error) => {
    log(`${command[0] ?? ''} could not be started (${error.message})`);
    process.exit(127);
  });
  const holder = process.ppid;
  setInterval(() => {
    noted?.time();
    if (plan.watch !== null && printed() > plan.watch.logBytesMax) end(printedTooMuch(plan.watch));
    // Without the holder nothing would record how the phase ends.
    if (process.ppid !== holder) process.exit(child.kill('SIGKILL') ? 137 : 1);
  }, logPollMs);
  if (plan.watch !== null) void watchDisk(plan.watch, end);
}

/** Returns a function that kills the phase, and records the reason of its first call. */
function endingOf({ workDir }: KeeperWatch, noted: Notes, child: ChildProcess): (because: string) => void {
  let isEnded = false;
  return (because) => {
    if (!isEnded) noted.because(because.replaceAll(workDir, 'the work folder'));
    isEnded = true;
    child.kill('SIGKILL');
  };
}

/** Returns the bytes of the phase's output, which is the keeper's own standard output. */
function printed(): number {
  return fstatSync(1).size;
}

function mebibytes(bytes: number): number {
  return Math.round(bytes / 1_048_576);
}

function printedTooMuch({ logBytesMax }: KeeperWatch): string {
  return `it printed more than ${mebibytes(logBytesMax)} MiB, the limit for one phase`;
}

/** Cuts the output of an ended phase at its limit, so that the rest uses no disk. */
function cutLog(watch: KeeperWatch): void {
  if (printed() <= watch.logBytesMax) return;
  ftruncateSync(1, watch.logBytesMax);
  writeSync(1, `\nheadgate: ${printedTooMuch(watch)}; the rest is cut off\n`);
}

function start(log: (text: string) => void): ChildProcess {
  const asUser = plan.user === null ? [] : asRunUser(plan.user);
  if (network !== null && plan.network !== null) return network.spawnInNetwork(plan.network, { command, asUser, log });
  const [program = '', ...args] = [...asUser, ...command];
  return spawn(program, args, { stdio: ['ignore', 'inherit', 'inherit'], env: { PATH: programsPath } });
}

function becomeUser({ uid, gid }: { readonly uid: number; readonly gid: number }): void {
  process.setgroups?.([]);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

interface Notes {
  /** Appends `<bytes of the output> <milliseconds since the Unix epoch>`: by then the output had this length. */
  time(): void;
  /** Records why the phase was ended. */
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
  const bound = `${mebibytes(diskBytesMax)} MiB, the limit for a run (HEADGATE_RUNS_DISK_MIB)`;
  for (;;) {
    const beganMs = Date.now();
    try {
      if ((await takenBy(watch)) > diskBytesMax) return end(`its work folder is larger than ${bound}`);
    } catch (error) {
      if (!(error instanceof UncountedError)) throw error;
      return end(`its work folder is treated as larger than ${bound}: ${error.message}`);
    }
    const tookMs = Date.now() - beganMs;
    await new Promise((resolve) => setTimeout(resolve, Math.max(diskPollMs, tookMs * diskShare)));
  }
}

async function takenBy({ workDir, diskBytesMax, printedBytes }: KeeperWatch): Promise<number> {
  const printedBy = printedBytes + printed();
  return printedBy + (await diskBytesOf(workDir, diskBytesMax - printedBy));
}
