import { createHash } from 'node:crypto';
import { ConcurrencyLimit } from '#base/queues/queues.ts';
import { descriptionCharsMax, slugOf, titleCharsMax } from '#core/stacks/names.ts';
import { findInputs, type StackInput } from './inputs.ts';
import { type Manifest, readManifest, type WebPort } from './manifest.ts';
import { checkPaths, findRoot, readModule, type RootModule } from './module.ts';
import { type PackageProblem, refuseProblems } from './problem.ts';
import type { StackProvider } from './providers.ts';
import { isAbove, type PackageFile, readFiles } from './read-files.ts';
import { type TerraformProgram, findViolatedConstraint } from './terraform.ts';

/**
 * Reads an uploaded zip with a Terraform module: its contents, and every problem in it. Nothing is written to disk, and
 * only one of several simultaneous packages is in memory.
 */

export { fits, type InputValue } from './input-types.ts';
export type { StackInput } from './inputs.ts';
export { packageBytesMax, sizeText } from './limits.ts';
export type { WebPort } from './manifest.ts';
export { type PackageProblem, PackageRefusedError } from './problem.ts';
export type { PackageFile } from './read-files.ts';
export type { TerraformProgram } from './terraform.ts';

/** Metadata that a package states about itself; null for what is not stated. */
export interface StatedMetadata {
  readonly name: string | null;
  readonly title: string | null;
  readonly description: string | null;
  readonly category: string | null;
  readonly icon: string | null;
}

/** Metadata of one version of a stack. */
export interface VersionMetadata {
  /** Folder of the zip in which Terraform runs; "" is the top. */
  readonly root: string;
  readonly files: number;
  readonly inputs: readonly StackInput[];
  /** All variables that the module declares, including those that a run sets itself. */
  readonly variables: readonly string[];
  /** Variables whose values are in no plan. Absent in versions uploaded before this field existed. */
  readonly ephemeral?: readonly string[];
  /** Hardware profiles that the stack supports; null: all. */
  readonly applicableProfiles: readonly string[] | null;
  readonly web: WebPort | null;
  readonly requiredVersions: readonly string[];
  /** Absent in versions uploaded before this field existed. */
  readonly providers?: readonly StackProvider[];
  /** Warnings about parts that were left out or may not be as intended. */
  readonly warnings: readonly string[];
}

export interface ReadPackage {
  readonly sha256: string;
  readonly stated: StatedMetadata;
  /** Values from folder names and the README, used for what is not stated. */
  readonly derived: { readonly name: string | null; readonly title: string | null; readonly description: string };
  readonly metadata: VersionMetadata;
}

const readLimit = new ConcurrencyLimit({ atOncePerNameMax: 1, waitingPerNameMax: 32, waitMsMax: 60_000 });

/**
 * Reads a package, and checks that it can be applied here.
 * @param fileName of the zip, as the sender names it; null if unknown
 * @param terraform program that will apply the package; null if unknown
 * @throws PackageRefusedError with every problem; TooManyWaitError
 */
export function readPackage(
  zip: Buffer,
  fileName: string | null,
  terraform: TerraformProgram | null,
): Promise<ReadPackage> {
  return readLimit.during('packages', () => read(zip, fileName, terraform));
}

async function read(zip: Buffer, fileName: string | null, terraform: TerraformProgram | null): Promise<ReadPackage> {
  const product = terraform?.product ?? null;
  const { files, paths, problems, dropped } = await readFiles(zip);
  const ofPaths = checkPaths(paths, product);
  if (problems.length > 0) refuseProblems([...problems, ...ofPaths]);
  const root = findRoot(paths, product);
  const { manifest, ...ofManifest } = readManifest(files, root ?? '');
  if (root === null) refuseProblems([...ofManifest.problems, ...ofPaths]);
  const module = await readModule(files, root ?? '', product);
  const inputs = findInputs(manifest, module.variables);
  refuseProblems([
    ...ofPaths,
    ...ofManifest.problems,
    ...module.problems,
    ...inputs.problems,
    ...versionProblems(module, terraform),
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
      ephemeral: module.variables.filter(({ isEphemeral }) => isEphemeral).map(({ name }) => name),
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
/** Matches JSON escapes of NUL and of half surrogate pairs, which PostgreSQL cannot store. */
const unstorable = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89ab])/;

function textProblems({ metadata }: ReadPackage): PackageProblem[] {
  const text = JSON.stringify(metadata);
  if (text.length > metadataCharsMax)
    return [
      {
        field: 'inputs',
        message: `are too long: inputs, variables, providers and warnings of the package may have ${metadataCharsMax} characters together`,
      },
    ];
  return unstorable.test(text)
    ? [{ field: 'inputs', message: 'contain a NUL character or half of a surrogate pair' }]
    : [];
}

function versionProblems({ requiredVersions }: RootModule, terraform: TerraformProgram | null): PackageProblem[] {
  const constraint = terraform === null ? null : findViolatedConstraint(requiredVersions, terraform);
  if (terraform === null || constraint === null) return [];
  const message = `is "${constraint}", but this installation uses ${terraform.product} ${terraform.version}`;
  return [{ field: 'required_version', message }];
}

const droppedShownMax = 5;

function droppedWarning(dropped: readonly string[]): string[] {
  if (dropped.length === 0) return [];
  const shown = dropped.slice(0, droppedShownMax).map((path) => path.slice(0, 100));
  const rest = dropped.length > shown.length ? ` and ${dropped.length - shown.length} more` : '';
  return [`skipped (state, plans and downloads are not stored): ${shown.join(', ')}${rest}`];
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

/**
 * Returns the first paragraph of the README nearest to the module, skipping headings, badges, lists, tables, code and
 * HTML.
 */
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

/** Returns the files of a zip that was read before; Terraform runs in the `root` of its metadata. */
export async function unpack(zip: Buffer): Promise<readonly PackageFile[]> {
  const { files, problems } = await readLimit.during('packages', () => readFiles(zip));
  refuseProblems(problems);
  return files;
}
