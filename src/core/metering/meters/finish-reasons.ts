import { NextMark, StringEnds } from '#base/json/json.ts';

const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;

/** Depth of the members of the answer, and of those of a choice. */
const answerDepth = 1;
const choiceDepth = 3;
/** Characters kept of a string: a longer one is neither a finish reason nor the name of one. */
const stringCharsMax = 64;
/** Characters kept of one object's own members. */
const ownCharsMax = 65_536;

const endsWithChoices = /"choices"\s*:\s*$/;

/**
 * Reads the finish reasons of an answer or a stream's chunk that comes in pieces, cut at any place: only those at
 * `choices[i].finish_reason`, because tool arguments and parsed objects may have members of the same name. Text is
 * latin1.
 */
export class FinishReasons {
  /** Reasons of all choices. Null and '' are none. */
  readonly found = new Set<string>();
  readonly #strings = new StringEnds();
  #inString = false;
  #depth = 0;
  #inChoices = false;
  /** Members of the open answer or choice, without nested values and long strings. */
  #own = '';
  /** The string being read; null for a string of a nested value. */
  #string: string | null = null;

  feed(text: string): void {
    const marks = new NextMark(text);
    let at = 0;
    while (at < text.length) {
      if (this.#inString) {
        const end = this.#strings.find(text, at);
        this.#inString = this.#strings.goesOn;
        this.#addString(text, at, end);
        at = end;
        continue;
      }
      const mark = marks.find(at);
      if (this.#isRead) this.#add(text.slice(at, mark));
      if (mark < text.length) this.#readMark(text.charCodeAt(mark));
      at = mark + 1;
    }
  }

  /** True if the engine aborted a choice, or reports an error as its reason. */
  get isBroken(): boolean {
    return this.found.has('abort') || this.found.has('error');
  }

  get #isRead(): boolean {
    return this.#depth === answerDepth || (this.#inChoices && this.#depth === choiceDepth);
  }

  #add(text: string): void {
    if (this.#own.length + text.length <= ownCharsMax) this.#own += text;
  }

  #addString(text: string, from: number, to: number): void {
    if (this.#string === null) return;
    this.#string += text.slice(from, Math.min(to, from + stringCharsMax + 1));
    if (!this.#inString) this.#add(this.#string.length > stringCharsMax ? '""' : `"${this.#string}`);
    else if (this.#string.length > stringCharsMax) this.#string = this.#string.slice(0, stringCharsMax + 1);
  }

  #readMark(code: number): void {
    if (code === QUOTE) {
      this.#inString = true;
      this.#string = this.#isRead ? '' : null;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) this.#open(code);
    else this.#close(code);
  }

  #open(code: number): void {
    if (this.#depth === answerDepth) this.#inChoices = code === OPEN_BRACKET && endsWithChoices.test(this.#own);
    if (this.#isRead) this.#add('null');
    this.#depth += 1;
    const opensChoice = this.#inChoices && this.#depth === choiceDepth && code === OPEN_BRACE;
    if (opensChoice || this.#depth === answerDepth) this.#own = '{';
  }

  #close(code: number): void {
    if (this.#inChoices && this.#depth === choiceDepth && code === CLOSE_BRACE) this.#noteReason(`${this.#own}}`);
    this.#depth -= 1;
    if (this.#depth === answerDepth) this.#own = '';
  }

  #noteReason(choice: string): void {
    try {
      const reason: unknown = Reflect.get(JSON.parse(choice) as object, 'finish_reason');
      if (typeof reason === 'string' && reason !== '') this.found.add(reason);
    } catch {
      // A choice that is not valid JSON has no reason. The readers of the answer reject it.
    }
  }
}

/** Reads the finish reasons of a whole text. */
export function finishReasonsOf(text: string): FinishReasons {
  const reasons = new FinishReasons();
  reasons.feed(text);
  return reasons;
}
