/** Makes JSON values that satisfy a JSON Schema, as far as schemas of tools and answers usually go. */

type Schema = Record<string, unknown>;

const TYPES = new Set(['string', 'number', 'integer', 'boolean', 'null', 'array', 'object']);
const DEPTH_MAX = 12;

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function typesOf(schema: Schema): string[] {
  return (Array.isArray(schema.type) ? schema.type : [schema.type]).filter((type) => typeof type === 'string');
}

/** The first thing in a schema that no grammar can be made of, in the words of vLLM's structured output; or null. */
export function schemaFault(schema: unknown, depth = 0): string | null {
  if (typeof schema === 'boolean' || depth > DEPTH_MAX) return null;
  if (!isObject(schema)) return 'Schema should be an object or boolean';
  for (const type of typesOf(schema)) if (!TYPES.has(type)) return `Invalid type: ${type}`;
  const inner = [schema.items, ...listOf(schema.anyOf), ...listOf(schema.oneOf), ...listOf(schema.allOf)];
  if (isObject(schema.properties)) inner.push(...Object.values(schema.properties));
  for (const member of inner) {
    const fault = member === undefined ? null : schemaFault(member, depth + 1);
    if (fault !== null) return fault;
  }
  return null;
}

/** Sources of values: the words of the prompt, the schema's own definitions. */
interface Source {
  root: Schema;
  prompt: string;
  /** The last word of the prompt that looks like a name, or null. */
  name: string | null;
}

function nameIn(prompt: string): string | null {
  const names = [...prompt.matchAll(/(?<=[\p{Ll}\d,;:'"] )\p{Lu}[\p{L}-]+/gu)];
  return names.at(-1)?.[0] ?? null;
}

function resolve(schema: unknown, source: Source): Schema {
  let current = isObject(schema) ? schema : {};
  for (let hops = 0; hops < DEPTH_MAX && typeof current.$ref === 'string'; hops += 1) {
    let target: unknown = source.root;
    for (const step of current.$ref.replace(/^#\/?/, '').split('/')) {
      if (step !== '') target = isObject(target) ? target[step] : undefined;
    }
    current = isObject(target) ? target : {};
  }
  const all = listOf(current.allOf);
  if (all.length === 0) return current;
  const parts = [current, ...all.map((part) => resolve(part, source))];
  const merged: Schema = {};
  const properties: Schema = {};
  for (const part of parts) {
    Object.assign(merged, part);
    if (isObject(part.properties)) Object.assign(properties, part.properties);
  }
  const required = parts.flatMap((part) => listOf(part.required));
  return { ...merged, allOf: undefined, properties, required };
}

const FORMATS: Record<string, string> = {
  date: '2026-05-01',
  time: '12:00:00Z',
  'date-time': '2026-05-01T12:00:00Z',
  email: 'keeper@example.com',
  uri: 'https://example.com/',
  uuid: '00000000-0000-4000-8000-000000000000',
  ipv4: '192.0.2.1',
  hostname: 'example.com',
};

function sampleString(schema: Schema, source: Source): string {
  const formatted = typeof schema.format === 'string' ? FORMATS[schema.format] : undefined;
  if (formatted !== undefined) return formatted;
  let text = source.name ?? 'stand-in';
  const min = typeof schema.minLength === 'number' ? schema.minLength : 0;
  const max = typeof schema.maxLength === 'number' ? schema.maxLength : text.length + min;
  if (text.length < min) text = text.padEnd(min, 'x');
  return text.slice(0, Math.max(max, min));
}

function sampleNumber(schema: Schema, integer: boolean): number {
  const step = typeof schema.multipleOf === 'number' && schema.multipleOf > 0 ? schema.multipleOf : 1;
  let low = typeof schema.minimum === 'number' ? schema.minimum : Number.NEGATIVE_INFINITY;
  let high = typeof schema.maximum === 'number' ? schema.maximum : Number.POSITIVE_INFINITY;
  const nudge = integer ? 1 : 1e-3;
  if (typeof schema.exclusiveMinimum === 'number') low = Math.max(low, schema.exclusiveMinimum + nudge);
  if (typeof schema.exclusiveMaximum === 'number') high = Math.min(high, schema.exclusiveMaximum - nudge);
  const wanted = Math.min(Math.max(step, low), high);
  const onGrid = Math.ceil(wanted / step) * step;
  if (onGrid <= high && (integer || schema.multipleOf !== undefined)) return integer ? Math.ceil(onGrid) : onGrid;
  return integer ? Math.floor(high) : wanted;
}

function sampleArray(schema: Schema, source: Source, depth: number): unknown[] {
  const prefix = listOf(schema.prefixItems);
  const min = typeof schema.minItems === 'number' ? schema.minItems : 1;
  const max = typeof schema.maxItems === 'number' ? schema.maxItems : Number.POSITIVE_INFINITY;
  const length = Math.min(Math.max(min, prefix.length), max, 100);
  return Array.from({ length }, (_, index) => sample(prefix[index] ?? schema.items, source, depth + 1));
}

function sampleObject(schema: Schema, source: Source, depth: number): Schema {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = listOf(schema.required).filter((name) => typeof name === 'string');
  const names = required.length > 0 ? required : Object.keys(properties);
  return Object.fromEntries(names.map((name) => [name, sample(properties[name], source, depth + 1)]));
}

function choose(values: readonly unknown[], source: Source): unknown {
  const prompt = source.prompt.toLowerCase();
  const named = values.find(
    (value) => typeof value === 'string' && value.length > 1 && prompt.includes(value.toLowerCase()),
  );
  return named ?? values[0];
}

function guessType(schema: Schema): string {
  const [type] = typesOf(schema).filter((name) => name !== 'null');
  if (type !== undefined) return type;
  if (typesOf(schema).includes('null')) return 'null';
  if (isObject(schema.properties)) return 'object';
  return schema.items === undefined ? 'string' : 'array';
}

function sample(raw: unknown, source: Source, depth: number): unknown {
  const schema = resolve(raw, source);
  if (depth > DEPTH_MAX) return null;
  if (schema.const !== undefined) return schema.const;
  if (Array.isArray(schema.enum) && schema.enum.length > 0) return choose(schema.enum, source);
  const options = [...listOf(schema.anyOf), ...listOf(schema.oneOf)];
  if (options.length > 0) {
    const first = options.find((option) => resolve(option, source).type !== 'null') ?? options[0];
    return sample(first, source, depth + 1);
  }
  switch (guessType(schema)) {
    case 'object':
      return sampleObject(schema, source, depth);
    case 'array':
      return sampleArray(schema, source, depth);
    case 'integer':
      return sampleNumber(schema, true);
    case 'number':
      return sampleNumber(schema, false);
    case 'boolean':
      return true;
    case 'null':
      return null;
    default:
      return sampleString(schema, source);
  }
}

/** A value that satisfies the schema; names and enum members are taken from the prompt where they fit. */
export function sampleValue(schema: unknown, prompt: string): unknown {
  return sample(schema, { root: isObject(schema) ? schema : {}, prompt, name: nameIn(prompt) }, 0);
}
