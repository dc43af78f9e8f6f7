import { NextMark, StringEnds } from './marks.ts';
import { skipLiteral } from './scan.ts';

/**
 * Walks one JSON object that comes in pieces, cut at any place, and keeps of it the members that are wanted: each
 * character is looked at once, and nothing of the others is held. Text is latin1, as in json-scan.ts, and what that
 * accepts is accepted here.
 */

/** A member of the outermost object. */
export interface PieceMember {
  /** Offset in all of the text. */
  readonly valueStart: number;
  /** Offset after the value's last character. */
  readonly valueEnd: number;
  /** The value, or as much of its beginning as is kept of one. */
  readonly text: string;
}

type State =
  | 'start'
  | 'first_key'
  | 'key'
  | 'in_key'
  | 'colon'
  | 'value'
  | 'in_string'
  | 'in_nested'
  | 'in_literal'
  | 'after'
  | 'end'
  | 'broken';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Arrays and objects within one another, as in json-scan.ts. */
const depthMax = 999;
/** Characters kept of a key with its quotes: wanted keys are shorter, even if every character is an escape. */
const keyCharsMax = 256;
/** Characters that are kept of a number, `true`, `false` or `null`. */
const literalCharsMax = 1024;

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
const endsLiteral = (code: number): boolean => code === COMMA || code === CLOSE_BRACE || isSpace(code);

export class ObjectPieces {
  /** Offset of the brace that closes the object; -1 before it was read. */
  closedAt = -1;
  readonly #wanted: ReadonlySet<string>;
  readonly #valueCharsMax: number;
  readonly #members = new Map<string, PieceMember>();
  readonly #closers: number[] = [];
  #state: State = 'start';
  /** Characters in the pieces before this one. */
  #before = 0;
  #key = '';
  #valueStart = 0;
  /** Kept beginning of the key or value that is being read. */
  #kept = '';
  #keptMax = 0;
  /** Finds quotes and brackets in this piece. */
  #marks = new NextMark('');
  /** True while the reader is in a string of an array or object. */
  #inString = false;
  readonly #strings = new StringEnds();

  /** @param valueCharsMax characters that are kept of a value */
  constructor(wanted: ReadonlySet<string>, valueCharsMax: number) {
    this.#wanted = wanted;
    this.#valueCharsMax = valueCharsMax;
  }

  feed(text: string): void {
    this.#marks = new NextMark(text);
    let at = 0;
    while (at < text.length && this.#state !== 'broken') at = this.#step(text, at);
    this.#before += text.length;
  }

  /** @returns the wanted members by their key, the last of several with one key as in JSON.parse; null for no object */
  end(): ReadonlyMap<string, PieceMember> | null {
    return this.#state === 'end' ? this.#members : null;
  }

  #step(text: string, at: number): number {
    switch (this.#state) {
      case 'in_key':
        return this.#readKey(text, at);
      case 'in_string':
        return this.#readString(text, at);
      case 'in_nested':
        return this.#readNested(text, at);
      case 'in_literal':
        return this.#readLiteral(text, at);
      default:
        return this.#readMark(text, at);
    }
  }

