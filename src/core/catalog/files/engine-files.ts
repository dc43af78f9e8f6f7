import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { commandProblems, environmentReferences } from './process-command-checks.ts';
import { adviceFor } from './compose-fields.ts';
import { containerProblems } from './container-checks.ts';
import { dockerHostsFileName, loadDockerHosts } from './docker-hosts-file.ts';
import type { EngineDefinition } from './engine-definition.ts';
import type { EngineFileProblem } from './engine-file-problem.ts';
import { externalProblems } from './external-checks.ts';
import { fallbackProblems, withFallbackIds } from './fallback-checks.ts';
import { type EngineFile, engineFileSchema } from './engine-file-schema.ts';
import { machineProblems } from './host-access-checks.ts';
import { loraProblems } from './lora-checks.ts';
import { groupProblems, resourceProblems } from './process-resource-checks.ts';
import { scheduleProblems } from './schedule-fields.ts';
import { secretProblems } from './secrets.ts';
import { toDefinition } from './to-definition.ts';
import { eachItem, keepDecimals, readYaml, type YamlSource } from './yaml-source.ts';
import { type FileProblem, issueProblems, located } from './zod-problems.ts';

/** Matches `${NAME:-image}`: the gateway's variable of that name if set, otherwise the image after `:-`. */
const reference = /^\$\{([A-Za-z_][A-Za-z0-9_]*):-([^${}]+)\}$/;

/**
 * Returns a parsed engine file with the reference in `image` replaced. A reference always has a default, so that the
 * file names an image wherever it is checked.
 */
function imageReferenceFilled(value: unknown, env: Readonly<Record<string, string | undefined>>): unknown {
  if (typeof value !== 'object' || value === null || !('image' in value) || typeof value.image !== 'string') {
    return value;
  }
  const [, name = '', fallback = ''] = reference.exec(value.image) ?? [];
  if (name === '') return value;
  const given = env[name] ?? '';
  return { ...value, image: given === '' ? fallback : given };
}

export type EngineFilesResult =
  | {
      readonly ok: true;
      readonly engines: readonly EngineDefinition[];
      readonly files: readonly ReadFile[];
      /** Problems of texts that are no files: their engines are left out. */
      readonly leftOut: readonly EngineFileProblem[];
    }
  | { readonly ok: false; readonly problems: readonly EngineFileProblem[] };

