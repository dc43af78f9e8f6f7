import { execFile } from 'node:child_process';
import { accessSync, chmodSync, constants, existsSync, mkdirSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { programsPath } from './environment.ts';
import { findGroups } from './cgroup.ts';
import { keeperCommand } from './keeper-command.ts';
import { planNetwork } from './keeper-plan.ts';
import { createLocalRunner, type Egress } from './local-runner.ts';
import { asRunUser, type RunUser, sandboxCommand } from './sandbox.ts';
import type { Runner } from './types.ts';

const run = promisify(execFile);

export interface RunnerSearch {
  /** A program's name or path; null: `tofu`, or `terraform` if `tofu` is missing. */
  readonly terraformBin: string | null;
  /** Folder of provider packages. Null: providers come from registries. */
  readonly mirror: string | null;
  readonly runsDir: string;
  /** True if runs without bubblewrap are allowed. */
  readonly allowUnsandboxed: boolean;
  readonly isRoot: boolean;
  /** User of runs if the gateway is root. */
  readonly user: RunUser;
  readonly egress: Egress;
  /** Nothing runs here if one of these limits is unavailable. */
  readonly required: readonly Hold[];
  readonly memoryBytes: number;
  /** Thousandths of a core. */
  readonly milliCpus: number;
  readonly diskBytes: number;
}

/** Limits of a run on this machine that may be unavailable. */
export type Hold = 'network' | 'memory';

export interface Terraform {
  readonly path: string;
  readonly product: 'OpenTofu' | 'Terraform';
  readonly version: string;
}

/** Limits of runs on this machine. */
export interface Walls {
  readonly kind: 'bwrap' | 'process';
  /** The reason why runs share the machine's network; null: each run has its own. */
  readonly openNetwork: string | null;
  /** The reason why memory is limited only per process, and cores not at all; null: both are limited per run. */
  readonly openMemory: string | null;
  /** All limits in one sentence. */
  readonly sentence: string;
}

/** A runner, or a sentence that says what is missing and how to get it. */
export type FoundRunner =
  | { readonly runner: Runner; readonly terraform: Terraform; readonly problem: null }
  | { readonly runner: null; readonly terraform: Terraform | null; readonly problem: string };

export type AskedRunner =
  | { readonly walls: Walls; readonly terraform: Terraform; readonly problem: null }
  | { readonly walls: null; readonly terraform: Terraform | null; readonly problem: string };

const versionSchema = z.object({ product: z.enum(['OpenTofu', 'Terraform']), version: z.string() });

/** Finds the program without running it. @returns the path, or a sentence if there is no program */
function findTerraformPath(setting: string | null): { readonly path: string } | { readonly problem: string } {
  const names = setting === null ? ['tofu', 'terraform'] : [setting];
  const path = names.map(findProgram).find((found) => found !== null) ?? null;
  if (path !== null) return { path };
  const problem =
    setting === null
      ? 'neither tofu nor terraform is installed: install OpenTofu (https://opentofu.org/docs/intro/install), or set HEADGATE_TERRAFORM_BIN to the path of the program'
      : `HEADGATE_TERRAFORM_BIN is ${setting}, which is not a program on this machine`;
  return { problem };
}

/** Returns the limits that runs would have on this machine. Tests what is needed, and creates no folder. */
export async function askRunner(search: RunnerSearch): Promise<AskedRunner> {
  const terraform = await findTerraform(search.terraformBin);
  if (typeof terraform === 'string') return { walls: null, terraform: null, problem: terraform };
  const { mirror, isRoot, runsDir } = search;
  const noFolder = (mirror === null ? null : mirrorProblem(mirror, isRoot)) ?? folderProblem(runsDir, isRoot);
  if (noFolder !== null) return { walls: null, terraform, problem: noFolder };
  const wall = await sandboxProblem(terraform.path, search);
  const problem = wall === null ? null : noSandbox(wall, search);
  if (problem !== null) return { walls: null, terraform, problem };
  const walls = await askWalls(wall === null ? 'bwrap' : 'process', terraform, search);
  const open: Readonly<Record<Hold, string | null>> = { network: walls.openNetwork, memory: walls.openMemory };
  const lacking = search.required.find((hold) => open[hold] !== null);
  if (lacking === undefined) return { walls, terraform, problem: null };
  const required = `HEADGATE_RUNS_REQUIRE requires limited ${lacking} for runs, which is not available: ${open[lacking] ?? ''}`;
  return { walls: null, terraform, problem: required };
}

/**
 * Creates the runner, and the folder of runs if it is missing.
 * @param known the result of an earlier `askRunner`
 */
export async function findRunner(search: RunnerSearch, known?: AskedRunner): Promise<FoundRunner> {
  const { runsDir, mirror, isRoot, egress, memoryBytes, diskBytes } = search;
  const asked = known ?? (await askRunner(search));
  const { walls, terraform } = asked;
  if (walls === null) return { runner: null, terraform, problem: asked.problem };
  try {
    mkdirSync(runsDir, { recursive: true, mode: isRoot ? 0o711 : 0o700 });
    if (isRoot) chmodSync(runsDir, 0o711);
  } catch (error) {
    return { runner: null, terraform, problem: unusable(error) };
  }
  const found = walls.openMemory === null ? findGroups(search) : null;
  const groups = typeof found === 'string' ? null : found;
  groups?.sweep((runId) => existsSync(join(runsDir, runId)));
  const runner = createLocalRunner({
    kind: walls.kind,
    runsDir,
    mirror,
    terraform: asked.terraform.path,
    user: isRoot ? search.user : null,
    groups,
    memoryBytes,
    diskBytes,
    egress: walls.openNetwork === null ? egress : 'machine',
    notice: noticeOf(walls),
  });
  return { runner, terraform: asked.terraform, problem: null };
}

/** Returns the line in a run's log that names missing limits; null if none is missing. */
function noticeOf({ openNetwork, openMemory }: Walls): string | null {
  const parts = [
    openNetwork === null ? null : `network: machine (${openNetwork})`,
    openMemory === null ? null : `memory: limited for each process only, cores: unlimited (${openMemory})`,
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : parts.join('; ');
}

async function askWalls(kind: Walls['kind'], terraform: Terraform, search: RunnerSearch): Promise<Walls> {
  const { egress, memoryBytes, milliCpus, diskBytes } = search;
  const openNetwork =
    kind === 'process' ? 'runs without bubblewrap use it' : await networkProblem(terraform.path, search);
  const groups = findGroups({ memoryBytes, milliCpus }, 'ask');
  const openMemory = typeof groups === 'string' ? groups : null;
  const mebibytes = (bytes: number): string => `${Math.round(bytes / 1_048_576)} MiB`;
  const memory = mebibytes(memoryBytes);
  const reached = egress === 'internet' ? "the cluster's nodes and public addresses" : "the cluster's nodes";
  const parts = [
    kind === 'bwrap' ? 'bubblewrap' : `no sandbox (${ownRights(search)})`,
    `network: ${openNetwork === null ? reached : `machine (${openNetwork})`}`,
    openMemory === null
      ? `memory: ${memory} of a run, cores: ${milliCpus / 1000}`
      : `memory: ${memory} of each process (${openMemory})`,
    `disk: ${mebibytes(diskBytes)}`,
  ];
  return { kind, openNetwork, openMemory, sentence: parts.join('; ') };
}

/** Describes the rights of a run without bubblewrap. */
const ownRights = ({ isRoot, user: { uid } }: RunnerSearch): string =>
  isRoot
    ? `programs of user ${uid}, which can read everything that this user may read on this machine`
    : "programs of the gateway's own user, which can read the gateway's secrets, its database and everything else that this user may read";

/** @returns null if runs are allowed without bubblewrap */
function noSandbox(wall: string, search: RunnerSearch): string | null {
  if (search.allowUnsandboxed) return null;
  return `runs require bubblewrap (Debian: apt-get install bubblewrap), but ${wall}; HEADGATE_ALLOW_UNSANDBOXED_RUNS=true allows global stacks without it, as ${ownRights(search)}`;
}

const needed = 'OpenTofu or Terraform 1.4 or later is required';

function isTooOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < 1 || (major === 1 && minor < 4);
}

/** @returns a sentence if no program is found, or if it is too old */
async function findTerraform(setting: string | null): Promise<Terraform | string> {
  const found = findTerraformPath(setting);
  if ('problem' in found) return found.problem;
  const { path } = found;
  try {
    const env = { PATH: programsPath, CHECKPOINT_DISABLE: '1', HOME: '/nonexistent' };
    // The JSON output does not say whether the program is OpenTofu or Terraform.
    const { stdout } = await run(path, ['version'], { env, timeout: probeMs });
    const { product, version } = versionSchema.parse(
      /^(?<product>OpenTofu|Terraform) v(?<version>\S+)/.exec(stdout)?.groups,
    );
    if (isTooOld(version)) return `${basename(path)} is ${product} ${version}; ${needed}`;
    return { path, product, version };
  } catch {
    return `the version of ${basename(path)} is unknown; ${needed}`;
  }
}

function findProgram(name: string): string | null {
  const paths = isAbsolute(name) ? [name] : programsPath.split(':').map((folder) => join(folder, name));
  return paths.find(isProgram) ?? null;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** A generous limit: a tool that is only slow on a busy machine must not be reported as missing. */
const probeMs = 120_000;

/** Runs bubblewrap, which may be installed without permission to do anything. @returns the problem, null if it works */
async function sandboxProblem(terraform: string, { isRoot, user }: RunnerSearch): Promise<string | null> {
  const place = { workDir: '/usr', terraform, mirror: null, hosts: null };
  const [program, ...args] = [...(isRoot ? asRunUser(user) : []), ...sandboxCommand(place, '/'), '/bin/true'];
  try {
    await run(program, args, { env: { PATH: programsPath }, timeout: probeMs });
    return null;
  } catch (error) {
    const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    if (missing || !programExists('bwrap')) return `${missing ? program : 'bwrap'} is not installed`;
    return `it could not create its namespaces (${saidBy(error)})`;
  }
}

/** Creates a network of the kind that a phase gets. @returns the problem, null if it works */
async function networkProblem(terraform: string, { isRoot, user, egress }: RunnerSearch): Promise<string | null> {
  if (egress === 'machine') return 'HEADGATE_RUNS_EGRESS=machine';
  const lacking = ['unshare', 'ip'].find((name) => !programExists(name));
  if (lacking !== undefined) return `${lacking} is not installed (Debian: apt-get install util-linux iproute2)`;
  // An address reserved for documentation, which no host has.
  const { network } = planNetwork([{ address: '192.0.2.1', sshPort: 22 }], []);
  const place = { workDir: '/usr', terraform, mirror: null, hosts: '/dev/null' };
  const plan = { say: null, watch: null, user: isRoot ? user : null, network };
  const [program = '', ...args] = keeperCommand(plan, [...sandboxCommand(place, '/'), '/bin/true']);
  try {
    await run(program, args, { timeout: probeMs });
    return null;
  } catch (error) {
    return `a separate network could not be created (${saidBy(error)})`;
  }
}

function saidBy(error: unknown): string {
  const errorLine = error instanceof Error && 'stderr' in error ? String(error.stderr).trim().split('\n')[0] : '';
  return errorLine === undefined || errorLine === '' ? 'no error message' : errorLine;
}

const programExists = (name: string): boolean => findProgram(name) !== null;

const ownUser = 'runs use a separate user because the gateway is root, but';

const unusable = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  return `the folder for runs cannot be created or used (${code}): set HEADGATE_RUNS_DIR to another folder`;
};

/** @returns the problem of the folder of runs, or of the folder in which it would be created */
function folderProblem(runsDir: string, isRoot: boolean): string | null {
  try {
    const there = nearest(runsDir);
    accessSync(there, constants.W_OK | constants.X_OK);
    const folder = isRoot ? firstClosed(there === runsDir ? dirname(runsDir) : there) : null;
    if (folder === null) return null;
    return `${ownUser} other users cannot enter ${folder}: set HEADGATE_RUNS_DIR to another folder`;
  } catch (error) {
    return unusable(error);
  }
}

/** Returns the folder, or its nearest existing parent. @throws ENOTDIR if that is not a folder */
function nearest(folder: string): string {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found === undefined) return nearest(dirname(folder));
  if (!found.isDirectory()) throw Object.assign(new Error(`${folder} is not a folder`), { code: 'ENOTDIR' });
  return folder;
}

/** @returns the problem of the folder of providers */
function mirrorProblem(mirror: string, isRoot: boolean): string | null {
  const named = `HEADGATE_PROVIDER_MIRROR is ${mirror}:`;
  if (!isAbsolute(mirror)) return `${named} it must be an absolute path`;
  const found = statSync(mirror, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) return `${named} this folder does not exist on this machine`;
  const folder = isRoot ? ((found.mode & 0o005) === 0o005 ? firstClosed(dirname(mirror)) : mirror) : null;
  return folder === null ? null : `${named} ${ownUser} other users cannot read ${folder}`;
}

/**
 * Returns the nearest folder, from here up to the root, that only root and its owner's group can enter; null if there
 * is none.
 */
function firstClosed(from: string): string | null {
  for (let folder = from; ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return folder;
    if (folder === '/') return null;
  }
}
