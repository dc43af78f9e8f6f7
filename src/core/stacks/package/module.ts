import { posix } from 'node:path';
import { z } from 'zod';
import { descriptionCharsMax, reservedInputs } from '#core/stacks/names.ts';
import { type InputValue, jsonValue } from './input-types.ts';
import { hclBytesMax, hclFileBytesMax, sizeText } from './limits.ts';
import { parseHcl } from './parse-hcl.ts';
import type { PackageProblem } from './problem.ts';
import { findProviders, joinProviders, type StackProvider } from './providers.ts';
import type { PackageFile } from './read-files.ts';
import { readsFile, type TerraformProgram, withoutReplaced } from './terraform.ts';

/** A variable of the root module. */
export interface ModuleVariable {
  readonly name: string;
  readonly typeExpression: string | null;
  readonly description: string;
  readonly hasDefault: boolean;
  readonly default: InputValue;
  /** True if declared as sensitive or ephemeral: neither may be shown. */
  readonly isSensitive: boolean;
  /** True if the value is in no plan, so that each command needs it: Terraform 1.10, OpenTofu 1.11. */
  readonly isEphemeral: boolean;
}

/** Declarations in the files of the root folder. */
export interface RootModule {
  /** Folder of the package in which Terraform runs; "" is the top. */
  readonly folder: string;
  readonly variables: readonly ModuleVariable[];
  /** Version constraints such as `>= 1.4`, all of which must be met. */
  readonly requiredVersions: readonly string[];
  readonly providers: readonly StackProvider[];
  readonly hasWebPortOutput: boolean;
  readonly problems: readonly PackageProblem[];
}

type Product = TerraformProgram['product'] | null;
/** Override files change other files of the module, including the platform's own, and the last one by name wins. */
const overrideFile = /(^|_)override\.(tf|tofu)(\.json)?$/;
/** Folder for files that the platform adds to a run. */
const platformFolder = '.platform';

const folderOf = (path: string): string => {
  const folder = posix.dirname(path);
  return folder === '.' ? '' : folder;
};
const depthOf = (folder: string): number => (folder === '' ? 0 : folder.split('/').length);

/**
 * Finds the shallowest folder with a file that Terraform reads; among several, the first by name. Null if there is
 * none.
 */
export function findRoot(paths: readonly string[], product: Product): string | null {
  const folders = paths.filter((path) => readsFile(product, path)).map(folderOf);
  return folders.toSorted((a, b) => depthOf(a) - depthOf(b) || (a < b ? -1 : 1))[0] ?? null;
}

/** Checks the names of a package's files, whatever their contents. */
export function checkPaths(paths: readonly string[], product: Product): PackageProblem[] {
  const root = findRoot(paths, product);
  if (root === null) {
    const isForTofu = findRoot(paths, 'OpenTofu') !== null;
    const message = isForTofu
      ? 'has only .tofu files, which require OpenTofu, but this installation uses Terraform'
      : 'has no .tf file: a stack is a Terraform module';
    return [{ field: 'file', message }];
  }
  const platform = `${root === '' ? '' : `${root}/`}${platformFolder}/`.toLowerCase();
  return paths.flatMap((path): PackageProblem[] => {
    if (folderOf(path) === root && overrideFile.test(path)) {
      return [{ field: path, message: "is an override file, which could change the platform's settings: rename it" }];
    }
    const isOurs = path.toLowerCase().startsWith(platform);
    return isOurs ? [{ field: path, message: 'is in .platform, which is reserved for the platform' }] : [];
  });
}

/**
 * Reads the root module of a package.
 * @throws PackageRefusedError if its files take too long to parse
 */
export async function readModule(files: readonly PackageFile[], folder: string, product: Product): Promise<RootModule> {
  const read = new Set(withoutReplaced(files.map(({ path }) => path).filter((path) => readsFile(product, path))));
  const inRoot = files.filter(({ path }) => folderOf(path) === folder && read.has(path));
  const problems = fileProblems(inRoot);
  const found = new Found();
  if (problems.length === 0) {
    const sources = inRoot.map(({ path, bytes }) => ({ path, text: bytes.toString('utf8') }));
    for (const { path, content, problem } of await parseHcl(sources)) {
      if (problem === null) found.take(path, content);
      else found.problems.push({ field: path, message: problem });
    }
  }
  const all = [...problems, ...found.problems];
  const below = all.length === 0 ? await readCalled(files, folder, found.contents, read) : [];
  const providers = joinProviders([found.contents, ...below].map(findProviders));
  return { ...found.toModule(), folder, providers, problems: all };
}

