import { forEachElement, skipSpace } from '#base/json/json.ts';
import { type BodyReader, invalidValue } from './body-reader.ts';
import { countIds, type Unread } from './unread-bytes.ts';

/** A part of a list of inputs, by its offsets in the body. */
export interface InputPart extends Unread {
  readonly start: number;
  /** Offset after the last item. */
  readonly end: number;
  /** Index of the first item in the whole list. */
  readonly first: number;
  readonly count: number;
  /** Upper bound on the tokens of the longest item: bytes of a text with its quotes, or the number of token ids. */
  readonly longest: number;
}

/** A list of inputs that is sent in parts. */
export interface SplitInput {
  /** Member with the list. */
  readonly key: string;
  /** Offsets of the text between the brackets. */
  readonly start: number;
  readonly end: number;
  readonly parts: readonly InputPart[];
  /** The part with the largest token id: a model that knows this id knows all of them. Null for texts. */
  readonly largestId: InputPart | null;
  /** The first item of another kind than the items before it, with a message; null if all are alike. */
  readonly odd: OddInput | null;
}

export interface OddInput {
  readonly param: string;
  readonly message: string;
}

/**
 * Most items per part. Two parts of this size are the 256 sequences that vLLM runs at once by default: two of them keep
 * a replica busy, and other requests wait for no more than these.
 */
const partItemsMax = 128;
/**
 * About 65,000 tokens of English, which take a GPU about a second: other requests wait for a part no longer than that.
 */
const partBytesMax = 262_144;
/** Most bytes beside the list. They are sent with each part, and a body must not become many of its size. */
const besideBytesMax = 65_536;

/** Offsets of the items of a list. */
export interface ListItems {
  readonly starts: readonly number[];
  readonly ends: readonly number[];
}

/**
 * Finds the items of the list that opens at `at`. A list of numbers is one text, and counts as one item.
 * @param max the search ends after the first item beyond this number
 * @returns null for invalid JSON
 */
export function findItems(text: string, at: number, max: number): ListItems | null {
  const starts: number[] = [];
  const ends: number[] = [];
  const end = forEachElement(text, at, (itemStart, itemEnd) => {
    const isNumber = starts.length === 0 && /[-\d]/.test(text.charAt(itemStart));
    starts.push(itemStart);
    ends.push(itemEnd);
    return !isNumber && starts.length <= max;
  });
  return end === -1 ? null : { starts, ends };
}

type ItemKind = 'text' | 'tokens' | 'other';

const tokenList = /^\[[\s\d,]*\]$/;

function kindOf(text: string, start: number, end: number): ItemKind {
  const first = text.charAt(start);
  if (first === '"') return 'text';
  return first === '[' && tokenList.test(text.slice(start, end)) ? 'tokens' : 'other';
}

/** True for a list of token ids, judged by its first element. */
const mayBeTokens = (text: string, start: number): boolean =>
  text.charAt(start) === '[' && /[\d\]]/.test(text.charAt(skipSpace(text, start + 1)));

/** True for a list of texts or of lists of token ids; false for one chat or several. */
export function isListOfTexts(text: string, { starts }: ListItems): boolean {
  const [start] = starts;
  return start !== undefined && (text.charAt(start) === '"' || mayBeTokens(text, start));
}

/** True if a list is too long to be sent at once. */
export function isLong({ starts, ends }: ListItems): boolean {
  return starts.length > partItemsMax || (ends.at(-1) ?? 0) - (starts[0] ?? 0) > partBytesMax;
}

/**
 * Divides a list of texts, or of lists of token ids, into as many parts as needed, with about the same number of items.
 * @param at offset of the opening bracket
 * @returns null if one part is enough
 * @throws AppError invalid_value for an item that is neither, with the item in `param`, and for many bytes beside the
 * list
 */
export function splitInput({ text }: BodyReader, key: string, at: number, items: ListItems): SplitInput | null {
  const areTokens = text.charAt(items.starts[0] ?? 0) === '[';
  const sizes = items.starts.map((start, index) => {
    const end = items.ends[index] ?? start;
    return areTokens ? readIds(text, start, end) : { tokensMax: end - start, largestId: 0 };
  });
  const parts = cut(text, items, sizes);
  if (parts.length < 2) return null;
  const start = at + 1;
  const end = skipSpace(text, items.ends.at(-1) ?? at);
  requireLittleBeside(key, text.length - (end - start));
  const odd = findOdd(text, key, items);
  return { key, start, end, parts, largestId: areTokens ? findLargestId(parts, sizes) : null, odd };
}

interface ItemSize {
  readonly tokensMax: number;
  /** 0 for a text. */
  readonly largestId: number;
}

function findLargestId(parts: readonly InputPart[], sizes: readonly ItemSize[]): InputPart | null {
  const most = sizes.reduce((largest, { largestId }) => Math.max(largest, largestId), 0);
  const place = sizes.findIndex(({ largestId }) => largestId === most);
  return parts.find(({ first, count }) => first + count > place) ?? null;
}

const digitZero = 0x30;

/** Reads a list of whole numbers. */
function readIds(text: string, start: number, end: number): ItemSize {
  let tokensMax = 0;
  let largestId = 0;
  let number = -1;
  for (let at = start; at < end; at += 1) {
    const digit = text.charCodeAt(at) - digitZero;
    if (digit < 0 || digit > 9) {
      number = -1;
      continue;
    }
    if (number === -1) tokensMax += 1;
    number = Math.max(0, number) * 10 + digit;
    if (number > largestId) largestId = number;
  }
  return { tokensMax, largestId };
}

function requireLittleBeside(key: string, bytes: number): void {
  if (bytes <= besideBytesMax) return;
  const most = `with so many inputs, the other fields of the body may have at most ${besideBytesMax} bytes`;
  throw invalidValue(key, `"${key}": ${most}. Send fewer inputs at once, or shorten the other fields.`);
}

function cut(text: string, { starts, ends }: ListItems, sizes: readonly ItemSize[]): InputPart[] {
  const itemsMax = Math.ceil(starts.length / Math.ceil(starts.length / partItemsMax));
  const parts: InputPart[] = [];
  let first = 0;
  for (let next = 1; next <= starts.length; next += 1) {
    const start = starts[first] ?? 0;
    const isFull = next - first === itemsMax || (ends[next] ?? Infinity) - start > partBytesMax;
    if (!isFull) continue;
    const longest = sizes.slice(first, next).reduce((most, { tokensMax }) => Math.max(most, tokensMax), 0);
    const end = ends[next - 1] ?? start;
    parts.push({ start, end, first, count: next - first, longest, ...countIds(text, start, end) });
    first = next;
  }
  return parts;
}

function findOdd(text: string, key: string, { starts, ends }: ListItems): OddInput | null {
  const [start = 0] = starts;
  const expected = text.charAt(start) === '"' ? 'text' : 'tokens';
  let odd: OddInput | null = null;
  for (const [index, itemStart] of starts.entries()) {
    const kind = kindOf(text, itemStart, ends[index] ?? itemStart);
    const param = `${key}[${index}]`;
    if (kind === 'other') throw invalidValue(param, `"${param}" must be a string or a list of token ids.`);
    if (kind === expected || odd !== null) continue;
    const [what, others] = kind === 'text' ? ['a string', 'lists of token ids'] : ['a list of token ids', 'strings'];
    odd = {
      param,
      message: `"${param}" is ${what}, but the inputs before it are ${others}. Use one kind for all inputs.`,
    };
  }
  return odd;
}
