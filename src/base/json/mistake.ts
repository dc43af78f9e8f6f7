import { skipSpace } from './scan.ts';

/** The first place at which a text is not JSON. */
export interface JsonMistake {
  /** Offset in the text. */
  readonly offset: number;
  /** Description of the mistake; never quotes the text. */
  readonly reason: string;
}

class MistakeAt extends Error {
  readonly offset: number;

  constructor(offset: number, reason: string) {
    super(reason);
    this.offset = offset;
  }
}

/**
 * Finds the first mistake of a text that should be one JSON value. Reads each character once, and calls itself once per
 * level of nesting, which the caller must have bounded.
 * @returns null for a text that is JSON; the offset of a latin1 text is that of a byte
 */
export function findMistake(text: string): JsonMistake | null {
  try {
    const rest = skipSpace(text, value(text, skipSpace(text, 0)));
    return rest < text.length ? { offset: rest, reason: 'unexpected content after the value' } : null;
  } catch (error) {
    if (!(error instanceof MistakeAt)) throw error;
    return { offset: error.offset, reason: error.message };
  }
}

type Reader = (text: string, at: number) => number;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACE = 0x20;
const literal = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[,}\]\s]|$)/y;
const escapeSequence = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y;

/** Each of these readers returns the offset after what it has read. @throws MistakeAt */
const value: Reader = (text, at) => {
  switch (text.charAt(at)) {
    case '"':
      return string(text, at);
    case '{':
      return list(text, at, '}', member);
    case '[':
      return list(text, at, ']', value);
    case '':
      throw new MistakeAt(at, 'it ends too early');
    default:
      literal.lastIndex = at;
      if (!literal.test(text)) throw new MistakeAt(at, 'a value is expected');
      return literal.lastIndex;
  }
};

function list(text: string, at: number, closer: string, element: Reader): number {
  let index = skipSpace(text, at + 1);
  if (text.charAt(index) === closer) return index + 1;
  for (;;) {
    index = skipSpace(text, element(text, index));
    const char = text.charAt(index);
    if (char === closer) return index + 1;
    if (char !== ',') throw new MistakeAt(index, `a comma or "${closer}" is expected`);
    index = skipSpace(text, index + 1);
  }
}

const member: Reader = (text, at) => {
  if (text.charCodeAt(at) !== QUOTE) throw new MistakeAt(at, 'a field name in quotes is expected');
  const colon = skipSpace(text, string(text, at));
  if (text.charAt(colon) !== ':') throw new MistakeAt(colon, 'a colon is expected');
  return value(text, skipSpace(text, colon + 1));
};

const string: Reader = (text, start) => {
  for (let at = start + 1; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at + 1;
    if (code < SPACE) throw new MistakeAt(at, rawMistake(code));
    if (code !== BACKSLASH) continue;
    escapeSequence.lastIndex = at;
    if (!escapeSequence.test(text)) throw new MistakeAt(at, 'invalid escape sequence: write a backslash as \\\\');
    at = escapeSequence.lastIndex - 1;
  }
  throw new MistakeAt(start, 'this string does not end');
};

/** Control characters that people write into strings as they are. */
const rawNames: Readonly<Record<number, readonly [name: string, escape: string]>> = {
  0x0a: ['a line break', '\\n'],
  0x0d: ['a carriage return', '\\r'],
  0x09: ['a tab', '\\t'],
};

function rawMistake(code: number): string {
  const [name, escape] = rawNames[code] ?? ['a control character', `\\u${code.toString(16).padStart(4, '0')}`];
  return `${name} inside a string must be written as ${escape}`;
}
