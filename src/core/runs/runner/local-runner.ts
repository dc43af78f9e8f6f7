import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chownSync, constants, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open, readlink, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { descendantsOf, findMarkedProcesses, processIdentity } from '#base/process-identity.ts';
import { programsPath, terraformEnvironment } from './environment.ts';
import { logChunkBytes, type Phase, type PhaseState, type Runner, type WorkFile } from './runner.ts';
import { asRunUser, resourceLimits, runUser, sandboxCommand, sandboxPaths } from './sandbox.ts';

export interface LocalRunnerOptions {
  readonly kind: 'bwrap' | 'process';
  /** Holds a folder per run; on the gateway's machine. */
  readonly runsDir: string;
  /** The program, with its path. */
  readonly terraform: string;
  /** A folder of provider packages; null: they are fetched from registries. */
  readonly mirror: string | null;
  readonly isRoot: boolean;
}

/** In the environment of every shell that holds a phase, and of nothing below it. */
const runVariable = 'HEADGATE_RUN_PHASE';

/**
 * Writes down who it is before anything runs, and how it ended. `set -C` lets one process alone write the first file:
 * a phase never runs twice. $1 is the phase's files, the rest the command.
 */
const holder = `
set -C
{ IFS= read -r stat </proc/$$/stat && IFS= read -r boot </proc/sys/kernel/random/boot_id; } || exit 70
stat=\${stat##*) }
files=$1
shift
{ echo "$$ $boot $stat" >"$files.pid"; } 2>/dev/null || exit 70
set +C
"$@" >"$files.log" 2>&1 </dev/null
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

/** Runs on the gateway's own machine: in bubblewrap, or without any wall around them. */
export function createLocalRunner(options: LocalRunnerOptions): Runner {
  const { kind, runsDir, terraform, isRoot } = options;
  const folderOf = (runId: string): string => join(runsDir, runId);
  const workOf = (runId: string): string => join(folderOf(runId), 'work');
  const filesOf = (runId: string, phase: string): string => join(folderOf(runId), `phase-${phase}`);
  const paths = (runId: string) => {
    const sandboxed = { root: sandboxPaths.work, mirror: options.mirror === null ? null : sandboxPaths.mirror };
    return kind === 'bwrap' ? sandboxed : { root: workOf(runId), mirror: options.mirror };
  };

  function commandOf(runId: string, cwd: string, args: readonly string[]): string[] {
    const { root } = paths(runId);
    const workingDir = cwd === '' ? root : `${root}/${cwd}`;
    const environment = terraformEnvironment({ root, tmpDir: kind === 'bwrap' ? '/tmp' : `${root}/tmp` });
    const clean = ['env', '-i', ...environment];
    if (kind === 'process') return [...clean, ...resourceLimits, terraform, `-chdir=${workingDir}`, ...args];
    const place = { workDir: workOf(runId), terraform, mirror: options.mirror, dropsRoot: isRoot };
    const program = `${sandboxPaths.terraformDir}/${basename(terraform)}`;
    return [...clean, ...resourceLimits, ...sandboxCommand(place, workingDir), program, ...args];
  }

  function holderOf(runId: string, phase: string): Holder | null {
    try {
      return readHolder(readFileSync(`${filesOf(runId, phase)}.pid`, 'latin1'));
    } catch {
      return null;
    }
  }

  function exitCodeOf(runId: string, phase: string): number | null {
    try {
      return Number(readFileSync(`${filesOf(runId, phase)}.code`, 'latin1'));
    } catch {
      return null;
    }
  }

  return {
    kind,
    place: placeOf(runsDir),
    paths,
    prepare(runId, files) {
      mkdirSync(folderOf(runId), { recursive: true, mode: isRoot ? 0o711 : 0o700 });
      writeFiles(workOf(runId), files, isRoot);
      return Promise.resolve();
    },
    start(runId, cwd, { name, args }: Phase) {
      const user = kind === 'process' && isRoot ? asRunUser : [];
      const command = ['-c', holder, 'run', filesOf(runId, name), ...user, ...commandOf(runId, cwd, args)];
      // Its own session: a Ctrl-C for the gateway is none for the run.
      const child = spawn('/bin/sh', command, {
        cwd: folderOf(runId),
        detached: true,
        stdio: 'ignore',
        env: { PATH: programsPath, [runVariable]: `${runId}/${name}` },
      });
      child.unref();
      return new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
    },
    observe(runId, phase): Promise<PhaseState> {
      // Whoever looks between the exit of the holder and a look at its code would see a phase that is lost.
      const found = holderOf(runId, phase);
      if (found === null) return Promise.resolve({ kind: isHeld(runId, phase) ? 'running' : 'absent' });
      const runs = processIdentity(found.pid) === found.identity;
      const exitCode = exitCodeOf(runId, phase);
      if (exitCode !== null) return Promise.resolve({ kind: 'ended', exitCode });
      return Promise.resolve({ kind: runs ? 'running' : 'lost' });
    },
    readLog: (runId, phase, offset) => readFrom(`${filesOf(runId, phase)}.log`, offset),
    interrupt(runId, phase) {
      const held = holderOf(runId, phase);
      if (held === null || processIdentity(held.pid) !== held.identity) return Promise.resolve();
      // The kernel cuts names of programs.
      const name = basename(terraform).slice(0, 15);
      const found = descendantsOf(held.pid).find(({ program }) => program === name);
      if (found !== undefined) signal(found.pid, 'SIGINT');
      return Promise.resolve();
    },
    kill(runId, phase) {
      const held = holderOf(runId, phase);
      if (held !== null) killAll(held);
      return Promise.resolve();
    },
    readFile: (runId, path, bytesMax) => readBounded(join(workOf(runId), path), bytesMax),
    removeFile: (runId, path) => rm(join(workOf(runId), path), { force: true }),
    async remove(runId) {
      for (const name of phasesIn(folderOf(runId))) {
        const held = holderOf(runId, name);
        if (held !== null) killAll(held);
      }
      await rm(folderOf(runId), { recursive: true, force: true });
    },
    list() {
      return Promise.resolve(runFoldersIn(runsDir));
    },
  };
}

const runFoldersIn = (runsDir: string): string[] => readdirIfThere(runsDir).filter((name) => !name.startsWith('.'));

/** Whether any run has a folder here, which nobody needs a program of Terraform to see. */
export const hasRunFolders = (runsDir: string): boolean => runFoldersIn(runsDir).length > 0;

/** Gateways of one folder are on one machine, and find each other's runs there. */
function placeOf(runsDir: string): string {
  const path = join(runsDir, '.place');
  try {
    writeFileSync(path, `local ${randomUUID()}`, { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  }
  return readFileSync(path, 'utf8');
}

/** Null while the line is being written: a process id of 0 would stand for our own group. */
function readHolder(line: string): Holder | null {
  const [pid = '', boot = '', ...stat] = line.trimEnd().split(' ');
  const startTicks = stat[startTicksIndex];
  if (!line.endsWith('\n') || !/^[1-9]\d*$/.test(pid) || startTicks === undefined) return null;
  return { pid: Number(pid), identity: `${boot}:${startTicks}` };
}

/** A holder that has not yet written down who it is. */
function isHeld(runId: string, phase: string): boolean {
  return findMarkedProcesses(runVariable, `${runId}/${phase}`).length > 0;
}

function readdirIfThere(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function phasesIn(folder: string): string[] {
  return readdirIfThere(folder).flatMap((name) => /^phase-(.+)\.pid$/.exec(name)?.[1] ?? []);
}

/**
 * In a folder that is made here: what a package brings can lead nowhere else. The folder is the run's user's own where
 * the gateway is root.
 */
function writeFiles(workDir: string, files: readonly WorkFile[], isRoot: boolean): void {
  rmSync(workDir, { recursive: true, force: true });
  const own = (path: string): void => (isRoot ? chownSync(path, runUser.uid, runUser.gid) : undefined);
  const makeDir = (path: string): void => {
    if (path.length < workDir.length) return;
    const made = mkdirSync(path, { recursive: true, mode: 0o700 });
    if (made === undefined) return;
    for (let folder = path; folder.length >= workDir.length; folder = dirname(folder)) own(folder);
  };
  makeDir(workDir);
  for (const name of ['home', 'tmp']) makeDir(join(workDir, name));
  for (const { path, bytes } of files) {
    const target = join(workDir, path);
    makeDir(dirname(target));
    writeFileSync(target, bytes, { flag: 'wx', mode: 0o600 });
    own(target);
  }
}

async function readFrom(path: string, offset: number): Promise<Buffer> {
  const file = await open(path, 'r').catch(() => null);
  if (file === null) return Buffer.alloc(0);
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(logChunkBytes), 0, logChunkBytes, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/** What a run wrote may be a pipe or a link, and so may its folders: only a plain file at this very place is read. */
async function readBounded(path: string, bytesMax: number): Promise<Buffer | null> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
  if (file === null) return null;
  try {
    const found = await file.stat();
    if (!found.isFile() || (await readlink(`/proc/self/fd/${file.fd}`)) !== path) return null;
    if (found.size > bytesMax) throw new Error(`${basename(path)} has ${found.size} bytes, more than ${bytesMax}`);
    const bytes = Buffer.alloc(found.size);
    const { bytesRead } = await file.read(bytes, 0, found.size, 0);
    return bytes.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

function killAll({ pid, identity }: Holder): void {
  const runs = processIdentity(pid) === identity;
  // Below it first: a child of the holder that loses its parent would not be found any more.
  const below = runs ? descendantsOf(pid) : [];
  for (const { pid: child } of below.toReversed()) signal(child, 'SIGKILL');
  if (runs || processIdentity(pid) === null) signal(-pid, 'SIGKILL');
}

function signal(target: number, name: NodeJS.Signals): void {
  try {
    process.kill(target, name);
  } catch {
    // Ended meanwhile.
  }
}
