/**
 * Counts the tokens of a stream whose engine tells their number at its end alone. Each event with text is one at least;
 * engines that guess tokens ahead, or gather them, bring many in one.
 */
export class TextCount {
  /** No text is made of fewer tokens: each event with text has one. */
  least = 0;
  #chars = 0;

  /** Takes an event with text, by the characters of that. */
  add(chars: number): void {
    this.least += 1;
    this.#chars += chars;
  }

  /** What a hold is to pay for: by the length of the text as well, where its events are too long to be of one token. */
  get likely(): number {
    return Math.max(this.least, Math.ceil(this.#chars / charsOfToken));
  }
}

/**
 * More than the tokens of prose and of code have in the mean: a stream is not ended for tokens that were not made. Large
 * vocabularies have 4 to 7 in most languages, up to 11 in formal English, and up to 7 in code that is deeply indented.
 */
const charsOfToken = 16;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;

/** Characters of the string that begins with the quote at `open`, an escaped one as one; 0 where it does not end. */
export function writtenChars(text: string, open: number, end: number): number {
  let chars = 0;
  for (let at = open + 1; at < end; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return chars;
    if (code === BACKSLASH) at += text.charCodeAt(at + 1) === LETTER_U ? 5 : 1;
    chars += 1;
  }
  return 0;
}
