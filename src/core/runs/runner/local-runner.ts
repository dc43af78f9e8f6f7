import { createHash, randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { isUuid } from '#base/id.ts';
import type { Groups } from './cgroup.ts';
import { proxyEnvironment, terraformEnvironment } from './environment.ts';
import { type HeldPhase, interruptHeld, killHeld, observeHolder, startHolder } from './holder.ts';
import { keeperCommand } from './keeper-command.ts';
import { planNetwork, type ReachedNode } from './keeper-plan.ts';
import { resourceLimits, type RunUser, sandboxCommand, sandboxPaths } from './sandbox.ts';
import type { Phase, PhaseState, Runner, WorkPaths } from './types.ts';
import { emptyFolder, removeFolder, removeUnfollowed } from './no-follow-files.ts';
import { readBounded, readFrom, readTimes, writeFiles } from './work-folder.ts';

export interface LocalRunnerOptions {
  readonly kind: 'bwrap' | 'process';
  /** Contains one folder per run; on the gateway's machine. */
  readonly runsDir: string;
  /** Path of the program. */
  readonly terraform: string;
  /** Folder of provider packages; null: providers come from registries. */
  readonly mirror: string | null;
  /** User of runs if the gateway is root; null if it is not. */
  readonly user: RunUser | null;
  /** Control groups. Null: memory is limited only per process of a run, and cores not at all. */
  readonly groups: Groups | null;
  readonly memoryBytes: number;
  /** Maximum size of a work folder on disk. */
  readonly diskBytes: number;
  readonly egress: Egress;
  /** Missing limits, for the log of a run; null: none is missing. */
  readonly notice: string | null;
}

/** Addresses that a run may reach: nodes only, public addresses too, or everything that its machine reaches. */
export type Egress = 'cluster' | 'internet' | 'machine';

/** Ports for `init` without a mirror: it downloads providers and modules, and runs nothing of the module. */
const fetchingPorts = [443, 80];

/** Maximum output of one phase: far more than its log stores, for programs with much output. */
const phaseLogBytesMax = 64 * 1_048_576;

interface Folders {
  readonly folderOf: (runId: string) => string;
  readonly workOf: (runId: string) => string;
  readonly hostsOf: (runId: string) => string;
  readonly held: (runId: string, phase: string) => HeldPhase;
  readonly paths: (runId: string) => WorkPaths;
}

function foldersOf({ kind, runsDir, mirror }: LocalRunnerOptions): Folders {
  const folderOf = (runId: string): string => join(runsDir, runId);
  const workOf = (runId: string): string => join(folderOf(runId), 'work');
  const sandboxed = { root: sandboxPaths.work, mirror: mirror === null ? null : sandboxPaths.mirror };
  return {
    folderOf,
    workOf,
    hostsOf: (runId) => join(folderOf(runId), 'hosts'),
    held: (runId, phase) => ({ mark: `${runId}/${phase}`, files: join(folderOf(runId), `phase-${phase}`) }),
    paths: (runId) => (kind === 'bwrap' ? sandboxed : { root: workOf(runId), mirror }),
  };
}

/** Returns the command of a phase, wrapped in the keeper's command. */
function phaseCommand(
  options: LocalRunnerOptions,
  { folderOf, workOf, hostsOf, held, paths }: Folders,
  { runId, cwd, phase: { name, args } }: { readonly runId: string; readonly cwd: string; readonly phase: Phase },
): string[] {
  const { kind, terraform, mirror, user, egress } = options;
  // Null: the phase has the machine's network.
  const reach = egress === 'machine' ? null : readReach(folderOf(runId));
  const ports = name.startsWith('init') && mirror === null ? fetchingPorts : [];
  const planned = reach === null ? null : planNetwork(reach, egress === 'internet' ? 'all' : ports);
  const { root } = paths(runId);
  const workingDir = cwd === '' ? root : `${root}/${cwd}`;
  const environment = terraformEnvironment({ root, tmpDir: `${root}/tmp` });
  const proxied = planned === null ? [] : proxyEnvironment(planned.network.proxy.port);
  const clean = ['env', '-i', ...environment, ...proxied];
  const limits = resourceLimits(options.groups === null ? options.memoryBytes : null);
  const place = { workDir: workOf(runId), terraform, mirror, hosts: planned === null ? null : hostsOf(runId) };
  const walled = [...sandboxCommand(place, workingDir), `${sandboxPaths.terraformDir}/${basename(terraform)}`];
  const program = kind === 'bwrap' ? walled : [terraform, `-chdir=${workingDir}`];
  const watch = {
    files: held(runId, name).files,
    workDir: workOf(runId),
    diskBytesMax: options.diskBytes,
    printedBytes: printedIn(folderOf(runId)),
    logBytesMax: Math.min(phaseLogBytesMax, Math.floor(options.diskBytes / 4)),
  };
  const say = name === 'init-1' ? options.notice : null;
  return keeperCommand({ say, watch, user, network: planned?.network ?? null }, [
    ...clean,
    ...limits,
    ...program,
    ...args,
  ]);
}

/** Creates the runner for the gateway's own machine: in bubblewrap, or as plain processes. */
export function createLocalRunner(options: LocalRunnerOptions): Runner {
  const { kind, runsDir, terraform, user, groups } = options;
  const folders = foldersOf(options);
  const { folderOf, workOf, hostsOf, held, paths } = folders;

  function observe(runId: string, phase: string): PhaseState {
    const state = observeHolder(held(runId, phase));
    if (state.kind !== 'ended' || state.exitCode === 0 || state.because !== undefined) return state;
    if (groups?.ranOut(runId) !== true) return state;
    const mebibytes = Math.round(options.memoryBytes / 1_048_576);
    const because = `it used more than ${mebibytes} MiB of memory, the limit for a run (HEADGATE_RUNS_MEMORY_MIB)`;
    return { ...state, because };
  }

  return {
    kind,
    place: placeOf(runsDir),
    paths,
    prepare(runId, files, reach) {
      // A gateway that paused while another one adopted the run must not delete the run's folder.
      if (phasesIn(folderOf(runId)).length > 0)
        return Promise.reject(new Error('a phase of the run has already started'));
      mkdirSync(folderOf(runId), { recursive: true, mode: user === null ? 0o700 : 0o711 });
      writeFileSync(reachFile(folderOf(runId)), JSON.stringify(reach), { mode: 0o600 });
      writeFileSync(hostsOf(runId), planNetwork(reach, []).hosts, { mode: 0o644 });
      writeFiles(workOf(runId), files, user);
      return Promise.resolve();
    },
    start(runId, cwd, phase) {
      const command = phaseCommand(options, folders, { runId, cwd, phase });
      return startHolder(held(runId, phase.name), {
        cwd: folderOf(runId),
        groups: groups?.enter(runId) ?? [],
        command,
      });
    },
    observe: (runId, phase) => Promise.resolve(observe(runId, phase)),
    readLog: (runId, phase, offset) => readFrom(`${held(runId, phase).files}.log`, offset),
    readTimes: (runId, phase) => readTimes(`${held(runId, phase).files}.times`),
    interrupt: (runId, phase) => Promise.resolve(interruptHeld(held(runId, phase), terraform)),
    kill: (runId, phase) => Promise.resolve(killHeld(held(runId, phase))),
    readFile: (runId, path, bytesMax) => readBounded(workOf(runId), path, bytesMax),
    locate: (runId, path) => join(workOf(runId), path),
    removeFile: (runId, path) => removeUnfollowed(workOf(runId), path),
    keepOnly: (runId, paths) => emptyFolder(workOf(runId), paths),
    async remove(runId) {
      for (const name of phasesIn(folderOf(runId))) killHeld(held(runId, name));
      await removeFolder(folderOf(runId));
      await groups?.remove(runId);
    },
    list() {
      return Promise.resolve(runFoldersIn(runsDir));
    },
  };
}

const reachFile = (folder: string): string => join(folder, 'reach.json');

/** Returns null for a run that was prepared while networks were not limited. */
function readReach(folder: string): readonly ReachedNode[] | null {
  try {
    return JSON.parse(readFileSync(reachFile(folder), 'utf8')) as readonly ReachedNode[];
  } catch {
    return null;
  }
}

/** Skips folders that are not runs: a separate file system has a folder lost+found. */
const runFoldersIn = (runsDir: string): string[] => readdirIfThere(runsDir).filter(isUuid);

/** True if any run has a folder here. Requires no Terraform. */
export const hasRunFolders = (runsDir: string): boolean => runFoldersIn(runsDir).length > 0;

/**
 * Returns the name of this place, which is stored in the folder of runs. Gateways with the same folder on the same
 * machine find each other's runs. A folder that several machines share has one place per machine, because a machine
 * sees only its own processes.
 */
function placeOf(runsDir: string): string {
  const path = join(runsDir, `.place${machineSuffix()}`);
  const draft = `${path}.${randomUUID()}`;
  try {
    // Written completely or not at all: simultaneous starts and a full disk leave no empty file.
    writeFileSync(draft, `local ${randomUUID()}`, { flag: 'wx', mode: 0o600 });
    linkSync(draft, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return readFileSync(path, 'utf8');
}

/** Returns an empty text if the system has no machine-id(5), as in most containers. */
function machineSuffix(): string {
  try {
    const id = readFileSync('/etc/machine-id', 'utf8').trim();
    // machine-id(5) forbids publishing the id itself.
    return id === '' ? '' : `-${createHash('sha256').update(`headgate runs ${id}`).digest('hex').slice(0, 16)}`;
  } catch {
    return '';
  }
}

function readdirIfThere(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

/** Returns the bytes that the phases of a run have printed. */
function printedIn(folder: string): number {
  const logs = readdirIfThere(folder).filter((name) => /^phase-.+\.log$/.test(name));
  return logs.reduce((bytes, name) => bytes + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0), 0);
}

function phasesIn(folder: string): string[] {
  return readdirIfThere(folder).flatMap((name) => /^phase-(.+)\.pid$/.exec(name)?.[1] ?? []);
}
