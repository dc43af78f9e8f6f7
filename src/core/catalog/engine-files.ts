import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { MICRO_DIGITS, parseDecimal } from '#base/money.ts';
import { commandProblems, engineKindOf, environmentReferences } from './command.ts';
import type { EngineDefinition, EnginePricing } from './engine-definition.ts';
import { type EngineFile, engineFileSchema } from './engine-file-schema.ts';
import { readYaml, type YamlSource } from './yaml-source.ts';
import { issueProblems } from './zod-problems.ts';

/** Something that is wrong with a file of the engines folder. */
export interface EngineFileProblem {
  /** `engines/name.yaml`. */
  readonly file: string;
  /** From 1; null when it is about the whole file or the folder. */
  readonly line: number | null;
  /** `pricing.input_per_million`; null when it is about no single field. */
  readonly field: string | null;
  readonly message: string;
}

export type EngineFilesResult =
  | { readonly ok: true; readonly engines: readonly EngineDefinition[] }
  | { readonly ok: false; readonly problems: readonly EngineFileProblem[] };

export interface EngineFilesOptions {
  /** The gateway's environment, to check that what files refer to is there; absent when validating elsewhere. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

interface FileProblem {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

interface ReadFile {
  readonly definition: EngineDefinition;
  readonly source: YamlSource;
}

const fileBytesMax = 1_048_576;
const enginesMax = 10_000;
const decimalPaths = [
  ['pricing', 'input_per_million'],
  ['pricing', 'cached_input_per_million'],
  ['pricing', 'output_per_million'],
  ['pricing', 'flex_multiplier'],
];

/** `engines/foo.yaml:12: pricing.input_per_million: what is wrong` */
export function formatEngineFileProblem({ file, line, field, message }: EngineFileProblem): string {
  return `${file}${line === null ? '' : `:${line}`}: ${field === null ? '' : `${field}: `}${message}`;
}

/**
 * Reads every `*.yaml` directly in a folder, in the order of their names. Collects the problems of all files before it
 * gives up, so that an operator mends them in one round.
 */
export function loadEngineFiles(folder: string, options: EngineFilesOptions = {}): EngineFilesResult {
  const folderName = basename(resolve(folder));
  let names: string[];
  try {
    names = readdirSync(folder).toSorted();
  } catch (error) {
    return { ok: false, problems: [wholeFile(folder, `this folder cannot be read (${errorCode(error)})`)] };
  }
  const problems: EngineFileProblem[] = [];
  const read: ReadFile[] = [];
  for (const name of names) {
    const file = `${folderName}/${name}`;
    if (/\.yml$/i.test(name)) problems.push(wholeFile(file, 'not read: engine files end in .yaml'));
    if (!name.endsWith('.yaml') || name.startsWith('.')) continue;
    const result = readEngineFile(join(folder, name), file, options);
    problems.push(...result.problems);
    if (result.read !== null) read.push(result.read);
  }
  if (read.length > enginesMax) problems.push(wholeFile(folderName, `more than ${enginesMax} files`));
  problems.push(...nameCollisions(read));
  if (problems.length > 0) return { ok: false, problems };
  return { ok: true, engines: read.map(({ definition }) => definition) };
}

function readEngineFile(
  path: string,
  file: string,
  options: EngineFilesOptions,
): { read: ReadFile | null; problems: EngineFileProblem[] } {
  let text: string;
  try {
    const stat = statSync(path);
    if (!stat.isFile()) return { read: null, problems: [] };
    if (stat.size > fileBytesMax) return refused(wholeFile(file, `larger than ${fileBytesMax} bytes`));
    text = readFileSync(path, 'utf8');
  } catch (error) {
    return refused(wholeFile(file, `cannot be read (${errorCode(error)})`));
  }
  const yaml = readYaml(text, decimalPaths);
  if (!yaml.ok) {
    return refused(...yaml.problems.map(({ line, message }) => ({ file, line, field: null, message })));
  }
  const located = ({ path: field, message }: FileProblem): EngineFileProblem => ({
    file,
    line: yaml.source.lineOf(field),
    field: field.length === 0 ? null : fieldText(field),
    message,
  });
  const parsed = engineFileSchema.safeParse(yaml.source.value);
  if (!parsed.success) return refused(...issueProblems(parsed.error.issues, yaml.source.value).map(located));
  const found = [...commandProblems(parsed.data), ...environmentProblems(parsed.data, options)];
  if (found.length > 0) return refused(...found.map(located));
  return { read: { definition: toDefinition(file, parsed.data), source: yaml.source }, problems: [] };
}

function refused(...problems: EngineFileProblem[]): { read: null; problems: EngineFileProblem[] } {
  return { read: null, problems };
}

function wholeFile(file: string, message: string): EngineFileProblem {
  return { file, line: null, field: null, message };
}

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
}

