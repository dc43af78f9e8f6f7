import { execFile } from 'node:child_process';
import { accessSync, chmodSync, constants, mkdirSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { programsPath } from './environment.ts';
import { createLocalRunner } from './local-runner.ts';
import { sandboxCommand } from './sandbox.ts';
import type { Runner } from './types.ts';

const run = promisify(execFile);

export interface RunnerSearch {
  /** A program's name or path; null: `tofu`, else `terraform`. */
  readonly terraformBin: string | null;
  /** Null: providers come from registries. */
  readonly mirror: string | null;
  readonly runsDir: string;
  /** Runs without a wall around them are allowed. */
  readonly allowUnsandboxed: boolean;
  readonly isRoot: boolean;
}

export interface Terraform {
  readonly path: string;
  readonly product: 'OpenTofu' | 'Terraform';
  readonly version: string;
}

/** Either runs can be made here, or a sentence says what is missing and how to get it. */
export type FoundRunner =
  | { readonly runner: Runner; readonly terraform: Terraform; readonly problem: null }
  | { readonly runner: null; readonly terraform: Terraform | null; readonly problem: string };

const versionSchema = z.object({ terraform_version: z.string() });

/** The program alone, without asking it anything. @returns its path, or a sentence where there is none */
export function findTerraformPath(setting: string | null): { readonly path: string } | { readonly problem: string } {
  const names = setting === null ? ['tofu', 'terraform'] : [setting];
  const path = names.map(findProgram).find((found) => found !== null) ?? null;
  if (path !== null) return { path };
  const problem =
    setting === null
      ? 'neither tofu nor terraform is installed: https://opentofu.org/docs/intro/install says how, and HEADGATE_TERRAFORM_BIN names a program elsewhere'
      : `HEADGATE_TERRAFORM_BIN names ${setting}, which is no program here`;
  return { problem };
}

export async function findRunner(search: RunnerSearch): Promise<FoundRunner> {
  const terraform = await findTerraform(search.terraformBin);
  if (typeof terraform === 'string') return { runner: null, terraform: null, problem: terraform };
  const { runsDir, mirror, isRoot } = search;
  const noMirror = mirror === null ? null : mirrorProblem(mirror, isRoot);
  if (noMirror !== null) return { runner: null, terraform, problem: noMirror };
  const common = { runsDir, mirror, isRoot, terraform: terraform.path };
  let closed: string | null;
  try {
    mkdirSync(runsDir, { recursive: true, mode: isRoot ? 0o711 : 0o700 });
    closed = isRoot ? closedFolder(runsDir) : null;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    const problem = `the folder of runs cannot be made or used (${code}): HEADGATE_RUNS_DIR names another one`;
    return { runner: null, terraform, problem };
  }
  const wall = closed ?? (await sandboxProblem(terraform.path, isRoot));
  if (wall === null) return { runner: createLocalRunner({ ...common, kind: 'bwrap' }), terraform, problem: null };
  if (!search.allowUnsandboxed) {
    const problem = `runs need bubblewrap (Debian: apt-get install bubblewrap), and ${wall}; HEADGATE_ALLOW_UNSANDBOXED_RUNS=true lets global stacks run without it, as programs that can read what the gateway's machine shows them`;
    return { runner: null, terraform, problem };
  }
  if (closed !== null) return { runner: null, terraform, problem: closed };
  return { runner: createLocalRunner({ ...common, kind: 'process' }), terraform, problem: null };
}

/** @returns a sentence where there is none */
async function findTerraform(setting: string | null): Promise<Terraform | string> {
  const found = findTerraformPath(setting);
  if ('problem' in found) return found.problem;
  const { path } = found;
  try {
    const env = { PATH: programsPath, CHECKPOINT_DISABLE: '1', HOME: '/nonexistent' };
    const { stdout } = await run(path, ['version', '-json'], { env, timeout: 20_000 });
    const { terraform_version: version } = versionSchema.parse(JSON.parse(stdout));
    // Both say `terraform_version`.
    const { stdout: text } = await run(path, ['version'], { env, timeout: 20_000 });
    return { path, product: text.startsWith('OpenTofu') ? 'OpenTofu' : 'Terraform', version };
  } catch {
    return `${basename(path)} does not tell its version; it must be OpenTofu or Terraform 1.4 or later`;
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

/** bubblewrap may be there and not be allowed to do anything: it is tried. @returns what is wrong, null when it works */
async function sandboxProblem(terraform: string, dropsRoot: boolean): Promise<string | null> {
  const place = { workDir: '/usr', terraform, mirror: null, dropsRoot };
  const [program, ...args] = [...sandboxCommand(place, '/'), '/bin/true'];
  try {
    await run(program, args, { env: { PATH: programsPath }, timeout: 20_000 });
    return null;
  } catch (error) {
    const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    if (missing) return `${program} is not installed`;
    const said = error instanceof Error && 'stderr' in error ? String(error.stderr).trim().split('\n')[0] : '';
    return `it could not make its namespaces (${said ?? ''})`;
  }
}

const ownUser = 'runs have a user of their own where the gateway is root, and';

/** @returns what is wrong with the folder of runs */
function closedFolder(runsDir: string): string | null {
  chmodSync(runsDir, 0o711);
  const folder = firstClosed(dirname(runsDir));
  return folder === null
    ? null
    : `${ownUser} ${folder} lets no other user pass: HEADGATE_RUNS_DIR names another folder`;
}

/** @returns what is wrong with the folder of providers */
function mirrorProblem(mirror: string, isRoot: boolean): string | null {
  const named = `HEADGATE_PROVIDER_MIRROR names ${mirror},`;
  if (!isAbsolute(mirror)) return `${named} which must be a path from the root`;
  const found = statSync(mirror, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) return `${named} which is no folder here`;
  const folder = isRoot ? ((found.mode & 0o005) === 0o005 ? firstClosed(dirname(mirror)) : mirror) : null;
  return folder === null ? null : `${named} ${ownUser} ${folder} lets no other user read`;
}

/** The first folder on the way up that another user than root cannot pass. */
function firstClosed(from: string): string | null {
  for (let folder = from; ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return folder;
    if (folder === '/') return null;
  }
}
