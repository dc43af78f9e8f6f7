/** Shared helpers for reading JSON that comes in pieces. Text is latin1, as in json-scan.ts. */

const BACKSLASH = 0x5c;

/** Finds where strings end that may go on in the next piece, one after the other. */
export class StringEnds {
  /** True if the string that `find` read last goes on in the next piece. */
  goesOn = false;
  /** True if a backslash at the end of this piece escapes the first character of the next piece. */
  #escaped = false;

  /** @returns the offset after the string that `from` stands in, or the end of the piece */
  find(text: string, from: number): number {
    let quote = text.indexOf('"', from);
    while (quote !== -1 && this.#isEscaped(text, from, quote)) quote = text.indexOf('"', quote + 1);
    this.goesOn = quote === -1;
    this.#escaped = quote === -1 && this.#isEscaped(text, from, text.length);
    return quote === -1 ? text.length : quote + 1;
  }

  /** True if an odd number of backslashes precedes `at`; `from` is where the string begins in this piece. */
  #isEscaped(text: string, from: number, at: number): boolean {
    let first = at;
    while (first > from && text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
    const carried = first === from && this.#escaped ? 1 : 0;
    return (at - first + carried) % 2 === 1;
  }
}

const marks = ['"', '[', ']', '{', '}'];

/** Finds quotes and brackets. Searching for each of them is many times faster than reading every character. */
export class NextMark {
  readonly #text: string;
  /** The place of the next one of each, as last searched for. */
  readonly #next = marks.map(() => -1);

  constructor(text: string) {
    this.#text = text;
  }

  /** @returns the place of the first one from `at` on, or the text's length; `at` never goes back */
  find(at: number): number {
    let nearest = this.#text.length;
    for (let index = 0; index < marks.length; index += 1) {
      let next = this.#next[index] ?? -1;
      if (next < at) {
        next = this.#text.indexOf(marks[index] ?? '', at);
        if (next === -1) next = this.#text.length;
        this.#next[index] = next;
      }
      if (next < nearest) nearest = next;
    }
    return nearest;
  }
}
