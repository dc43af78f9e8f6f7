import { NextMark, StringEnds } from './marks.ts';

/**
 * Walks one JSON object that comes in pieces, cut at any place, and parts the elements of one list in it from all that
 * stands around them. Each element is an object, and a number that it may have is made larger on the way: with that,
 * the lists of several such objects become one. Nothing of the elements is held. Text is latin1, as in json-scan.ts.
 */

export interface ListPiecesOptions {
  /** The member of the outermost object that is the list. */
  readonly listKey: string;
  /** The member of an element that is the number. */
  readonly numberKey: string;
  /** Amount that is added to each number. */
  readonly added: number;
  /** Gets the text of the elements, with the commas and the space between them, in pieces. */
  readonly onElements: (text: string) => void;
}

export interface AroundList {
  /** The object with nothing in its list. What is wrong in it, but for its brackets, was not looked for. */
  readonly text: string;
  readonly elements: number;
  /** The largest of the numbers as they came; -1 where no element has one. */
  readonly largest: number;
}

const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Arrays and objects within one another, as in json-scan.ts. */
const depthMax = 999;
/** Characters that may stand around the list. */
const aroundCharsMax = 65_536;
/** Characters that may stand between the number's key and what follows its value. */
const gapCharsMax = 256;

const beginsValue = /^\s*:\s*$/;
const isKey = /^\s*:/;
const numberValue = /^(\s*:\s*)(\d{1,15})(\s*,?\s*)$/;

export class ListPieces {
  readonly #options: ListPiecesOptions;
  readonly #closers: number[] = [];
  readonly #strings = new StringEnds();
  #place: 'before' | 'within' | 'after' = 'before';
  #around = '';
  #elements = 0;
  #largest = -1;
  #broken = false;
  #inString = false;
  /** Text read so far of a string that may be one of the two keys; null for any other string. */
  #word: string | null = null;
  /** Text read so far between one of the two keys and the next mark; null elsewhere. */
  #gap: string | null = null;

  constructor(options: ListPiecesOptions) {
    this.#options = options;
  }

  feed(text: string): void {
    const marks = new NextMark(text);
    let at = 0;
    // Text before this offset was passed on, or is kept as the gap.
    let from = 0;
    while (at < text.length && !this.#broken) {
      if (this.#inString) {
        at = this.#readString(text, at);
        if (this.#holdsNumber) {
          this.#pass(text.slice(from, at));
          from = at;
        }
        continue;
      }
      const mark = marks.find(at);
      if (this.#gap !== null) this.#gap = this.#grown(this.#gap, text.slice(at, mark));
      if (mark === text.length) break;
      if (this.#holdsNumber) {
        this.#passNumber();
        from = mark;
      }
      from = this.#readMark(text, from, mark);
      at = mark + 1;
    }
    if (!this.#holdsNumber) this.#pass(text.slice(from));
  }

  /** @returns null where it is no such object */
  end(): AroundList | null {
    if (this.#broken || this.#place !== 'after' || this.#closers.length > 0) return null;
    return { text: this.#around, elements: this.#elements, largest: this.#largest };
  }

  /** The value of an element's number is kept back until all of it is here. */
  get #holdsNumber(): boolean {
    return this.#gap !== null && this.#place === 'within';
  }

  #pass(text: string): void {
    if (text === '') return;
    if (this.#place === 'within') {
      this.#options.onElements(text);
      return;
    }
    this.#around += text;
    if (this.#around.length > aroundCharsMax) this.#broken = true;
  }

  #readString(text: string, at: number): number {
    const end = this.#strings.find(text, at);
    this.#inString = this.#strings.goesOn;
    if (this.#word === null) return end;
    const key = `${this.#place === 'within' ? this.#options.numberKey : this.#options.listKey}"`;
    // One character more than the key has shows that it is another one.
    this.#word += text.slice(at, Math.min(end, at + key.length + 1 - this.#word.length));
    if (!this.#inString && this.#word === key) this.#gap = '';
    return end;
  }

  #grown(gap: string, text: string): string {
    if (gap.length + text.length > gapCharsMax) this.#broken = true;
    return gap + text;
  }

  #passNumber(): void {
    const gap = this.#gap ?? '';
    this.#gap = null;
    const found = numberValue.exec(gap);
    if (found !== null) {
      const [, before = '', digits = '', after = ''] = found;
      this.#largest = Math.max(this.#largest, Number(digits));
      this.#pass(`${before}${Number(digits) + this.#options.added}${after}`);
    } else if (isKey.test(gap)) this.#broken = true;
    else this.#pass(gap);
  }

  /** @returns the offset from which the text is passed on */
  #readMark(text: string, from: number, at: number): number {
    const code = text.charCodeAt(at);
    const opensList = this.#gap !== null && code === OPEN_BRACKET && beginsValue.test(this.#gap);
    this.#gap = null;
    if (code === QUOTE) this.#beginString();
    else if (code === OPEN_BRACE || code === OPEN_BRACKET) this.#open(code);
    else this.#close(code);
    if (opensList) {
      this.#pass(text.slice(from, at + 1));
      this.#place = 'within';
      return at + 1;
    }
    if (this.#place === 'within' && this.#closers.length === 1) {
      this.#pass(text.slice(from, at));
      this.#place = 'after';
      return at;
    }
    return from;
  }

  #beginString(): void {
    const depth = this.#closers.length;
    const isElement = this.#place === 'within' && depth === 2;
    if (depth === 0 || isElement) this.#broken = true;
    this.#inString = true;
    const mayBeKey = (this.#place === 'before' && depth === 1) || (this.#place === 'within' && depth === 3);
    this.#word = mayBeKey ? '' : null;
  }

  #open(code: number): void {
    const depth = this.#closers.length;
    if (depth >= depthMax) this.#broken = true;
    // The object is over, or is none.
    if (depth === 0 && (code !== OPEN_BRACE || this.#place === 'after')) this.#broken = true;
    if (this.#place === 'within' && depth === 2) {
      if (code !== OPEN_BRACE) this.#broken = true;
      this.#elements += 1;
    }
    this.#closers.push(code === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET);
  }

  #close(code: number): void {
    if (this.#closers.pop() !== code) this.#broken = true;
  }
}
