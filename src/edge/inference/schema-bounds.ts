import type { StructuredOutputBounds } from '#core/catalog/catalog.ts';
import { patternSize } from './pattern-size.ts';

/**
 * How large a grammar an engine would have to build for a JSON schema or a structural tag. Everything in it is looked
 * at, wherever it stands: a `$ref` may point to any place, so an unknown keyword may hold a schema as well.
 *
 * What is counted is what was seen to cost xgrammar more than its length says (0.29 of vLLM, one core, a vocabulary of
 * 49,000): 500 properties that are not required 0.6 s and their square beyond, 20,000 enum values a minute, six enum
 * values of 10,000 characters 30 s, 100 different values of maxLength three minutes, minProperties beside 200
 * properties more than five minutes, `[a-z]{0,10000}` as a pattern 15 s; see pattern-size.ts.
 */

export interface SchemaPermissions {
  readonly regex: boolean;
  readonly grammar: boolean;
}

/** Values of an enum or const that are longer than this are counted by their length. */
const longValueChars = 100;
/** Members of an object that are schemas by name, and are no schema themselves. */
const mapKeywords = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);
/** Where a structural tag holds a schema, whose own depth begins there. */
const tagSchemaKeywords = new Set(['schema', 'json_schema']);
const lengthKeywords = new Set(['minLength', 'maxLength']);
/** Counts in structural tags, which are written out one by one. */
const countKeywords = new Set(['max', 'max_chars', 'max_tokens', 'max_whitespace_cnt']);
/** Formats, which are patterns of the engine's own, by what they cost: 100 of `uri-template` took 18 seconds. */
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
/** For keywords that were not measured. */
const otherFormatSize = 0.5;
/** Up to this length a string costs nothing worth counting. */
const freeLength = 4;

const repeatHint =
  'use shorter patterns, with smaller and fewer counts such as {1,64} and none around what may be empty, fewer ' +
  'formats and different values of minLength and maxLength, and no minProperties or maxProperties beside many ' +
  'properties';

type Members = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Counts schemas, one after the other; those of several tools become one grammar. */
export class SchemaMeter {
  readonly #bounds: StructuredOutputBounds;
  readonly #allowed: SchemaPermissions;
  /** What all schemas together may be, as a multiple of what one may be. */
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
   * @param depth at which the value stands; a schema that is asked for stands at 1
   * @returns what is too much, as the rest of a sentence; null for what may pass
   */
  add(value: unknown, depth = 1): string | null {
    if (Array.isArray(value)) return this.#each(value, depth);
    return isObject(value) ? this.#object(value, depth) : null;
  }

  /** A list of which one is to be chosen. */
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

  /** Values that stand in the grammar letter by letter. */
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

  /** Each length is written out once, and beyond 128 in a form of its own. */
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

  /** Formats of structural tags. */
  #forbidden({ type, pattern, grammar }: Members): string | null {
    if (type === 'regex' && pattern !== undefined && !this.#allowed.regex)
      return 'holds a regex, which is not supported';
    if (type === 'grammar' && grammar !== undefined && !this.#allowed.grammar) {
      return 'holds a grammar, which is not supported';
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
      return `has choices longer than ${longValueChars} characters that are together longer than ${longMax}`;
    }
    if (this.#repetitions <= repetitionsMax * this.#factor) return null;
    return `has too much to write out: ${repeatHint}`;
  }

  #tooDeep(): string {
    return `is nested deeper than ${this.#bounds.depthMax}`;
  }
}
