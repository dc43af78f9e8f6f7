import type { StructuredOutputBounds } from '#core/catalog/catalog.ts';
import { isObject, type Members } from '#edge/inference/json-member.ts';
import { patternSize } from './pattern-size.ts';

/**
 * Size of the grammar that an engine builds for a JSON schema or a structural tag. Every value is inspected, wherever
 * it stands: a `$ref` may point to any place, so an unknown keyword may contain a schema as well.
 *
 * The bounds are on things that cost xgrammar more than their length suggests (vLLM 0.29, one core, a vocabulary of
 * 49,000): 500 properties that are not required took 0.6 s, and more take their square; 20,000 enum values a minute;
 * six enum values of 10,000 characters 30 s; 100 different values of maxLength three minutes; minProperties beside 200
 * properties more than five minutes; `[a-z]{0,10000}` as a pattern 15 s; see pattern-size.ts.
 */

export interface SchemaPermissions {
  readonly regex: boolean;
  readonly grammar: boolean;
}

/** Values of an enum or const that are longer than this are counted by their length. */
const longValueChars = 100;
/** Keywords whose object has schemas as members, and is no schema itself. */
const mapKeywords = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);
/** Keywords of a structural tag with a schema, whose own depth begins there. */
const tagSchemaKeywords = new Set(['schema', 'json_schema']);
const lengthKeywords = new Set(['minLength', 'maxLength']);
/** Counts in structural tags, which are written out one by one. */
const countKeywords = new Set(['max', 'max_chars', 'max_tokens', 'max_whitespace_cnt']);
/** Costs of formats, which are the engine's own patterns: 100 of `uri-template` took 18 seconds. */
const formatSizes: ReadonlyMap<string, number> = new Map([
  ['date', 0.1],
  ['date-time', 0.1],
  ['duration', 0.1],
  ['email', 0.1],
  ['hostname', 0.05],
  ['ipv4', 0.1],
  ['ipv6', 0.25],
  ['time', 0.1],
  ['uri', 0.2],
  ['uri-reference', 0.4],
  ['uri-template', 12],
  ['uuid', 0.05],
]);
/** Cost of formats that were not measured. */
const otherFormatSize = 0.5;
/** Values of minLength and maxLength up to this cost nothing worth counting. */
const freeLength = 4;

const repeatHint =
  'use shorter patterns, with fewer and smaller counts such as {1,64} and no counts around optional parts; fewer ' +
  'formats and distinct values of minLength and maxLength; and no minProperties or maxProperties with many ' +
  'properties';

/** Measures schemas, one after the other. The schemas of several tools become one grammar. */
export class SchemaMeter {
  readonly #bounds: StructuredOutputBounds;
  readonly #allowed: SchemaPermissions;
  /** Bound on all schemas together, as a multiple of the bound on one. */
  readonly #factor: number;
  readonly #lengths = new Set<number>();
  readonly #patterns = new Set<string>();
  #properties = 0;
  #values = 0;
  #longChars = 0;
  #repetitions = 0;

  constructor(bounds: StructuredOutputBounds, allowed: SchemaPermissions, factor = 1) {
    this.#bounds = bounds;
    this.#allowed = allowed;
    this.#factor = factor;
  }

  /**
   * @param depth depth of the value; a requested schema is at 1
   * @returns the excess, as the rest of a sentence; null if there is none
   */
  add(value: unknown, depth = 1): string | null {
    if (Array.isArray(value)) return this.#each(value, depth);
    return isObject(value) ? this.#object(value, depth) : null;
  }

  /** Adds a list from which the answer must be chosen. */
  addChoices(choices: readonly unknown[]): string | null {
    return this.#literal(choices, 1);
  }