function fieldText(path: readonly PropertyKey[]): string {
  return path
    .map((part, index) => (typeof part === 'number' ? `[${part}]` : (index > 0 ? '.' : '') + String(part)))
    .join('');
}

function environmentProblems(engine: EngineFile, { env }: EngineFilesOptions): FileProblem[] {
  // A disabled engine is never started: its secrets may be somewhere else.
  if (env === undefined || !engine.enabled) return [];
  return environmentReferences(engine)
    .filter(({ name }) => (env[name] ?? '') === '')
    .map(({ path, name }) => ({ path, message: `the environment variable ${name} is not set` }));
}

function toDefinition(file: string, engine: EngineFile): EngineDefinition {
  return {
    file,
    id: engine.id,
    name: engine.name,
    huggingFaceId: engine.hugging_face_id,
    taskType: engine.task_type,
    contextLength: engine.context_length,
    enabled: engine.enabled,
    ownedBy: engine.owned_by ?? ownerOf(engine.hugging_face_id),
    pricing: engine.pricing === undefined ? null : toPricing(engine.pricing),
    flexPricing: engine.pricing === undefined ? null : toFlexPricing(engine.pricing),
    concurrencyMax: engine.max_concurrent ?? null,
    kind: engineKindOf(engine),
    allow: engine.allow,
    mediaDomains: engine.media_domains.map((domain) => domain.toLowerCase()),
    nMax: engine.max_n ?? null,
    driver: toDriver(engine),
  };
}

function toDriver(engine: EngineFile): EngineDefinition['driver'] {
  if (engine.driver === 'external') {
    return {
      type: 'external',
      url: engine.url.replace(/\/+$/, ''),
      upstreamModel: engine.upstream_model ?? null,
      apiKeyEnv: engine.api_key_env ?? null,
    };
  }
  return {
    type: 'process',
    command: engine.command,
    env: engine.env,
    idleMs: engine.idle_seconds * 1000,
    startTimeoutMs: engine.start_timeout_seconds * 1000,
    drainMs: engine.drain_seconds * 1000,
    replicas: engine.replicas,
  };
}

function toPricing(pricing: NonNullable<EngineFile['pricing']>): EnginePricing {
  return {
    inputPerMTokMicroUsd: microUsd(pricing.input_per_million),
    cachedInputPerMTokMicroUsd: microUsd(pricing.cached_input_per_million),
    outputPerMTokMicroUsd: microUsd(pricing.output_per_million),
  };
}

/** Micro-dollars per million tokens stay whole, so that every cost is exact: the share is rounded up, once, here. */
function toFlexPricing(pricing: NonNullable<EngineFile['pricing']>): EnginePricing | null {
  if (pricing.flex_multiplier === undefined) return null;
  const millionths = microUsd(pricing.flex_multiplier);
  const share = (price: bigint): bigint => (price * millionths + 999_999n) / 1_000_000n;
  const full = toPricing(pricing);
  return {
    inputPerMTokMicroUsd: share(full.inputPerMTokMicroUsd),
    cachedInputPerMTokMicroUsd: share(full.cachedInputPerMTokMicroUsd),
    outputPerMTokMicroUsd: share(full.outputPerMTokMicroUsd),
  };
}

/** A decimal of at most 6 places, in millionths. */
function microUsd(text: string): bigint {
  const value = parseDecimal(text, MICRO_DIGITS);
  if (value === null) throw new Error('A price passed the schema and is no decimal.');
  return value;
}

function ownerOf(huggingFaceId: string): string {
  const slash = huggingFaceId.indexOf('/');
  return slash > 0 ? huggingFaceId.slice(0, slash) : 'headgate';
}

/** Ids, names and repositories are one name space for requests, whatever their case. */
function nameCollisions(read: readonly ReadFile[]): EngineFileProblem[] {
  const owners = new Map<string, EngineDefinition>();
  const problems: EngineFileProblem[] = [];
  for (const { definition, source } of read) {
    const fields = [
      ['id', definition.id],
      ['name', definition.name],
      ['hugging_face_id', definition.huggingFaceId],
    ] as const;
    for (const [field, value] of fields) {
      const owner = owners.get(value.toLowerCase());
      if (owner === undefined) owners.set(value.toLowerCase(), definition);
      if (owner === undefined || owner === definition) continue;
      const message = `${JSON.stringify(value)} is already the id, name or repository of ${owner.file}`;
      problems.push({ file: definition.file, line: source.lineOf([field]), field, message });
    }
  }
  return problems;
}