export interface EngineFilesOptions {
  /** Environment of the gateway, to check that referenced variables are set; absent for validation elsewhere. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** An engine that no file describes, in the format of engine files. */
export interface EngineText {
  /** Name for messages, which no file has. */
  readonly file: string;
  readonly text: string;
  /** Variables that only this text refers to. */
  readonly env: Readonly<Record<string, string>>;
  /** The reason why there is no text; null if there is one. */
  readonly problem: string | null;
}

/** A file without problems. */
export interface ReadFile {
  readonly definition: EngineDefinition;
  readonly source: YamlSource;
}

export const engineFileBytesMax = 1_048_576;
const enginesMax = 10_000;
/** Files of the folder that do not describe an engine. */
const otherFiles = new Set([dockerHostsFileName]);
const prices = ['input_per_million', 'cached_input_per_million', 'output_per_million', 'flex_multiplier'];
const decimalPaths = [['pricing'], ['lora', eachItem, 'pricing']].flatMap((at) => prices.map((name) => [...at, name]));

/**
 * Reads every `*.yaml` directly in a folder except hosts.yaml, ordered by name. Collects the problems of all files, so
 * that an operator can fix them in one round.
 */
export function loadEngineFiles(folder: string, options: EngineFilesOptions = {}): EngineFilesResult {
  const folderName = basename(resolve(folder));
  let names: string[];
  try {
    names = readdirSync(folder).toSorted();
  } catch (error) {
    return { ok: false, problems: [wholeFile(folder, `this folder cannot be read (${errorCode(error)})`)] };
  }
  const found: FoundFile[] = [];
  const problems: EngineFileProblem[] = [];
  for (const name of names) {
    const file = `${folderName}/${name}`;
    if (/\.yml$/i.test(name)) problems.push(wholeFile(file, 'ignored: engine files must end in .yaml'));
    if (!isEngineFile(name)) continue;
    found.push({ path: join(folder, name), file });
  }
  if (found.length > enginesMax) problems.push(wholeFile(folderName, `more than ${enginesMax} files`));
  return readAll(found, { options, earlier: problems, hosts: hostNames(folder), isWhole: true });
}

/** Adds engines to those of valid files, except engines that have a problem by themselves or beside the others. */
export function addEngineTexts(files: readonly ReadFile[], texts: readonly EngineText[]): EngineFilesResult {
  const leftOut: EngineFileProblem[] = [];
  for (let added = texts; ;) {
    const result = readAll([...files, ...added], { options: {}, earlier: [], hosts: null, isWhole: true });
    if (result.ok) return { ...result, files, leftOut };
    const isBad = new Set(result.problems.map(({ file }) => file));
    const bad = added.filter(({ file }) => isBad.has(file));
    if (bad.length === 0) return result;
    // A text is one line.
    for (const { file } of bad)
      leftOut.push(...result.problems.filter((one) => one.file === file).map((one) => ({ ...one, line: null })));
    added = added.filter((text) => !bad.includes(text));
  }
}

/**
 * Returns the problems that a text has as the file of this name, beside the other files of the folder.
 */
export function checkEngineFile(
  folder: string,
  { name, text }: { readonly name: string; readonly text: string },
  options: EngineFilesOptions = {},
): readonly EngineFileProblem[] {
  const folderName = basename(resolve(folder));
  const file = `${folderName}/${name}`;
  const others = readdirSync(folder).filter((one) => isEngineFile(one) && one !== name);
  const found = others.toSorted().map((one) => ({ path: join(folder, one), file: `${folderName}/${one}` }));
  // A collision is reported for the later file.
  const all: FoundFile[] = [...found, { path: join(folder, name), file, text }];
  const result = readAll(all, { options, earlier: [], hosts: hostNames(folder), isWhole: true });
  return result.ok ? [] : result.problems.filter((problem) => problem.file === file);
}

/** Returns the hosts and pools that files may name; null if hosts.yaml itself has problems. */
function hostNames(folder: string): ReadonlySet<string> | null {
  // Any Docker address will do here: without hosts.yaml the only host is always named `local`.
  const result = loadDockerHosts(folder, { defaultDocker: 'unix:///var/run/docker.sock' });
  return result.ok ? new Set(result.hosts.flatMap(({ name, pools }) => [name, ...pools])) : null;
}

/** Reads the named files as if they were the only ones of a folder; hosts and fallbacks may be defined elsewhere. */
export function loadEngineFileList(paths: readonly string[], options: EngineFilesOptions = {}): EngineFilesResult {
  const files = paths.map((path) => ({ path, file: path }));
  return readAll(files, { options, earlier: [], hosts: null, isWhole: false });
}

function isEngineFile(name: string): boolean {
  return name.endsWith('.yaml') && !name.startsWith('.') && !otherFiles.has(name);
}

interface FoundFile {
  readonly path: string;
  /** Text that takes the place of the file's. */
  readonly text?: string;
  /** File name for messages. */
  readonly file: string;
}

interface ReadAllOptions {
  readonly options: EngineFilesOptions;
  readonly earlier: readonly EngineFileProblem[];
  readonly hosts: ReadonlySet<string> | null;
  /** True if there are no engines except those of these files. */
  readonly isWhole: boolean;
}

function readAll(
  files: readonly (FoundFile | EngineText | ReadFile)[],
  { options, earlier, hosts, isWhole }: ReadAllOptions,
): EngineFilesResult {
  const problems = [...earlier];
  const read: ReadFile[] = [];
  for (const one of files) {
    const result = readOne(one, options);
    problems.push(...result.problems);
    if (result.read !== null) read.push(result.read);
  }
  problems.push(...nameCollisions(read), ...groupCollisions(read));
  // Fallbacks are checked only if all files are valid: the model that a fallback names may be in a rejected file.
  if (problems.length === 0) problems.push(...unfitFallbacks(read, isWhole));
  if (hosts !== null) problems.push(...unknownHosts(read, hosts));
  if (problems.length > 0) return { ok: false, problems };
  return { ok: true, engines: withFallbackIds(read.map(({ definition }) => definition)), files: read, leftOut: [] };
}

function readOne(one: FoundFile | EngineText | ReadFile, options: EngineFilesOptions): ReadResult {
  if ('definition' in one) return { read: one, problems: [] };
  return 'path' in one ? readFound(one, options) : readOther(one);
}

function readFound({ path, file, text }: FoundFile, options: EngineFilesOptions): ReadResult {
  if (text === undefined) return readEngineFile(path, file, options);
  return readEngineText(text, file, { ...options, folder: dirname(resolve(path)) });
}

function readOther({ file, text, env, problem }: EngineText): ReadResult {
  if (problem !== null) return refused(wholeFile(file, problem));
  return readEngineText(text, file, { env, folder: null });
}

function readEngineFile(path: string, file: string, options: EngineFilesOptions): ReadResult {
  let text: string;
  try {
    const stat = statSync(path);
    if (!stat.isFile()) return { read: null, problems: [] };
    if (stat.size > engineFileBytesMax) return refused(wholeFile(file, `larger than ${engineFileBytesMax} bytes`));
    text = readFileSync(path, 'utf8');
  } catch (error) {
    return refused(wholeFile(file, `cannot be read (${errorCode(error)})`));
  }
  return readEngineText(text, file, { ...options, folder: dirname(resolve(path)) });
}

/** Returns the problems of a text that is to become the file of this name. */
export function checkEngineText(text: string, file: string): readonly EngineFileProblem[] {
  return readEngineText(text, file, { folder: null }).problems;
}

interface TextOptions extends EngineFilesOptions {
  /** Folder of the file; null for a text without a file. */
  readonly folder: string | null;
}

interface ReadResult {
  readonly read: ReadFile | null;
  readonly problems: readonly EngineFileProblem[];
}

function readEngineText(text: string, file: string, options: TextOptions): ReadResult {
  const yaml = readYaml(text, { prepare: keepDecimals(decimalPaths) });
  if (!yaml.ok) {
    return refused(...yaml.problems.map(({ line, message }) => ({ file, line, field: null, message })));
  }
  const { source } = yaml;
  const { folder } = options;
  const toProblem = (problem: FileProblem): EngineFileProblem => located(file, source, problem);
  const value = imageReferenceFilled(source.value, options.env ?? {});
  const parsed = engineFileSchema.safeParse(value);
  if (!parsed.success) return refused(...issueProblems(parsed.error.issues, value, adviceFor(value)).map(toProblem));
  const found = [
    ...commandProblems(parsed.data),
    ...containerProblems(parsed.data),
    ...externalProblems(parsed.data),
    ...resourceProblems(parsed.data),
    ...scheduleProblems(parsed.data),
    ...machineProblems(parsed.data),
    ...loraProblems(parsed.data),
    ...secretProblems(parsed.data),
    ...environmentProblems(parsed.data, options),
  ];
  if (found.length > 0) return refused(...found.map(toProblem));
  return { read: { definition: toDefinition(file, parsed.data, folder), source }, problems: [] };
}

function refused(...problems: EngineFileProblem[]): ReadResult {
  return { read: null, problems };
}

function wholeFile(file: string, message: string): EngineFileProblem {
  return { file, line: null, field: null, message };
}

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
}

