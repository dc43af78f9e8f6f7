import { parseDocument } from 'yaml';
import { z } from 'zod';
import { iconRule, isIcon } from '#core/stacks/icon.ts';
import {
  categoryCharsMax,
  descriptionCharsMax,
  stackNamePattern,
  stackNameRule,
  titleCharsMax,
  toCategory,
} from '#core/stacks/names.ts';
import { type InputType, type InputValue, inputTypes, jsonValue } from './input-types.ts';
import { inputsMax, manifestBytesMax, sizeText } from './limits.ts';
import type { PackageProblem } from './problem.ts';
import { isAbove, type PackageFile } from './read-files.ts';

export interface ManifestInput {
  readonly name: string;
  readonly type: InputType | null;
  readonly description: string | null;
  readonly required: boolean | null;
  readonly default: InputValue;
  readonly sensitive: boolean | null;
}

/** Web port that a stack announces; the output of a run takes precedence. */
export interface WebPort {
  /** Null: the module's output `web_port` has the port. */
  readonly port: number | null;
  /** Name of a node of the cluster; null: the first node. */
  readonly node: string | null;
  readonly path: string | null;
}

/** Metadata that an author states about a stack; null for what is not stated. */
export interface Manifest {
  readonly name: string | null;
  readonly title: string | null;
  readonly description: string | null;
  readonly category: string | null;
  readonly icon: string | null;
  readonly inputs: readonly ManifestInput[] | null;
  readonly applicableProfiles: readonly string[] | null;
  readonly web: WebPort | null;
}

export interface ManifestRead {
  readonly manifest: Manifest | null;
  readonly problems: readonly PackageProblem[];
  readonly warnings: readonly string[];
}

const manifestNames = /^(manifest|stack)\.(ya?ml|json)$/i;

const depthOf = (path: string): number => path.split('/').length;

/**
 * Chooses the manifest nearest to the top; among several there, the first by name. Docker and web applications use
 * these file names too, so below the module only `manifest.json` is a manifest.
 */
function chooseManifest(files: readonly PackageFile[], root: string): PackageFile | null {
  const candidates = files.filter(({ path }) => {
    const name = path.split('/').at(-1) ?? '';
    return name === 'manifest.json' || (manifestNames.test(name) && isAbove(path, root));
  });
  const inOrder = candidates.toSorted((a, b) => depthOf(a.path) - depthOf(b.path) || (a.path < b.path ? -1 : 1));
  return inOrder[0] ?? null;
}

const line = (charsMax: number) =>
  z
    .string()
    .trim()
    .min(1, 'must not be empty')
    .max(charsMax, `must have at most ${charsMax} characters`)
    .refine((text) => !/\p{Cc}/u.test(text) && text.isWellFormed(), 'must be one line without control characters');

const paragraph = (charsMax: number) =>
  z
    .string()
    .trim()
    .max(charsMax, `must have at most ${charsMax} characters`)
    .refine((text) => !text.includes('\0') && text.isWellFormed(), 'must not have NUL characters');

/** Variable names that Terraform accepts, except letters beyond ASCII. */
const variableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_-]{0,99}$/, 'must be a name of a Terraform variable');

/** Accepts a field that is absent or null. */
const maybe = <T extends z.ZodType>(schema: T) =>
  z.preprocess((value) => (value === null ? undefined : value), schema.optional());

const port = z.int().min(1).max(65_535);
/** A node's name, which is not a host name: only the cluster decides which address a name has. */
const nodeName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, 'must be the name of a node');
const webPath = z.string().regex(/^\/[\x21-\x7e]{0,255}$/, 'must be a path that begins with "/"');

const typeNames: Readonly<Record<string, InputType>> = {
  text: 'string',
  integer: 'number',
  int: 'number',
  float: 'number',
  boolean: 'bool',
  array: 'list',
  object: 'map',
};

const input = z.looseObject({
  name: variableName,
  type: maybe(
    z.preprocess((value) => (typeof value === 'string' ? (typeNames[value] ?? value) : value), z.enum(inputTypes)),
  ),
  description: maybe(paragraph(descriptionCharsMax)),
  required: maybe(z.boolean()),
  default: jsonValue.optional(),
  sensitive: maybe(z.boolean()),
});

/** Accepts a list of inputs with names, or an object of inputs by name. */
const inputs = z.preprocess(
  (value) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.entries(value).map(([name, rest]: [string, unknown]) =>
          typeof rest === 'object' && !Array.isArray(rest) ? { ...rest, name } : rest,
        )
      : value,
  z.array(input).max(inputsMax, `must have at most ${inputsMax}`),
);

