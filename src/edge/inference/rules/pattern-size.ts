/**
 * Size of the grammar that an engine builds from a regular expression. xgrammar writes counts out (`a{0,300}` becomes
 * 300 states) and searches the vocabulary for each state: broad classes keep most tokens in play, letters some, all
 * others nearly none. If pieces that are written out can share a text in many ways, the ways multiply: in
 * `([a-z]{0,30}){0,30}`, 19 characters, they took five minutes of one core.
 */

/** One piece of an expression. */
interface Piece {
  /** Weight of the matched characters, by how many tokens they keep in play. */
  readonly weight: number;
  /** Characters and classes, with counts written out. */
  readonly states: number;
  /** Share of the grammar, by weight: pieces that counts write out, and pieces that stand there once. */
  readonly size: number;
  /** The pattern can match the empty text. */
  readonly empty: boolean;
  /** The length of a match is not fixed. */
  readonly varies: boolean;
}

const broad = 1;
const letters = 0.15;
const narrow = 0.02;
/** Most pieces that the counts of one pattern may write out. The time to read the grammar grows with their square. */
const statesMax = 1000;
/** Largest count that xgrammar builds. Beyond it, vLLM 0.29 answers 500, as if the replica were broken. */
const countMax = 128;
/** Factor for a count around a piece of varying length. */
const variesFactor = 8;

const nothing: Piece = { weight: 0, states: 0, size: 0, empty: true, varies: false };
const single = (weight: number): Piece => ({ weight, states: 1, size: weight, empty: false, varies: false });

/** Joins two pieces, one after the other. */
function follow(one: Piece, other: Piece): Piece {
  return {
    weight: one.weight + other.weight,
    states: one.states + other.states,
    size: one.size + other.size,
    empty: one.empty && other.empty,
    varies: one.varies || other.varies,
  };
}

/** Joins two alternatives. */
function choose(one: Piece, other: Piece): Piece {
  return { ...follow(one, other), empty: one.empty || other.empty, varies: true };
}

interface Count {
  readonly min: number;
  /** Infinity without a bound. */
  readonly max: number;
}

const quantifier = /(?:[*+?]|\{(\d*)(?:(,)(\d*))?\})[?+]?/y;

/** Reads the count at an offset. Returns the count and the offset after it; null if there is no count. */
function readCount(pattern: string, at: number): (Count & { readonly end: number }) | null {
  quantifier.lastIndex = at;
  const found = quantifier.exec(pattern);
  if (found === null) return null;
  const end = quantifier.lastIndex;
  const [whole, min = '', comma, max = ''] = found;
  if (whole.startsWith('*')) return { min: 0, max: Number.POSITIVE_INFINITY, end };
  if (whole.startsWith('+')) return { min: 1, max: Number.POSITIVE_INFINITY, end };
  if (whole.startsWith('?')) return { min: 0, max: 1, end };
  if (min === '' && max === '') return null;
  const least = Number(min);
  if (comma === undefined) return { min: least, max: least, end };
  return { min: least, max: max === '' ? Number.POSITIVE_INFINITY : Number(max), end };
}

function repeat(piece: Piece, { min, max }: Count): Piece {
  const varies = piece.varies || min !== max;
  const empty = piece.empty || min === 0;
  const times = Number.isFinite(max) ? Math.max(min, max) : Math.max(1, min);
  if (times <= 1) return { ...piece, empty, varies };
  const weight = piece.weight * times;
  const states = piece.states * times;
  const isEndless = piece.empty || times > countMax || states > statesMax;
  const size = isEndless ? Number.POSITIVE_INFINITY : weight * (piece.varies ? variesFactor : 1);
  return { weight, states, size, empty, varies };
}

const broadEscapes = new Set('SDWPX');
const letterEscapes = new Set('wp');

function escapeWeight(escaped: string): number {
  if (broadEscapes.has(escaped)) return broad;
  return letterEscapes.has(escaped) ? letters : narrow;
}

/** Reads a class. Returns its weight and the offset after it. */
function readClass(pattern: string, at: number): { readonly weight: number; readonly end: number } {
  let end = at + 1;
  let weight = narrow;
  if (pattern[end] === '^') {
    weight = broad;
    end += 1;
  }
  for (let first = true; end < pattern.length && (first || pattern[end] !== ']'); first = false) {
    const isEscape = pattern[end] === '\\';
    if (isEscape) weight = Math.max(weight, escapeWeight(pattern[end + 1] ?? ''));
    const low = pattern.charCodeAt(end + (isEscape ? 1 : 0));
    end += isEscape ? 2 : 1;
    if (pattern[end] !== '-' || pattern[end + 1] === ']') continue;
    weight = Math.max(weight, rangeWeight(low, pattern.charCodeAt(end + 1)));
  }
  return { weight, end: end + 1 };
}