function environmentProblems(engine: EngineFile, { env }: EngineFilesOptions): FileProblem[] {
  // A disabled engine is never started: its secrets may be somewhere else.
  if (env === undefined || !engine.enabled) return [];
  return environmentReferences(engine)
    .filter(({ name }) => (env[name] ?? '') === '')
    .map(({ path, name }) => ({ path, message: `the environment variable ${name} is not set` }));
}

/**
 * Reports names used twice. Ids, names, aliases and repositories share one case-insensitive name space; only
 * repositories may be shared.
 */
function nameCollisions(read: readonly ReadFile[]): EngineFileProblem[] {
  const owners = new Map<string, { readonly file: string; readonly model: Named; readonly field: NameOf['field'] }>();
  const names = read.flatMap(({ definition, source }) =>
    modelsOf(definition).flatMap(({ model, at, repositoryAt }) =>
      namesOf(model, repositoryAt).map(({ path, ...name }) => {
        return { ...name, model, file: definition.file, source, path: [...at, ...path] };
      }),
    ),
  );
  return names.flatMap(({ field, path, value, model, file, source }) => {
    const owner = owners.get(value.toLowerCase());
    if (owner === undefined) owners.set(value.toLowerCase(), { file, model, field });
    if (owner === undefined || owner.model === model) return [];
    // A repository that several models share resolves to none of them: catalog.ts.
    if (field === 'hugging_face_id' && owner.field === field && owner.file !== file) return [];
    const taken = `${JSON.stringify(value)} is already the id, name, alias or repository of ${owner.file}`;
    return [located(file, source, { path, message: `${taken}: ${fixFor(field)}` })];
  });
}

