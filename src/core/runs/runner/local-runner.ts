import { createHash, randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isUuid } from '#base/id.ts';
import { terraformEnvironment } from './environment.ts';
import { type HeldPhase, interruptHeld, killHeld, observeHolder, startHolder } from './holder.ts';
import { asRunUser, resourceLimits, sandboxCommand, sandboxPaths } from './sandbox.ts';
import type { Runner } from './types.ts';
import { readBounded, readFrom, writeFiles } from './work-folder.ts';

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

/** Runs on the gateway's own machine: in bubblewrap, or without any wall around them. */
export function createLocalRunner(options: LocalRunnerOptions): Runner {
  const { kind, runsDir, terraform, isRoot } = options;
  const folderOf = (runId: string): string => join(runsDir, runId);
  const workOf = (runId: string): string => join(folderOf(runId), 'work');
  const held = (runId: string, phase: string): HeldPhase => ({
    mark: `${runId}/${phase}`,
    files: join(folderOf(runId), `phase-${phase}`),
  });
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

  return {
    kind,
    place: placeOf(runsDir),
    paths,
    prepare(runId, files) {
      // Whoever slept while another gateway took the run over must not take its folder away.
      if (phasesIn(folderOf(runId)).length > 0) return Promise.reject(new Error('a phase of the run has begun'));
      mkdirSync(folderOf(runId), { recursive: true, mode: isRoot ? 0o711 : 0o700 });
      writeFiles(workOf(runId), files, isRoot);
      return Promise.resolve();
    },
    start(runId, cwd, { name, args }) {
      const user = kind === 'process' && isRoot ? asRunUser : [];
      return startHolder(held(runId, name), folderOf(runId), [...user, ...commandOf(runId, cwd, args)]);
    },
    observe: (runId, phase) => Promise.resolve(observeHolder(held(runId, phase))),
    readLog: (runId, phase, offset) => readFrom(`${held(runId, phase).files}.log`, offset),
    interrupt: (runId, phase) => Promise.resolve(interruptHeld(held(runId, phase), terraform)),
    kill: (runId, phase) => Promise.resolve(killHeld(held(runId, phase))),
    readFile: (runId, path, bytesMax) => readBounded(join(workOf(runId), path), bytesMax),
    removeFile: (runId, path) => rm(join(workOf(runId), path), { force: true }),
    async remove(runId) {
      for (const name of phasesIn(folderOf(runId))) killHeld(held(runId, name));
      await rm(folderOf(runId), { recursive: true, force: true });
    },
    list() {
      return Promise.resolve(runFoldersIn(runsDir));
    },
  };
}

/** A file system of its own has a folder lost+found. */
const runFoldersIn = (runsDir: string): string[] => readdirIfThere(runsDir).filter(isUuid);

/** Whether any run has a folder here, which nobody needs a program of Terraform to see. */
export const hasRunFolders = (runsDir: string): boolean => runFoldersIn(runsDir).length > 0;

/**
 * Gateways of one folder and one machine find each other's runs there. A folder that several machines share is a place
 * of each of them: what runs on one is seen by no other.
 */
function placeOf(runsDir: string): string {
  const path = join(runsDir, `.place${machineSuffix()}`);
  const draft = `${path}.${randomUUID()}`;
  try {
    // Whole or not at all: gateways that start at once, and a full disk, leave none that is empty.
    writeFileSync(draft, `local ${randomUUID()}`, { flag: 'wx', mode: 0o600 });
    linkSync(draft, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return readFileSync(path, 'utf8');
}

/** Empty where the system has no machine-id(5), as in most containers. */
function machineSuffix(): string {
  try {
    const id = readFileSync('/etc/machine-id', 'utf8').trim();
    // The id itself is not to be shown about: machine-id(5).
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

function phasesIn(folder: string): string[] {
  return readdirIfThere(folder).flatMap((name) => /^phase-(.+)\.pid$/.exec(name)?.[1] ?? []);
}
