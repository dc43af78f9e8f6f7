import type { MadeText } from './usage-of.ts';

/**
 * Counts the tokens of a stream whose engine counts only in its last chunk. Each delta with text is at least one
 * token; engines that guess tokens ahead, or gather them, send many in one delta. Some engines send text in no delta.
 */
export class TextCount {
  #deltas = 0;
  #chars = 0;
  readonly #elsewhere = new Map<string, number>();
  #charsElsewhere = 0;

  /** Adds a delta with this number of characters; a delta without text counts nothing. */
  add(chars: number): void {
    if (chars === 0) return;
    this.#deltas += 1;
    this.#chars += chars;
  }

  /**
   * Adds text outside deltas, which may repeat the text of deltas. If it is longer than the text of all deltas, the
   * rest is counted by its length, as in a JSON answer.
   * @param place texts of one place follow one another; texts of different places are the same text
   */
  addElsewhere(place: string, chars: number): void {
    const all = (this.#elsewhere.get(place) ?? 0) + chars;
    this.#elsewhere.set(place, all);
    this.#charsElsewhere = Math.max(this.#charsElsewhere, all);
  }

  /** Least number of tokens of the text: each delta with text has one. */
  get least(): number {
    return Math.max(this.#deltas, Math.min(1, this.#charsElsewhere));
  }

  /**
   * Tokens that a hold shall pay for: also by the length of the text, if its deltas are too long for one token each.
   */
  get likely(): number {
    const rest = Math.max(0, this.#charsElsewhere - this.#chars);
    return Math.max(this.#deltas, Math.ceil(this.#chars / charsOfToken)) + Math.ceil(rest / textBytesOfToken);
  }

  /**
   * Likely and least tokens. Some engines split tokens into several deltas: their own count is used if the text may
   * have so few.
   */
  get made(): MadeText {
    const chars = Math.max(this.#chars, this.#charsElsewhere);
    return { tokens: this.likely, leastTokens: Math.min(this.least, Math.ceil(chars / charsOfToken)) };
  }
}

/** Bytes of text per token, as in the estimate of prompts, for JSON answers, which have no deltas. */
const textBytesOfToken = 4;
/** Bytes per token of a large answer: it has log probabilities, which take about this many bytes for each. */
export const largeBytesOfToken = 1024;

/** Counts the text of a complete JSON answer by its length: an engine that counted any token of it is believed. */
export function textOfLength(bytes: number, bytesOfToken = textBytesOfToken): MadeText {
  return { tokens: Math.ceil(bytes / bytesOfToken), leastTokens: Math.min(1, bytes) };
}

/**
 * Characters per token, more than prose and code have on average, so that no stream is ended for tokens that were not
 * generated. Large vocabularies have 4 to 7 in most languages, up to 11 in formal English, and up to 7 in code with
 * deep indentation.
 */
const charsOfToken = 16;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;

/**
 * Returns the characters of the string that begins with the quote at `open`, an escaped one as one; 0 if it has no end.
 */
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
/** Names of members in an answer whose strings the model has not generated. */
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
  // Results of tools.
  'output',
  'outputs',
  'result',
  'results',
  'tools',
  'sources',
]);
/** Members that hold the arguments of a tool call, whose names the client chose: the model generated all of it. */
const argumentMembers: ReadonlySet<string> = new Set(['input', 'arguments']);
/** Depth limit, deeper than the arguments of a tool call. */
const deltaDepthMax = 8;

/** Number of characters in the text of a choice. */
export interface ChoiceText {
  /** Characters of its `text`, or of everything in its `delta`: content, reasoning or a tool call. */
  readonly deltaChars: number;
  /**
   * Characters of the `message` that some engines send instead of the delta; 0 beside a delta with text, which it
   * repeats.
   */
  readonly messageChars: number;
}

const isBeyond = (index: unknown, choicesMax: number): boolean => typeof index === 'number' && index >= choicesMax;

/**
 * Reads the text of each choice in a chunk of chat or text completions.
 * @param json a chunk; invalid JSON has no text
 * @param choicesMax number of requested choices; later indexes are ignored
 */
export function choiceTexts(json: string, choicesMax: number): readonly ChoiceText[] {
  // A picture, or an engine that answers in one piece: parsing would take too long.
  if (json.length > chunkCharsMax) return [{ deltaChars: json.length, messageChars: 0 }];
  const { choices } = parseChunk(json);
  if (!Array.isArray(choices)) return [];
  return choices
    .filter((choice) => choicesMax === 1 || !isBeyond(memberOf(choice, 'index'), choicesMax))
    .map((choice) => {
      const deltaChars = madeChars(memberOf(choice, 'text')) + madeChars(memberOf(choice, 'delta'));
      return { deltaChars, messageChars: deltaChars > 0 ? 0 : madeChars(memberOf(choice, 'message')) };
    });
}

/**
 * Returns the bytes of everything that the model generated in a JSON value; for a value above 1 MiB, a part of its
 * length.
 * @param json as latin1; invalid JSON has no text
 */
export function madeBytes(json: string): number {
  return json.length > chunkCharsMax ? textBytesOfLarge(json) : madeChars(parseChunk(json));
}

/** Estimates the bytes by length: parsing would take too long. */
const textBytesOfLarge = (json: string): number => Math.ceil((json.length * textBytesOfToken) / largeBytesOfToken);

/** The member of a JSON answer that contains the generated text. */
export type MadeMember = 'choices' | 'output' | 'content';

/**
 * Returns the bytes of the text of a complete JSON answer: of each choice's `text` and `message`, of the items of a
 * response, of the blocks of a message.
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

function madeChars(value: unknown, depth = 0, isArguments = false): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null || depth > deltaDepthMax) return 0;
  const made = Object.entries(value).filter(([name]) => isArguments || !unmade.has(name));
  return made.reduce(
    (sum, [name, member]) => sum + madeChars(member, depth + 1, isArguments || argumentMembers.has(name)),
    0,
  );
}