/** Returns the weight of a range of characters. A range that ends with an escape cannot be judged here and is broad. */
function rangeWeight(low: number, high: number): number {
  if (!(high >= low)) return narrow;
  const backslash = 0x5c;
  if (low > 0x7e || high > 0x7e || high === backslash) return broad;
  if (high - low > 60) return broad;
  return high - low > 12 ? letters : narrow;
}

interface Group {
  /** Alternatives before the running one; null without any. */
  readonly before: Piece | null;
  readonly running: Piece;
  readonly isLookaround: boolean;
}

const groupStart = /\((?:\?(?:[:>|]|<?[=!]|P?<[^>]{0,64}>|[a-z-]{1,8}:))?/y;

function openGroup(start: string): Group {
  return { before: null, running: nothing, isLookaround: /[=!]$/.test(start) };
}

function alternative({ before, running }: Group): Piece {
  return before === null ? running : choose(before, running);
}

function closeGroup(group: Group): Piece {
  const piece = alternative(group);
  return group.isLookaround ? { ...piece, empty: true } : piece;
}

/** Anchors, which match a place and no character. */
const anchors = new Set('^$');
const escapedAnchors = new Set('bBAzZG');

/** Reads a pattern from its beginning to its end. */
class PatternReader {
  readonly #pattern: string;
  readonly #outer: Group[] = [];
  #group = openGroup('');
  #at = 0;
  /** Number of pieces that may take a text from each other, by their weight. */
  #rivals = 0;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  read(): number {
    while (this.#at < this.#pattern.length) {
      const char = this.#pattern.charAt(this.#at);
      if (char === '(') this.#open();
      else if (char === '|') this.#alternate();
      else if (char === ')' && this.#outer.length === 0) return Number.POSITIVE_INFINITY;
      else this.#add(char === ')' ? this.#close() : this.#atom());
    }
    if (this.#outer.length > 0) return Number.POSITIVE_INFINITY;
    return closeGroup(this.#group).size * Math.max(1, this.#rivals);
  }

  #open(): void {
    groupStart.lastIndex = this.#at;
    const start = groupStart.exec(this.#pattern)?.[0] ?? '(';
    this.#outer.push(this.#group);
    this.#group = openGroup(start);
    this.#at += start.length;
  }

  #alternate(): void {
    this.#group = { ...this.#group, before: alternative(this.#group), running: nothing };
    this.#at += 1;
  }

  #close(): Piece {
    const piece = closeGroup(this.#group);
    this.#group = this.#outer.pop() ?? this.#group;
    this.#at += 1;
    return piece;
  }

  #atom(): Piece {
    const char = this.#pattern.charAt(this.#at);
    if (char === '[') {
      const { weight, end } = readClass(this.#pattern, this.#at);
      this.#at = end;
      return single(weight);
    }
    if (char === '\\') {
      const escaped = this.#pattern.charAt(this.#at + 1);
      this.#at += 2;
      return escapedAnchors.has(escaped) ? nothing : single(escapeWeight(escaped));
    }
    this.#at += 1;
    if (anchors.has(char)) return nothing;
    return single(char === '.' ? broad : narrow);
  }

  /** Adds a piece after the others, with the count that follows it. */
  #add(piece: Piece): void {
    const found = readCount(this.#pattern, this.#at);
    if (found !== null) this.#at = found.end;
    const counted = found === null ? piece : repeat(piece, found);
    if (found !== null && found.min !== found.max && Number.isFinite(found.max)) {
      this.#rivals += Math.min(1, piece.weight);
    }
    this.#group = { ...this.#group, running: follow(this.#group.running, counted) };
  }
}

/**
 * Measures a pattern with its counts written out: 1 for a broad class (`.`, `[^x]`), 0.15 for letters, 0.02 for
 * anything else; eight times as much if a counted piece varies in length itself; times the broad pieces of varying
 * counts. A piece that is repeated in the text costs as much as a counted one: `[^a]`, 5,000 times in 20 KB, took 26
 * seconds.
 * @returns Infinity if a counted piece may be empty, for counts above 128, for more than 1000 pieces, and for brackets
 * that do not match
 */
export function patternSize(pattern: string): number {
  return new PatternReader(pattern).read();
}
