/**
 * Counts the tokens of a stream whose engine tells their number at its end alone. Each event with text is one at least;
 * engines that guess tokens ahead, or gather them, bring many in one.
 */
export class TextCount {
  /** No text is made of fewer tokens: each event with text has one. */
  least = 0;
  #bytes = 0;

  /** Takes an event with text, by the bytes of that. */
  add(bytes: number): void {
    this.least += 1;
    this.#bytes += bytes;
  }

  /** What a hold is to pay for: by the length of the text as well, where its events are too long to be of one token. */
  get likely(): number {
    return Math.max(this.least, Math.ceil(this.#bytes / bytesOfToken));
  }
}

/** More than the tokens of a text have in the mean, in any language: what comes token by token is never counted as more. */
const bytesOfToken = 6;

/** Length of the string that begins with the quote at `open`, as it is written; 0 where there is none. */
export function writtenLength(text: string, open: number, end: number): number {
  for (let close = text.indexOf('"', open + 1); close !== -1 && close < end; close = text.indexOf('"', close + 1)) {
    let escapes = 0;
    while (text[close - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return close - open - 1;
  }
  return 0;
}
