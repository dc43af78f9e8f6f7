import { createHash } from 'node:crypto';
import { Turns } from '#base/turns.ts';
import { descriptionCharsMax, slugOf, titleCharsMax } from '#core/stacks/names.ts';
import { findInputs, type StackInput } from './inputs.ts';
import { type Manifest, readManifest, type WebPort } from './manifest.ts';
import { checkPaths, findRoot, readModule, type RootModule } from './module.ts';
import { type PackageProblem, refuseProblems } from './problem.ts';
import type { StackProvider } from './providers.ts';
import { type PackageFile, readFiles } from './read-files.ts';

/**
 * Reads a zip with a Terraform module that somebody sends: what is in it, and everything that is wrong with it. Nothing
 * is written to disk, and of packages that come at once one is in memory.
 */

export { fits, inputTypes, type InputValue } from './input-types.ts';
export type { StackInput } from './inputs.ts';
export { packageBytesMax, sizeText } from './limits.ts';
export type { WebPort } from './manifest.ts';
export { type PackageProblem, PackageRefusedError } from './problem.ts';
export type { PackageFile } from './read-files.ts';

/** What a package says of itself; null where that is nothing. */
export interface StatedMetadata {
  readonly name: string | null;
  readonly title: string | null;
  readonly description: string | null;
  readonly category: string | null;
  readonly icon: string | null;
}

/** What every version of a stack has of its own. */
export interface VersionMetadata {
  /** Folder of the zip in which Terraform runs; "" is the top. */
  readonly root: string;
  readonly files: number;
  readonly inputs: readonly StackInput[];
  /** All variables that the module declares, those that a run fills in by itself too. */
  readonly variables: readonly string[];
  /** Hardware profiles that the stack is for; null is all of them. */
  readonly applicableProfiles: readonly string[] | null;
  readonly web: WebPort | null;
  readonly requiredVersions: readonly string[];
  /** Absent in versions of before it was looked for. */
  readonly providers?: readonly StackProvider[];
  /** What was left out or is not as it may have been meant. */
  readonly warnings: readonly string[];
}

export interface ReadPackage {
  readonly sha256: string;
  readonly stated: StatedMetadata;
  /** What its folders and its README say, where nothing is stated. */
  readonly derived: { readonly name: string | null; readonly title: string | null; readonly description: string };
  readonly metadata: VersionMetadata;
}

/** @returns what keeps a module of these constraints from being run here; null where nothing does, or nobody knows */
export type CheckTerraform = (requiredVersions: readonly string[]) => string | null;

const turns = new Turns({ atOnceMax: 1, waitingMax: 32, waitMsMax: 60_000 });

/**
 * @param fileName of the zip, as its sender calls it; null where that is not known
 * @throws PackageRefusedError with every problem; TooManyWaitError
 */
export function readPackage(
  zip: Buffer,
  fileName: string | null,
  checkTerraform: CheckTerraform,
): Promise<ReadPackage> {
  return turns.during('packages', () => read(zip, fileName, checkTerraform));
}

async function read(zip: Buffer, fileName: string | null, checkTerraform: CheckTerraform): Promise<ReadPackage> {
  const { files, paths, problems, dropped } = await readFiles(zip);
  const ofPaths = checkPaths(paths);
  if (problems.length > 0) refuseProblems([...problems, ...ofPaths]);
  const { manifest, ...ofManifest } = readManifest(files);
  const root = findRoot(paths);
  if (root === null) refuseProblems([...ofManifest.problems, ...ofPaths]);
  const module = await readModule(files, root ?? '');
  const inputs = findInputs(manifest, module.variables);
  refuseProblems([
    ...ofPaths,
    ...ofManifest.problems,
    ...module.problems,
    ...inputs.problems,
    ...versionProblems(module, checkTerraform),
  ]);
  const warnings = [...ofManifest.warnings, ...inputs.warnings, ...droppedWarning(dropped)];
  const found: ReadPackage = {
    sha256: createHash('sha256').update(zip).digest('hex'),
    stated: stateOf(manifest),
    derived: derive(files, module.folder, fileName),
    metadata: {
      root: module.folder,
      files: files.length,
      inputs: inputs.inputs,
      variables: module.variables.map(({ name }) => name),
      applicableProfiles: manifest?.applicableProfiles ?? null,
      web: manifest?.web ?? webOf(module),
      requiredVersions: module.requiredVersions,
      providers: module.providers,
      warnings,
    },
  };
  refuseProblems(textProblems(found));
  return found;
}