  #each(list: readonly unknown[], depth: number): string | null {
    for (const item of list) {
      const problem = this.add(item, Array.isArray(item) ? depth + 1 : depth);
      if (problem !== null) return problem;
    }
    return depth > this.#bounds.depthMax ? this.#tooDeep() : null;
  }

  #object(schema: Members, depth: number): string | null {
    if (depth > this.#bounds.depthMax) return this.#tooDeep();
    const own = this.#repeats(schema) ?? this.#forbidden(schema);
    if (own !== null) return own;
    for (const [keyword, value] of Object.entries(schema)) {
      const problem = this.#member(keyword, value, depth);
      if (problem !== null) return problem;
    }
    return null;
  }

  #member(keyword: string, value: unknown, depth: number): string | null {
    if (keyword === 'enum' || keyword === 'const') return this.#literal(value, depth);
    if (!mapKeywords.has(keyword) || !isObject(value)) {
      return this.add(value, tagSchemaKeywords.has(keyword) ? Math.max(1, depth + 1) : depth + 1);
    }
    for (const [name, schema] of Object.entries(value)) {
      if (keyword === 'patternProperties') this.#pattern(name);
      this.#properties += 1;
      if (name.length > longValueChars) this.#longChars += name.length;
      const problem = this.#totals() ?? this.add(schema, depth + 1);
      if (problem !== null) return problem;
    }
    return null;
  }

  /** Adds values that are in the grammar letter by letter. */
  #literal(value: unknown, depth: number): string | null {
    if (depth > this.#bounds.depthMax) return this.#tooDeep();
    if (typeof value === 'string') {
      if (value.length > longValueChars) this.#longChars += value.length;
      return this.#totals();
    }
    if (typeof value !== 'object' || value === null) return null;
    const values: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
    this.#values += values.length;
    for (const item of values) {
      const problem = this.#totals() ?? this.#literal(item, typeof item === 'object' ? depth + 1 : depth);
      if (problem !== null) return problem;
    }
    return this.#totals();
  }

  #repeats(schema: Members): string | null {
    const { pattern, format, properties, minProperties, maxProperties } = schema;
    if (typeof pattern === 'string') this.#pattern(pattern);
    if (typeof format === 'string') this.#repetitions += formatSizes.get(format) ?? otherFormatSize;
    const counts = typeof minProperties === 'number' || typeof maxProperties === 'number';
    if (counts && isObject(properties)) this.#repetitions += Object.keys(properties).length ** 2 / 4;
    for (const [keyword, value] of Object.entries(schema)) {
      if (typeof value !== 'number') continue;
      if (lengthKeywords.has(keyword)) this.#length(value);
      else if (countKeywords.has(keyword)) this.#repetitions += Math.max(0, value);
    }
    return this.#totals();
  }

  /** Adds a length. Each one is written out once, and beyond 128 in a form of its own. */
  #length(value: number): void {
    if (value <= freeLength || this.#lengths.has(value)) return;
    this.#lengths.add(value);
    this.#repetitions += 2 + Math.min(value, 128) / 10;
  }

  #pattern(pattern: string): void {
    if (this.#allowed.regex || this.#patterns.has(pattern)) return;
    this.#patterns.add(pattern);
    this.#repetitions += patternSize(pattern);
  }

  /** Rejects formats of structural tags that are not allowed. */
  #forbidden({ type, pattern, grammar }: Members): string | null {
    if (type === 'regex' && pattern !== undefined && !this.#allowed.regex)
      return 'contains a regex, which is not supported';
    if (type === 'grammar' && grammar !== undefined && !this.#allowed.grammar) {
      return 'contains a grammar, which is not supported';
    }
    return null;
  }

  #totals(): string | null {
    const { choicesMax, propertiesMax, bytesMax, repetitionsMax } = this.#bounds;
    const longMax = Math.floor(bytesMax / 4) * this.#factor;
    if (this.#properties > propertiesMax * this.#factor) {
      return `has more than ${propertiesMax * this.#factor} properties`;
    }
    if (this.#values > choicesMax * this.#factor) return `has more than ${choicesMax * this.#factor} choices`;
    if (this.#longChars > longMax) {
      return `has choices of more than ${longValueChars} characters that have more than ${longMax} characters in total`;
    }
    if (this.#repetitions <= repetitionsMax * this.#factor) return null;
    return `is too complex: ${repeatHint}`;
  }

  #tooDeep(): string {
    return `is nested more than ${this.#bounds.depthMax} levels deep`;
  }
}
