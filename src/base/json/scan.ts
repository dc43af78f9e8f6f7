/**
 * Finds the members of a JSON object in its text without building values: what must be known is read by offset, what
 * must change is spliced, everything else keeps its bytes. Works on latin1 strings, in which one character is one
 * byte of the UTF-8 text (RFC 8259 lets bytes above 0x7f stand only inside strings, where they are skipped).
 *
 * It checks structure (strings, brackets, commas, colons of the object itself), not every nested token: a text that
 * JSON.parse accepts is always accepted here with the same members; some that it refuses pass and are left to the
 * reader behind.
 */

export interface JsonMember {
  /** The key, unescaped and decoded. */
  readonly key: string;
  /** Offset of the key's opening quote. */
  readonly keyStart: number;
  readonly valueStart: number;
  /** Offset after the value's last character. */
  readonly valueEnd: number;
}

export type JsonScan =
  | { readonly ok: true; readonly members: JsonMember[]; readonly end: number }
  /** `exceeds`: the text may be JSON, but has more than it may have. */
  | { readonly ok: false; readonly offset: number; readonly reason: string; readonly exceeds: boolean };

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Bounds of a text; a scan ends where there is more. */
export interface ScanBounds {
  /** Members of the outermost object. */
  readonly membersMax: number;
  /** Members of all objects in it together, its own included. */
  readonly membersInAllMax: number;
  /** Arrays and objects within one another, the outermost included. */
  readonly depthMax: number;
}

/** The default depth: deeper than any real text, and a bound for the stack of open brackets. */
const unbounded: ScanBounds = { membersMax: Infinity, membersInAllMax: Infinity, depthMax: 1000 };

/** Offset of the first character at or after `at` that is not JSON white space. */
export function skipSpace(text: string, at: number): number {
  let index = at;
  for (;;) {
    const code = text.charCodeAt(index);
    if (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) index += 1;
    else return index;
  }
}

/** Up to this length a string is read character by character: a search costs more there. */
const nearChars = 24;

function findQuote(text: string, from: number): number {
  const near = Math.min(from + nearChars, text.length);
  for (let index = from; index < near; index += 1) if (text.charCodeAt(index) === QUOTE) return index;
  return text.indexOf('"', near);
}

/** Offset after the string whose opening quote stands at `at`; -1 when it does not end. */
export function skipString(text: string, at: number): number {
  let quote = findQuote(text, at + 1);
  while (quote !== -1) {
    let slashes = 0;
    while (text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
    quote = findQuote(text, quote + 1);
  }
  return -1;
}

/** Members and levels that the bounds of the current scan still allow. */
interface Allowance {
  members: number;
  readonly depth: number;
}

const tooMany = -2;
const tooDeep = -3;

/**
 * Offset after the array or object that opens at `at`; -1 when its brackets do not match, `tooMany` or `tooDeep` where
 * it has more than is allowed. Outside of strings a colon stands in members only.
 */
function skipNested(text: string, at: number, allowance: Allowance): number {
  const closers: number[] = [];
  let index = at;
  while (index < text.length) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) {
      index = skipString(text, index);
      if (index === -1) return -1;
      continue;
    }
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      if (closers.length >= allowance.depth) return tooDeep;
      closers.push(code + 2);
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      if (closers.pop() !== code) return -1;
      if (closers.length === 0) return index + 1;
    } else if (code === COLON) {
      allowance.members -= 1;
      if (allowance.members < 0) return tooMany;
    }
    index += 1;
  }
  return -1;
}

const literal = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[,}\]\s]|$)/y;

/** Offset after the value that begins at `at`; -1 when none does. */
export function skipValue(text: string, at: number): number {
  return Math.max(-1, skip(text, at, { members: Infinity, depth: unbounded.depthMax }));
}

/** Offset after the number, `true`, `false` or `null` at `at`; -1 where there is none. */
export function skipLiteral(text: string, at: number): number {
  literal.lastIndex = at;
  return literal.test(text) ? literal.lastIndex : -1;
}

function skip(text: string, at: number, allowance: Allowance): number {
  const code = text.charCodeAt(at);
  if (code === QUOTE) return skipString(text, at);
  return code === OPEN_BRACE || code === OPEN_BRACKET ? skipNested(text, at, allowance) : skipLiteral(text, at);
}

/**
 * Goes through the elements of the array that opens at `at`.
 * @param visit gets the offsets of each; false ends the walk
 * @returns the offset after the array, or after the element at which the walk was ended; -1 for what is no array
 */