  /** Reads what stands between keys and values. */
  #readMark(text: string, at: number): number {
    const code = text.charCodeAt(at);
    if (isSpace(code)) return at + 1;
    if (this.#state === 'value') return this.#beginValue(code, at);
    this.#state = this.#afterMark(code);
    if (this.#state === 'end') this.closedAt = this.#before + at;
    if (this.#state !== 'in_key') return at + 1;
    this.#begin(keyCharsMax);
    this.#take('"', 0, 1);
    return at + 1;
  }

  #afterMark(code: number): State {
    switch (this.#state) {
      case 'start':
        return code === OPEN_BRACE ? 'first_key' : 'broken';
      case 'first_key':
        return code === CLOSE_BRACE ? 'end' : keyMark(code);
      case 'key':
        return keyMark(code);
      case 'colon':
        return code === COLON ? 'value' : 'broken';
      case 'after':
        if (code === CLOSE_BRACE) return 'end';
        return code === COMMA ? 'key' : 'broken';
      default:
        return 'broken';
    }
  }

  #beginValue(code: number, at: number): number {
    const isWanted = this.#wanted.has(this.#key);
    this.#valueStart = this.#before + at;
    this.#begin(isWanted ? this.#valueCharsMax : 0);
    if (code === QUOTE) {
      this.#state = 'in_string';
      this.#take('"', 0, 1);
      return at + 1;
    }
    const isNested = code === OPEN_BRACE || code === OPEN_BRACKET;
    this.#state = isNested ? 'in_nested' : 'in_literal';
    if (!isNested) this.#keptMax = literalCharsMax;
    return at;
  }

  #begin(keptMax: number): void {
    this.#kept = '';
    this.#keptMax = keptMax;
  }

  #take(text: string, from: number, to: number): void {
    const room = this.#keptMax - this.#kept.length;
    if (room > 0) this.#kept += text.slice(from, Math.min(to, from + room));
  }

  #readKey(text: string, at: number): number {
    const end = this.#strings.find(text, at);
    this.#take(text, at, end);
    if (this.#strings.goesOn) return end;
    this.#key = this.#kept.length < keyCharsMax ? decodeKey(this.#kept) : '';
    this.#state = 'colon';
    return end;
  }

  #readString(text: string, at: number): number {
    const end = this.#strings.find(text, at);
    this.#take(text, at, end);
    if (!this.#strings.goesOn) this.#endValue(end);
    return end;
  }

  #readNested(text: string, from: number): number {
    const end = this.#findNestedEnd(text, from);
    this.#take(text, from, end);
    if (this.#closers.length === 0 && this.#state !== 'broken') this.#endValue(end);
    return end;
  }

  /** Offset after the array or object that `from` stands in, or the end of the piece. */
  #findNestedEnd(text: string, from: number): number {
    let at = from;
    while (at < text.length) {
      if (this.#inString) {
        at = this.#strings.find(text, at);
        this.#inString = this.#strings.goesOn;
        continue;
      }
      const mark = this.#marks.find(at);
      if (mark === text.length) return mark;
      at = mark + 1;
      const code = text.charCodeAt(mark);
      if (code === QUOTE) this.#inString = true;
      else if (this.#bracketEnds(code)) return at;
    }
    return at;
  }

  /** @returns whether the walk through an array or object ends with this character */
  #bracketEnds(code: number): boolean {
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      if (this.#closers.length >= depthMax) this.#state = 'broken';
      this.#closers.push(code + 2);
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      if (this.#closers.pop() !== code) this.#state = 'broken';
      if (this.#closers.length === 0) return true;
    }
    return this.#state === 'broken';
  }

  #readLiteral(text: string, from: number): number {
    let at = from;
    while (at < text.length && !endsLiteral(text.charCodeAt(at))) at += 1;
    this.#take(text, from, at);
    if (at === text.length) return at;
    if (skipLiteral(this.#kept, 0) === this.#kept.length) this.#endValue(at);
    else this.#state = 'broken';
    return at;
  }

  #endValue(at: number): void {
    this.#state = 'after';
    if (!this.#wanted.has(this.#key)) return;
    const valueEnd = this.#before + at;
    this.#members.set(this.#key, { valueStart: this.#valueStart, valueEnd, text: this.#kept });
  }
}

function keyMark(code: number): State {
  return code === QUOTE ? 'in_key' : 'broken';
}

/** The key that a string stands for; '' for what is no string, which nobody wants. */
function decodeKey(raw: string): string {
  if (!raw.includes('\\')) return raw.slice(1, -1);
  try {
    return String(JSON.parse(raw));
  } catch {
    return '';
  }
}