const manifestFields = {
  name: maybe(z.string().regex(stackNamePattern, stackNameRule)),
  title: maybe(line(titleCharsMax)),
  description: maybe(paragraph(descriptionCharsMax)),
  category: maybe(line(categoryCharsMax)),
  icon: maybe(z.string().refine(isIcon, iconRule)),
  inputs: maybe(inputs),
  applicable_profiles: maybe(z.array(line(100)).max(100)),
  web: maybe(z.strictObject({ port: maybe(port), node: maybe(nodeName), path: maybe(webPath) })),
  web_port: maybe(port),
};
const manifestSchema = z.looseObject(manifestFields);
const inputFields = new Set(Object.keys(input.shape));

/**
 * Reads the manifest of a package. An empty manifest states nothing, and so does a field without a value.
 * @param files of the whole package
 * @param root folder in which Terraform runs
 */
export function readManifest(files: readonly PackageFile[], root: string): ManifestRead {
  const file = chooseManifest(files, root);
  if (file === null) return { manifest: null, problems: [], warnings: [] };
  const wrong = (message: string): ManifestRead => ({
    manifest: null,
    problems: [{ field: file.path, message }],
    warnings: [],
  });
  if (file.bytes.length > manifestBytesMax) return wrong(`is larger than ${sizeText(manifestBytesMax)}`);
  let content: unknown;
  try {
    content = parseText(file);
  } catch (error) {
    const [first = ''] = (error instanceof Error ? error.message : '').split('\n', 1);
    return wrong(`cannot be parsed: ${error instanceof RangeError ? 'it is nested too deeply' : first}`);
  }
  const parsed = manifestSchema.safeParse(content ?? {});
  if (!parsed.success) {
    const problems = parsed.error.issues.flatMap(toProblem);
    return { manifest: null, problems: problems.map((one) => inFile(one, file.path)), warnings: [] };
  }
  return { manifest: toManifest(parsed.data), problems: [], warnings: unknownFields(file.path, parsed.data) };
}

function parseText({ path, bytes }: PackageFile): unknown {
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  if (path.toLowerCase().endsWith('.json')) return JSON.parse(text);
  const document = parseDocument(text, { logLevel: 'silent' });
  const [error] = document.errors;
  if (error !== undefined) throw error;
  return document.toJS({ maxAliasCount: 20 });
}

const inFile = ({ field, message }: PackageProblem, path: string): PackageProblem => ({
  field,
  message: `${message} (in ${path})`,
});

function toProblem(issue: z.core.$ZodIssue): PackageProblem[] {
  const path = issue.path.map(String).join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ field: `${path}.${key}`, message: 'is not a known field' }));
  }
  return [{ field: path === '' ? 'manifest' : path, message: sentence(issue) }];
}

function sentence(issue: z.core.$ZodIssue): string {
  if (issue.code === 'invalid_type') {
    if (issue.message.endsWith('received undefined')) return 'is missing';
    return `must be ${/^[aeio]/.test(issue.expected) ? 'an' : 'a'} ${issue.expected === 'int' ? 'whole number' : issue.expected}`;
  }
  if (issue.code === 'invalid_value') return `must be one of ${issue.values.map(String).join(', ')}`;
  if (issue.code === 'invalid_union') return 'must be a JSON value';
  if (issue.code === 'too_small') return `must be at least ${issue.minimum}`;
  if (issue.code === 'too_big' && issue.message.startsWith('Too big')) return `must be at most ${issue.maximum}`;
  return issue.message;
}

type ManifestContent = z.output<typeof manifestSchema>;

/**
 * Returns warnings about unknown fields: a field may be a misspelling, or belong to another tool, so it is no error.
 */
function unknownFields(path: string, content: ManifestContent): string[] {
  const unknown = [
    ...Object.keys(content).filter((key) => !(key in manifestFields)),
    ...(content.inputs ?? []).flatMap((one) =>
      Object.keys(one)
        .filter((key) => !inputFields.has(key))
        .map((key) => `inputs.${one.name}.${key}`),
    ),
  ];
  return unknown.slice(0, 20).map((key) => `${path}: ignored the unknown field ${key.slice(0, 100)}`);
}

function toManifest(content: ManifestContent): Manifest {
  const { name = null, title = null, description = null, category, icon = null } = content;
  return {
    name,
    title,
    description,
    category: category === undefined ? null : toCategory(category),
    icon,
    inputs: content.inputs?.map(toManifestInput) ?? null,
    applicableProfiles: content.applicable_profiles ?? null,
    web: toWebPort(content),
  };
}

function toWebPort({ web, web_port: short }: ManifestContent): WebPort | null {
  if (web === undefined && short === undefined) return null;
  return { port: web?.port ?? short ?? null, node: web?.node ?? null, path: web?.path ?? null };
}

function toManifestInput(one: z.output<typeof input>): ManifestInput {
  return {
    name: one.name,
    type: one.type ?? null,
    description: one.description ?? null,
    required: one.required ?? null,
    default: one.default ?? null,
    sensitive: one.sensitive ?? null,
  };
}