export function forEachElement(text: string, at: number, visit: (start: number, end: number) => boolean): number {
  if (text.charCodeAt(at) !== OPEN_BRACKET) return -1;
  let index = skipSpace(text, at + 1);
  if (text.charCodeAt(index) === CLOSE_BRACKET) return index + 1;
  for (;;) {
    const end = skipValue(text, index);
    if (end === -1 || !visit(index, end)) return end;
    index = skipSpace(text, end);
    const code = text.charCodeAt(index);
    if (code === CLOSE_BRACKET) return index + 1;
    if (code !== COMMA) return -1;
    index = skipSpace(text, index + 1);
  }
}

function decodeKey(raw: string): string | null {
  const inner = raw.slice(1, -1);
  if (/^[\x20-\x5b\x5d-\x7e]*$/.test(inner)) return inner;
  try {
    const decoded: unknown = JSON.parse(Buffer.from(raw, 'latin1').toString('utf8'));
    return typeof decoded === 'string' ? decoded : null;
  } catch {
    return null;
  }
}

const refused = (offset: number, reason: string): JsonScan => ({ ok: false, offset, reason, exceeds: false });
const exceeded = (offset: number, reason: string): JsonScan => ({ ok: false, offset, reason, exceeds: true });

function refusedValue(at: number, found: number, key: string, bounds: ScanBounds): JsonScan {
  if (found === tooMany) return exceeded(at, `it has more than ${bounds.membersInAllMax} fields in total`);
  if (found === tooDeep) return exceeded(at, `it has more than ${bounds.depthMax} levels of nested objects and lists`);
  return refused(at, `the value of "${key.slice(0, 64)}" is not valid`);
}

/**
 * Scans the object that begins at `at` (white space before it is skipped).
 * @returns its members in their order, duplicates included, and the offset after its closing brace
 */
export function scanObject(text: string, at = 0, bounds = unbounded): JsonScan {
  const allowance: Allowance = { members: bounds.membersInAllMax, depth: bounds.depthMax - 1 };
  let index = skipSpace(text, at);
  if (text.charCodeAt(index) !== OPEN_BRACE) return refused(index, 'an object is expected');
  const members: JsonMember[] = [];
  index = skipSpace(text, index + 1);
  if (text.charCodeAt(index) === CLOSE_BRACE) return { ok: true, members, end: index + 1 };
  for (;;) {
    if (text.charCodeAt(index) !== QUOTE) return refused(index, 'a field name in quotes is expected');
    if (members.length >= bounds.membersMax) return exceeded(index, `it has more than ${bounds.membersMax} fields`);
    const keyStart = index;
    const keyEnd = skipString(text, index);
    if (keyEnd === -1) return refused(index, 'this string does not end');
    const key = decodeKey(text.slice(keyStart, keyEnd));
    if (key === null) return refused(keyStart, 'this field name is not a valid string');
    index = skipSpace(text, keyEnd);
    if (text.charCodeAt(index) !== COLON) return refused(index, 'a colon is expected');
    const valueStart = skipSpace(text, index + 1);
    allowance.members -= 1;
    const valueEnd = skip(text, valueStart, allowance);
    if (valueEnd < 0) return refusedValue(valueStart, valueEnd, key, bounds);
    members.push({ key, keyStart, valueStart, valueEnd });
    index = skipSpace(text, valueEnd);
    const code = text.charCodeAt(index);
    if (code === CLOSE_BRACE) return { ok: true, members, end: index + 1 };
    if (code !== COMMA) return refused(index, 'a comma or the end of the object is expected');
    index = skipSpace(text, index + 1);
  }
}

/** Scans a text that must be one object and nothing else. */
export function scanDocument(text: string, bounds = unbounded): JsonScan {
  const scan = scanObject(text, 0, bounds);
  if (!scan.ok) return scan;
  const rest = skipSpace(text, scan.end);
  return rest < text.length ? refused(rest, 'unexpected content after the object') : scan;
}

/** One replacement of the characters from `start` to `end`. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Applies replacements, which must not overlap, in one pass. */
export function spliceText(text: string, splices: readonly Splice[]): string {
  if (splices.length === 0) return text;
  const ordered = splices.length === 1 ? splices : splices.toSorted((a, b) => a.start - b.start);
  let result = '';
  let from = 0;
  for (const { start, end, text: replacement } of ordered) {
    result += text.slice(from, start) + replacement;
    from = end;
  }
  return result + text.slice(from);
}

/**
 * The range to cut so that a member and exactly one comma beside it go, and the rest stays an object.
 */
export function memberCut(member: JsonMember, members: readonly JsonMember[]): Splice {
  const position = members.indexOf(member);
  const next = members[position + 1];
  const previous = members[position - 1];
  if (previous !== undefined) return { start: previous.valueEnd, end: member.valueEnd, text: '' };
  return { start: member.keyStart, end: next === undefined ? member.valueEnd : next.keyStart, text: '' };
}