type Named = Pick<EngineDefinition, 'id' | 'name' | 'aliases' | 'huggingFaceId'>;

interface NamedAt {
  readonly model: Named;
  /** Path of the model's fields in the file. */
  readonly at: readonly (string | number)[];
  /** Field that names the model's repository. */
  readonly repositoryAt: string;
}

/** Returns the engine's own model and its adapters. */
function modelsOf(engine: EngineDefinition): NamedAt[] {
  const adapters = engine.lora.map((model, index) => ({ model, at: ['lora', index], repositoryAt: 'path' }));
  return [{ model: engine, at: [], repositoryAt: 'hugging_face_id' }, ...adapters];
}

interface NameOf {
  readonly field: 'id' | 'name' | 'aliases' | 'hugging_face_id';
  readonly path: readonly (string | number)[];
  readonly value: string;
}

function namesOf({ id, name, aliases, huggingFaceId }: Named, repositoryAt: string): NameOf[] {
  return [
    { field: 'id', path: ['id'], value: id },
    { field: 'name', path: ['name'], value: name },
    ...aliases.map((value, index) => ({ field: 'aliases' as const, path: ['aliases', index], value })),
    { field: 'hugging_face_id', path: [repositoryAt], value: huggingFaceId ?? id },
  ];
}

function fixFor(field: NameOf['field']): string {
  if (field === 'aliases') return 'remove it from one of the two files';
  if (field !== 'hugging_face_id') return `choose a different ${field} for one of them`;
  return 'requests use it as a model name, so remove it from one of the two files';
}

function groupCollisions(read: readonly ReadFile[]): EngineFileProblem[] {
  const sources = new Map(read.map(({ definition, source }) => [definition, source]));
  return groupProblems(read.map(({ definition }) => definition)).map(({ engine, field, message }) => {
    const line = sources.get(engine)?.lineOf(field.split('.')) ?? null;
    return { file: engine.file, line, field, message };
  });
}

function unfitFallbacks(read: readonly ReadFile[], isWhole: boolean): EngineFileProblem[] {
  const sources = new Map(read.map(({ definition, source }) => [definition, source]));
  const found = fallbackProblems([...sources.keys()], isWhole);
  return found.flatMap(({ engine, ...problem }) => {
    const source = sources.get(engine);
    return source === undefined ? [] : [located(engine.file, source, problem)];
  });
}

function unknownHosts(read: readonly ReadFile[], known: ReadonlySet<string>): EngineFileProblem[] {
  return read.flatMap(({ definition: { file, driver }, source }) =>
    (driver.type === 'docker' ? driver.hosts : []).flatMap((name, index) => {
      if (known.has(name)) return [];
      const message = `hosts.yaml has no host or pool ${JSON.stringify(name)}; use one of ${[...known].join(', ')}`;
      return [{ file, line: source.lineOf(['hosts', index]), field: `hosts[${index}]`, message }];
    }),
  );
}