/** Most modules of the package that are followed from the root module, over all levels. */
const calledMax = 50;

/**
 * Returns the contents of the modules in the package that the root calls by paths, directly or indirectly. Files that
 * cannot be read are left out, for Terraform to reject: only the providers matter here.
 */
async function readCalled(
  files: readonly PackageFile[],
  root: string,
  contents: readonly unknown[],
  read: ReadonlySet<string>,
): Promise<readonly (readonly unknown[])[]> {
  const seen = new Set([root]);
  const found: (readonly unknown[])[] = [];
  let bytesLeft = hclBytesMax;
  for (let calls = callsOf(contents, root); calls.length > 0 && seen.size <= calledMax;) {
    const folders = [...new Set(calls)].filter((called) => !seen.has(called)).slice(0, calledMax);
    for (const called of folders) seen.add(called);
    const sources = files.filter(({ path, bytes }) => {
      const isRead = folders.includes(folderOf(path)) && read.has(path) && bytes.length <= hclFileBytesMax;
      if (isRead) bytesLeft -= bytes.length;
      return isRead && bytesLeft >= 0;
    });
    if (sources.length === 0) break;
    const parsed = await parseHcl(sources.map(({ path, bytes }) => ({ path, text: bytes.toString('utf8') })));
    const byFolder = Map.groupBy(
      parsed.filter(({ problem }) => problem === null),
      ({ path }) => folderOf(path),
    );
    calls = [...byFolder].flatMap(([called, ofFolder]) =>
      callsOf(
        ofFolder.map(({ content }) => content),
        called,
      ),
    );
    found.push(...[...byFolder.values()].map((ofFolder) => ofFolder.map(({ content }) => content)));
  }
  return found;
}

const moduleCalls = z.looseObject({ module: z.record(z.string(), z.unknown()).optional() }).catch({});
const moduleCall = z.looseObject({ source: z.string().optional() }).catch({});

