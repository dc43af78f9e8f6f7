/**
 * A tokenizer of the stand-in's own: words with their leading space, digits by three, single marks; a character
 * beyond the alphabets costs two tokens and one outside the basic plane three, and its text appears with the last of
 * them, as with the byte tokens of a real vocabulary.
 */

const LETTER = 1;
const DIGIT = 2;
const SPACE = 3;
const OTHER = 0;
const WORD_CHARS_MAX = 16;

const CLASSES = new Uint8Array(0x800);
for (let code = 0; code < 0x800; code += 1) {
  const char = String.fromCharCode(code);
  if (/\p{L}|\p{M}/u.test(char)) CLASSES[code] = LETTER;
  else if (code >= 48 && code <= 57) CLASSES[code] = DIGIT;
  else if (code === 32) CLASSES[code] = SPACE;
}

function classAt(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code < 0x800 ? (CLASSES[code] ?? OTHER) : OTHER;
}

function runEnd(text: string, from: number, kind: number, charsMax: number): number {
  const stop = Math.min(text.length, from + charsMax);
  let at = from;
  while (at < stop && classAt(text, at) === kind) at += 1;
  return at;
}

/** End of the unit that starts with a space: a word or mark takes one space along. */
function spacedEnd(text: string, at: number): number {
  const next = at + 1;
  if (next >= text.length) return next;
  const kind = classAt(text, next);
  if (kind === LETTER) return runEnd(text, next, LETTER, WORD_CHARS_MAX);
  if (kind === SPACE) {
    const end = runEnd(text, next, SPACE, WORD_CHARS_MAX);
    return end < text.length && classAt(text, end) === LETTER ? end - 1 : end;
  }
  const code = text.charCodeAt(next);
  return kind === OTHER && code > 32 && code < 127 ? next + 1 : next;
}

/** End of the unit that starts at `at`. */
function unitEnd(text: string, at: number): number {
  const kind = classAt(text, at);
  if (kind === LETTER) return runEnd(text, at, LETTER, WORD_CHARS_MAX);
  if (kind === DIGIT) return runEnd(text, at, DIGIT, 3);
  if (kind === SPACE) return spacedEnd(text, at);
  const isPair = (text.codePointAt(at) ?? 0) > 0xffff;
  return isPair ? at + 2 : at + 1;
}

/** Tokens that a unit costs. */
function unitCost(text: string, start: number, end: number): number {
  const code = text.charCodeAt(start);
  if (code < 0x800) return 1;
  return end - start === 2 ? 3 : 2;
}

/** Splits text into tokens. A token that completes no character is the empty string. */
export function splitTokens(text: string): string[] {
  const tokens: string[] = [];
  for (let at = 0; at < text.length;) {
    const end = unitEnd(text, at);
    for (let cost = unitCost(text, at, end); cost > 1; cost -= 1) tokens.push('');
    tokens.push(text.slice(at, end));
    at = end;
  }
  return tokens;
}

const FNV_PRIME = 16_777_619;

/** 32-bit hash of a text, the start of every deterministic choice. */
export function hashText(text: string, seed = 2_166_136_261): number {
  let hash = seed;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), FNV_PRIME);
  return hash >>> 0;
}

/** Facts about a prompt that are kept without its text. */
export interface PromptScan {
  count: number;
  hash: number;
  /** One 53-bit hash per full block, each of the whole prompt up to that block's end. */
  blocks: number[];
}

/** Where the reading of a prompt stands. */
interface ScanState {
  count: number;
  hash: number;
  second: number;
  blockEnd: number;
  blockSize: number;
  blocks: number[];
}

function mark(state: ScanState): void {
  state.blockEnd += state.blockSize;
  state.blocks.push((state.hash >>> 0) * 2_097_152 + ((state.second >>> 0) & 0x1f_ffff));
}

/**
 * Reads on through a text. Units end where `unitEnd` says, but words are walked here: every character of every
 * prompt passes this loop.
 */
function scan(state: ScanState, text: string): void {
  let { hash, second, count } = state;
  const { length } = text;
  for (let at = 0; at < length;) {
    const start = at;
    let code = text.charCodeAt(at);
    if (code === 32 && at + 1 < length) {
      const next = text.charCodeAt(at + 1);
      if (next < 0x800 && CLASSES[next] === LETTER) {
        hash = Math.imul(hash ^ 32, FNV_PRIME);
        at += 1;
        code = next;
      }
    }
    if (code < 0x800 && CLASSES[code] === LETTER) {
      const stop = Math.min(length, at + WORD_CHARS_MAX);
      do {
        hash = Math.imul(hash ^ code, FNV_PRIME);
        at += 1;
        code = at < stop ? text.charCodeAt(at) : 0x800;
      } while (code < 0x800 && CLASSES[code] === LETTER);
      count += 1;
    } else {
      const end = unitEnd(text, at);
      count += unitCost(text, at, end);
      for (; at < end; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), FNV_PRIME);
    }
    second = Math.imul(second ^ hash ^ (at - start), 0x5bd1_e995) + 0x1656_67b1;
    if (count < state.blockEnd) continue;
    state.hash = hash;
    state.second = second;
    mark(state);
  }
  state.hash = hash;
  state.second = second;
  state.count = count;
}

/** Reads a prompt piece by piece, counts its tokens and hashes it block by block for the prefix cache. */
export function createPromptScanner(blockSize: number): {
  text: (text: string) => void;
  special: (id: number) => void;
  result: () => PromptScan;
} {
  const state: ScanState = {
    count: 0,
    hash: 2_166_136_261,
    second: 40_389,
    blockEnd: blockSize,
    blockSize,
    blocks: [],
  };
  return {
    text: (text) => scan(state, text),
    special(id) {
      state.hash = Math.imul(state.hash ^ (id + 0x1_0000), FNV_PRIME);
      state.count += 1;
      if (state.count >= state.blockEnd) mark(state);
    },
    result: () => ({ count: state.count, hash: state.hash >>> 0, blocks: state.blocks }),
  };
}

const IDS_KEPT_MAX = 200_000;
const textOfId = new Map<number, string>();

/** Number of a token: a 24-bit hash of its text; `step` numbers the parts of one character. */
export function tokenId(text: string, step = 0): number {
  const id = 256 + (hashText(text, 2_166_136_261 ^ step) >>> 8);
  if (textOfId.size < IDS_KEPT_MAX && !textOfId.has(id)) textOfId.set(id, step === 0 ? text : '');
  return id;
}

/** Ids of a text's tokens. */
export function encode(text: string): number[] {
  const tokens = splitTokens(text);
  const ids: number[] = [];
  for (let at = 0; at < tokens.length; at += 1) {
    let end = at;
    while (tokens[end] === '' && end + 1 < tokens.length) end += 1;
    for (let step = end - at; step >= 0; step -= 1) ids.push(tokenId(tokens[end] ?? '', step));
    at = end;
  }
  return ids;
}

const WORDS = 'water river gate stone light slow under over turn race mill weir bank still bright old'.split(' ');

/** Text of token ids: those that this process has handed out come back exactly, any other becomes some word. */
export function decode(ids: readonly number[]): string {
  let text = '';
  for (const id of ids) text += textOfId.get(id) ?? ` ${WORDS[Math.abs(Math.trunc(id)) % WORDS.length] ?? ''}`;
  return text;
}
