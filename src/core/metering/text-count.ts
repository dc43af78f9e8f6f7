import type { MadeText } from './usage-of.ts';

/**
 * Counts the tokens of a stream whose engine tells their number at its end alone. Each delta with text is one at least;
 * engines that guess tokens ahead, or gather them, bring many in one. Some engines bring text in no delta.
 */
export class TextCount {
  #deltas = 0;
  #chars = 0;
  readonly #elsewhere = new Map<string, number>();
  #charsElsewhere = 0;

  /** Takes a delta by the characters of its text; one without text is none. */
  add(chars: number): void {
    if (chars === 0) return;
    this.#deltas += 1;
    this.#chars += chars;
  }

  /**
   * Takes text that is no delta, and may be that of deltas again. Where it is longer than that of all deltas, the rest
   * of it is counted by its length, as that of a JSON answer.
   * @param place such texts of one place follow one another; those of different places are the same text
   */
  addElsewhere(place: string, chars: number): void {
    const all = (this.#elsewhere.get(place) ?? 0) + chars;
    this.#elsewhere.set(place, all);
    this.#charsElsewhere = Math.max(this.#charsElsewhere, all);
  }

  /** No text is made of fewer tokens: each delta with text has one. */
  get least(): number {
    return Math.max(this.#deltas, Math.min(1, this.#charsElsewhere));
  }

  /** What a hold is to pay for: by the length of the text as well, where its deltas are too long to be of one token. */
  get likely(): number {
    const rest = Math.max(0, this.#charsElsewhere - this.#chars);
    return Math.max(this.#deltas, Math.ceil(this.#chars / charsOfToken)) + Math.ceil(rest / textBytesOfToken);
  }

  /** Some engines cut tokens into several deltas: their own count stands where the text may have so few tokens. */
  get made(): MadeText {
    const chars = Math.max(this.#chars, this.#charsElsewhere);
    return { tokens: this.likely, leastTokens: Math.min(this.least, Math.ceil(chars / charsOfToken)) };
  }
}

/** Bytes of text that make a token, as prompts are estimated: of a JSON answer no deltas tell more. */
const textBytesOfToken = 4;
/** Bytes of a large answer that make a token: it has log probabilities, which take about so much for each. */
export const largeBytesOfToken = 1024;

/** Counts the text of a complete JSON answer by its length: an engine that counted any token of it is believed. */
export function textOfLength(bytes: number, bytesOfToken = textBytesOfToken): MadeText {
  return { tokens: Math.ceil(bytes / bytesOfToken), leastTokens: Math.min(1, bytes) };
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

const chunkCharsMax = 1_048_576;
/** Names of members in an answer whose strings the model has not made. */
const unmade: ReadonlySet<string> = new Set([
  'role',
  'type',
  'id',
  'call_id',
  'item_id',
  'status',
  'signature',
  'encrypted_content',
  'logprobs',
  'annotations',
  // What tools returned.
  'output',
  'outputs',
  'result',
  'results',
  'tools',
  'sources',
]);
/** Deeper than the arguments of a tool call stand. */
const deltaDepthMax = 8;

/** Characters of the text of a choice. */
export interface ChoiceText {
  /** Of its `text`, or of all that stands in its `delta`, be it content, reasoning or the call of a tool. */
  readonly deltaChars: number;
  /** Of the `message` that some engines have in the place of the delta; 0 beside one with text, which it repeats. */
  readonly messageChars: number;
}

/**
 * Reads the text of each choice in a chunk of chat or text completions.
 * @param json a chunk; what is none has no text
 * @param choicesMax choices from that index on were not asked for
 */
export function choiceTexts(json: string, choicesMax: number): readonly ChoiceText[] {
  // A picture, or an engine that answers in one piece: nobody waits until it is parsed.
  if (json.length > chunkCharsMax) return [{ deltaChars: json.length, messageChars: 0 }];
  const { choices } = parseChunk(json);
  if (!Array.isArray(choices)) return [];
  return choices
    .filter((choice) => choicesMax === 1 || !(Number(memberOf(choice, 'index')) >= choicesMax))
    .map((choice) => {
      const deltaChars = madeChars(memberOf(choice, 'text')) + madeChars(memberOf(choice, 'delta'));
      return { deltaChars, messageChars: deltaChars > 0 ? 0 : madeChars(memberOf(choice, 'message')) };
    });
}

/**
 * Bytes of all that the model made in a JSON value; of one above 1 MiB a part of its length.
 * @param json as latin1; what is none has no text
 */
export function madeBytes(json: string): number {
  return json.length > chunkCharsMax ? textBytesOfLarge(json) : madeChars(parseChunk(json));
}

/** Nobody waits until it is parsed. */
const textBytesOfLarge = (json: string): number => Math.ceil((json.length * textBytesOfToken) / largeBytesOfToken);

/** The member of a JSON answer that has what the model made. */
export type MadeMember = 'choices' | 'output' | 'content';

/**
 * Bytes of the text of a complete JSON answer: of each choice's `text` and `message`, of the items of a response, of the
 * blocks of a message.
 * @param json as latin1
 */
export function answerBytes(json: string, name: MadeMember): number {
  if (json.length > chunkCharsMax) return textBytesOfLarge(json);
  const made = memberOf(parseChunk(json), name);
  if (name !== 'choices') return madeChars(made);
  const choices: readonly unknown[] = Array.isArray(made) ? made : [];
  return choices.reduce<number>(
    (sum, choice) => sum + madeChars(memberOf(choice, 'text')) + madeChars(memberOf(choice, 'message')),
    0,
  );
}

function parseChunk(json: string): { readonly choices?: unknown } {
  try {
    return (JSON.parse(json) as { readonly choices?: unknown } | null) ?? {};
  } catch {
    return {};
  }
}

const memberOf = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;

function madeChars(value: unknown, depth = 0): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null || depth > deltaDepthMax) return 0;
  const made = Object.entries(value).filter(([name]) => !unmade.has(name));
  return made.reduce((sum, [, member]) => sum + madeChars(member, depth + 1), 0);
}