/** Returns the folders of the package that modules called in `folder` have as their sources. */
function callsOf(contents: readonly unknown[], folder: string): string[] {
  return contents
    .flatMap((content) => Object.values(moduleCalls.parse(content).module ?? {}).flat())
    .flatMap((body) => {
      const { source = '' } = moduleCall.parse(body);
      if (!/^\.{1,2}\//.test(source)) return [];
      const path = posix.join(folder === '' ? '.' : folder, source).replace(/\/$/, '');
      return path.startsWith('..') ? [] : [path === '.' ? '' : path];
    });
}

function fileProblems(inRoot: readonly PackageFile[]): PackageProblem[] {
  const problems: PackageProblem[] = [];
  for (const { path, bytes } of inRoot) {
    const wrong = (message: string): void => void problems.push({ field: path, message });
    if (bytes.length > hclFileBytesMax) wrong(`is larger than ${sizeText(hclFileBytesMax)}`);
    if (!Buffer.from(bytes.toString('utf8')).equals(bytes)) wrong('is not UTF-8');
  }
  if (inRoot.reduce((sum, { bytes }) => sum + bytes.length, 0) > hclBytesMax) {
    problems.push({
      field: 'file',
      message: `has more than ${sizeText(hclBytesMax)} of Terraform files in its root folder`,
    });
  }
  return problems;
}

const bool = z.union([z.boolean(), z.literal('true').transform(() => true), z.literal('false').transform(() => false)]);
const variable = z.looseObject({
  type: z.string().optional(),
  description: z.string().optional(),
  default: jsonValue.optional(),
  sensitive: bool.optional(),
  ephemeral: bool.optional(),
});
/** Accepts a block's body or list of bodies: HCL's JSON has a list, Terraform's own JSON may have the body itself. */
const blocks = <T extends z.ZodType>(body: T) =>
  z.preprocess((value): unknown[] => (Array.isArray(value) ? value : [value]), z.array(body));
const settings = z.looseObject({ required_version: z.string().max(200).optional() });
const fileContent = z.looseObject({
  variable: z.record(z.string(), blocks(variable)).optional(),
  output: z.record(z.string(), z.unknown()).optional(),
  terraform: blocks(settings).optional(),
});

const variableName = /^[\p{ID_Start}_][\p{ID_Continue}-]*$/u;
const nameCharsMax = 100;

/** Combined declarations of several files. */
class Found {
  readonly problems: PackageProblem[] = [];
  readonly #variables = new Map<string, ModuleVariable>();
  readonly #requiredVersions: string[] = [];
  readonly contents: unknown[] = [];
  #hasWebPortOutput = false;

  take(path: string, content: unknown): void {
    this.contents.push(content);
    const parsed = fileContent.safeParse(content);
    if (!parsed.success) {
      const where = new Set(parsed.error.issues.map((issue) => issue.path.map(String).join('.')));
      for (const place of where) this.#wrong(path, `is not valid Terraform: ${place}`);
      return;
    }
    const { variable: variables = {}, output = {}, terraform = [] } = parsed.data;
    for (const [name, bodies] of Object.entries(variables)) {
      for (const body of bodies) this.#add(path, name, body);
    }
    if (Object.hasOwn(output, 'web_port')) this.#hasWebPortOutput = true;
    for (const { required_version: version } of terraform)
      if (version !== undefined) this.#requiredVersions.push(version);
  }

  toModule(): Pick<RootModule, 'variables' | 'requiredVersions' | 'hasWebPortOutput'> {
    return {
      variables: [...this.#variables.values()],
      requiredVersions: this.#requiredVersions,
      hasWebPortOutput: this.#hasWebPortOutput,
    };
  }

  #add(path: string, name: string, body: z.output<typeof variable>): void {
    if (!variableName.test(name) || name.length > nameCharsMax) {
      this.#wrong(path, `has a variable with an invalid or reserved name: ${name}`);
      return;
    }
    if (this.#variables.has(name)) this.#wrong(path, `declares the variable ${name} a second time`);
    // For a variable that the platform sets, the default is only a placeholder that no run uses.
    const isReserved = reservedInputs.has(name);
    this.#variables.set(name, {
      name,
      typeExpression: body.type === undefined ? null : expressionOf(body.type),
      description: (body.description ?? '').trim().replaceAll('\0', '').slice(0, descriptionCharsMax).toWellFormed(),
      hasDefault: isReserved || body.default !== undefined,
      default: shownDefault(path, body.default ?? null),
      isSensitive: body.sensitive === true || body.ephemeral === true,
      isEphemeral: body.ephemeral === true,
    });
  }

  #wrong(path: string, message: string): void {
    this.problems.push({ field: path, message });
  }
}

/**
 * Resolves HCL's escapes, which the parser keeps: `$${HOME}` stands for `${HOME}`, `%%{` for `%{`. Expressions stay
 * unchanged.
 */
function shownDefault(path: string, value: InputValue): InputValue {
  return path.endsWith('.json') ? value : unescaped(value);
}

function unescaped(value: InputValue): InputValue {
  if (typeof value === 'string') return unescapedText(value);
  if (Array.isArray(value)) return value.map((one: InputValue) => unescaped(one));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [unescapedText(key), unescaped(one)]));
}

function unescapedText(value: string): string {
  const isExpression = /(?<![$])(?:[$]{2})*[$]\{|(?<!%)(?:%%)*%\{/.test(value);
  return isExpression ? value : value.replaceAll(/([$%])\1\{/g, '$1{');
}

const expressionCharsMax = 1000;

/** Removes the parser's wrapping of expressions: `${list(string)}`. */
function expressionOf(text: string): string {
  const bare = /^\$\{([\s\S]*)\}$/.exec(text)?.[1] ?? text;
  return bare.replaceAll('\0', '').slice(0, expressionCharsMax).trim().toWellFormed();
}
