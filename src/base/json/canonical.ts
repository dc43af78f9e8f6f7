import { createHash } from 'node:crypto';
import { latin1Json } from './latin1.ts';
import { scanDocument, skipLiteral, skipSpace, skipString } from './scan.ts';

/**
 * Canonical form of JSON: members sorted by name, no white space, no unnecessary escapes, numbers as JSON.stringify
 * writes them. Works on latin1 strings, one character per byte, in one pass and without building values: the cost of a
 * text depends on its length only, even with many small numbers.
 */

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
/** Deeper than any real text; bounds the stack. */
const depthMax = 1000;

const integer = /^(?:0|-?[1-9]\d*)$/;
/** List elements that are already canonical. At most 1000 per match, because a match costs memory for each. */
const integers = /(?:(?:0|-?[1-9]\d*),){1,1000}/y;

class NoJson extends Error {}

/** Canonicalizes a literal. Integers keep all their digits, even beyond the precision of a double. */
function canonicalLiteral(source: string): string {
  if (integer.test(source) || /^[tfn]/.test(source)) return source;
  const value = Number(source);
  return Number.isFinite(value) ? JSON.stringify(value) : source;
}

function canonicalString(source: string): string {
  if (!source.includes('\\')) return source;
  const value = JSON.parse(Buffer.from(source, 'latin1').toString('utf8')) as string;
  return latin1Json(value);
}

class Reader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** @throws NoJson, or SyntaxError for a string that is none */
  document(): string {
    this.#at = skipSpace(this.#text, 0);
    const value = this.#value();
    if (skipSpace(this.#text, this.#at) < this.#text.length) throw new NoJson();
    return value;
  }

  #value(): string {
    const code = this.#text.charCodeAt(this.#at);
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      this.#depth += 1;
      if (this.#depth > depthMax) throw new NoJson();
      const nested = code === OPEN_BRACE ? this.#object() : this.#array();
      this.#depth -= 1;
      return nested;
    }
    if (code === QUOTE) return this.#string();
    return canonicalLiteral(this.#take(skipLiteral(this.#text, this.#at)));
  }

  #string(): string {
    return canonicalString(this.#take(skipString(this.#text, this.#at)));
  }

  #take(end: number): string {
    if (end === -1) throw new NoJson();
    const taken = this.#text.slice(this.#at, end);
    this.#at = end;
    return taken;
  }

  #array(): string {
    let written = '[';
    if (this.#opens(CLOSE_BRACKET)) return '[]';
    for (;;) {
      integers.lastIndex = this.#at;
      if (integers.test(this.#text)) written += this.#take(integers.lastIndex);
      this.#at = skipSpace(this.#text, this.#at);
      written += this.#value();
      if (this.#goesOn(CLOSE_BRACKET)) written += ',';
      else return `${written}]`;
    }
  }

  #object(): string {
    if (this.#opens(CLOSE_BRACE)) return '{}';
    const members: { readonly key: string; readonly text: string }[] = [];
    let isOrdered = true;
    for (;;) {
      if (this.#text.charCodeAt(this.#at) !== QUOTE) throw new NoJson();
      const key = this.#string();
      this.#at = skipSpace(this.#text, this.#at);
      if (this.#text.charCodeAt(this.#at) !== COLON) throw new NoJson();
      this.#at = skipSpace(this.#text, this.#at + 1);
      isOrdered &&= members.length === 0 || (members.at(-1)?.key ?? '') <= key;
      members.push({ key, text: `${key}:${this.#value()}` });
      if (!this.#goesOn(CLOSE_BRACE)) break;
    }
    if (!isOrdered) members.sort((a, b) => (a.key < b.key ? -1 : Number(a.key > b.key)));
    return `{${members.map(({ text }) => text).join(',')}}`;
  }

  /** Skips the opening bracket. @returns whether nothing is inside; then the closing one is skipped, too */
  #opens(close: number): boolean {
    this.#at = skipSpace(this.#text, this.#at + 1);
    if (this.#text.charCodeAt(this.#at) !== close) return false;
    this.#at += 1;
    return true;
  }

  /** Skips what follows an element or a member. @returns false after the last one */
  #goesOn(close: number): boolean {
    this.#at = skipSpace(this.#text, this.#at);
    const code = this.#text.charCodeAt(this.#at);
    if (code !== close && code !== COMMA) throw new NoJson();
    this.#at += 1;
    if (code === close) return false;
    this.#at = skipSpace(this.#text, this.#at);
    return true;
  }
}

/**
 * Returns the canonical form of a JSON text. Members of the same name keep their order.
 * @returns null if the text is not JSON; texts that only a full parser rejects may pass
 */
export function canonicalJson(text: string): string | null {
  try {
    return new Reader(text).document();
  } catch (error) {
    if (error instanceof NoJson || error instanceof SyntaxError) return null;
    throw error;
  }
}

/** Bytes above which a member is hashed as written: canonicalizing it takes as long as a small request. */
const readBytesMax = 65_536;

/**
 * Computes a SHA-256 over the members of a JSON object, sorted and in canonical form.
 * @param text the object as latin1
 * @param without names of members that do not count
 * @returns hexadecimal; null for what is no JSON object
 */
export function digestMembers(text: string, without: readonly string[]): string | null {
  const scan = scanDocument(text);
  if (!scan.ok) return null;
  const members = scan.members.filter(({ key }) => !without.includes(key)).sort((a, b) => (a.key < b.key ? -1 : 1));
  const hash = createHash('sha256');
  for (const { key, valueStart, valueEnd } of members) {
    const value = text.slice(valueStart, valueEnd);
    const written = value.length > readBytesMax ? value : canonicalJson(value);
    if (written === null) return null;
    hash.update(`${JSON.stringify(key)}:${written.length}:`).update(written, 'latin1');
  }
  return hash.digest('hex');
}
