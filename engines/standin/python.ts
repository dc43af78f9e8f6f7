/** Texts that Python makes: its values printed, its JSON, and where its JSON parser gives up. */

/** `repr()` of a value that came from JSON. */
export function repr(value: unknown): string {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return reprString(value);
  if (Array.isArray(value)) return `[${value.map(repr).join(', ')}]`;
  return `{${Object.entries(value)
    .map(([key, member]) => `${reprString(key)}: ${repr(member)}`)
    .join(', ')}}`;
}

function reprString(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text
    .replaceAll('\\', '\\\\')
    .replaceAll('\n', '\\n')
    .replaceAll('\r', '\\r')
    .replaceAll('\t', '\\t')
    // oxlint-disable-next-line no-control-regex -- Python escapes exactly these
    .replace(/[\u0000-\u001f\u007f]/g, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return quote + (quote === "'" ? body.replaceAll("'", "\\'") : body) + quote;
}

/** A float as Python prints it: `-1` is `-1.0`. */
export function float(value: number): string {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** `json.dumps` of a value: spaces after `:` and `,`, and only ASCII. */
export function dumps(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(dumps).join(', ')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([key, member]) => `${dumps(key)}: ${dumps(member)}`);
    return `{${members.join(', ')}}`;
  }
  return (JSON.stringify(value) ?? 'null').replace(
    /[\u0080-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Where and why Python's JSON parser refuses a text. */
interface JsonFault {
  at: number;
  reason: string;
}

class Refusal extends Error {
  readonly fault: JsonFault;
  constructor(at: number, reason: string) {
    super(reason);
    this.fault = { at, reason };
  }
}

const BLANK = /[ \t\n\r]*/y;
const LITERAL = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity/y;

function skip(text: string, at: number): number {
  BLANK.lastIndex = at;
  BLANK.exec(text);
  return BLANK.lastIndex;
}

function readString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 34) return at + 1;
    if (code < 32) throw new Refusal(at, 'Invalid control character at');
    if (code !== 92) continue;
    at += 1;
    if (at >= text.length) break;
    const escape = text[at] ?? '';
    if (escape === 'u') {
      if (!/^[0-9a-fA-F]{4}$/.test(text.slice(at + 1, at + 5))) throw new Refusal(at, 'Invalid \\uXXXX escape');
      at += 4;
    } else if (!'"\\/bfnrt'.includes(escape)) throw new Refusal(at - 1, 'Invalid \\escape');
  }
  throw new Refusal(start, 'Unterminated string starting at');
}

function readObject(text: string, start: number, depth: number): number {
  let at = skip(text, start + 1);
  if (text[at] === '}') return at + 1;
  for (;;) {
    if (text[at] !== '"') throw new Refusal(at, 'Expecting property name enclosed in double quotes');
    at = skip(text, readString(text, at));
    if (text[at] !== ':') throw new Refusal(at, "Expecting ':' delimiter");
    at = skip(text, readValue(text, skip(text, at + 1), depth));
    if (text[at] === '}') return at + 1;
    if (text[at] !== ',') throw new Refusal(at, "Expecting ',' delimiter");
    at = skip(text, at + 1);
  }
}

function readArray(text: string, start: number, depth: number): number {
  let at = skip(text, start + 1);
  if (text[at] === ']') return at + 1;
  for (;;) {
    at = skip(text, readValue(text, at, depth));
    if (text[at] === ']') return at + 1;
    if (text[at] !== ',') throw new Refusal(at, "Expecting ',' delimiter");
    at = skip(text, at + 1);
  }
}

const DEPTH_MAX = 500;

function readValue(text: string, at: number, depth: number): number {
  if (depth > DEPTH_MAX) throw new Refusal(at, 'Expecting value');
  if (text[at] === '"') return readString(text, at);
  if (text[at] === '{') return readObject(text, at, depth + 1);
  if (text[at] === '[') return readArray(text, at, depth + 1);
  LITERAL.lastIndex = at;
  if (!LITERAL.test(text)) throw new Refusal(at, 'Expecting value');
  return LITERAL.lastIndex;
}

/** Finds the fault of a text that is not JSON, in the words and at the offset of Python's parser. */
export function findJsonFault(text: string): JsonFault {
  try {
    const end = skip(text, readValue(text, skip(text, 0), 0));
    return { at: end, reason: 'Extra data' };
  } catch (error) {
    if (error instanceof Refusal) return error.fault;
    throw error;
  }
}