function stateOf(manifest: Manifest | null): StatedMetadata {
  if (manifest === null) return { name: null, title: null, description: null, category: null, icon: null };
  const { name, title, description, category, icon } = manifest;
  return { name, title, description, category, icon };
}

function derive(files: readonly PackageFile[], folder: string, fileName: string | null): ReadPackage['derived'] {
  const folderName = folder.split('/').at(-1) ?? '';
  return {
    name: slugOf(folderName) ?? slugOf((fileName ?? '').replace(/\.zip$/i, '')),
    title: titleOf(folderName),
    description: describe(files, folder),
  };
}

const webOf = ({ hasWebPortOutput }: RootModule): WebPort | null =>
  hasWebPortOutput ? { port: null, node: null, path: null } : null;

const metadataCharsMax = 256 * 1024;
/** JSON escapes NUL and halves of surrogate pairs, which PostgreSQL has no text for. */
const unstorable = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89ab])/;

function textProblems({ metadata }: ReadPackage): PackageProblem[] {
  const text = JSON.stringify(metadata);
  if (text.length > metadataCharsMax) return [{ field: 'inputs', message: 'take more text than a stack may have' }];
  return unstorable.test(text) ? [{ field: 'inputs', message: 'have text with NUL or half characters' }] : [];
}

function versionProblems({ requiredVersions }: RootModule, check: CheckTerraform): PackageProblem[] {
  const message = requiredVersions.length === 0 ? null : check(requiredVersions);
  return message === null ? [] : [{ field: 'required_version', message }];
}

const droppedShownMax = 5;

function droppedWarning(dropped: readonly string[]): string[] {
  if (dropped.length === 0) return [];
  const shown = dropped.slice(0, droppedShownMax).map((path) => path.slice(0, 100));
  const rest = dropped.length > shown.length ? ` and ${dropped.length - shown.length} more` : '';
  return [`left out, as state, plans and downloads are: ${shown.join(', ')}${rest}`];
}

function titleOf(folderName: string): string | null {
  const title = folderName
    .replaceAll(/\p{Cc}/gu, '')
    .trim()
    .slice(0, titleCharsMax)
    .toWellFormed();
  return title === '' ? null : title;
}

const readmeNames = /^readme(\.(md|txt|markdown))?$/i;
const readmeBytesMax = 64 * 1024;

/** The first paragraph of the README that lies nearest to the module: no heading, badge, list, table, code or HTML. */
function describe(files: readonly PackageFile[], root: string): string {
  const nearest = files
    .filter(({ path }) => readmeNames.test(path.split('/').at(-1) ?? '') && isAbove(path, root))
    .toSorted((a, b) => b.path.length - a.path.length)[0];
  if (nearest === undefined) return '';
  const text = nearest.bytes.subarray(0, readmeBytesMax).toString('utf8').replaceAll('\r\n', '\n').replaceAll('\0', '');
  const paragraphs = text.split(/\n[ \t]*\n/).map((part) => part.replace(/^(#[^\n]*\n)+/, '').trim());
  const first = paragraphs.find((part) => part !== '' && !/^([#<|`>=*-]|!\[|\[!|\d+\.)/.test(part)) ?? '';
  return first.replaceAll(/\s+/g, ' ').slice(0, descriptionCharsMax).trim().toWellFormed();
}

/** Whether a file lies in a folder or above it. */
function isAbove(path: string, folder: string): boolean {
  const own = path.split('/').slice(0, -1).join('/');
  return own === '' || own === folder || folder.startsWith(`${own}/`);
}

/** The files of a zip that was read before; Terraform runs in the root that its metadata name. */
export async function unpack(zip: Buffer): Promise<readonly PackageFile[]> {
  const { files, problems } = await turns.during('packages', () => readFiles(zip));
  refuseProblems(problems);
  return files;
}
