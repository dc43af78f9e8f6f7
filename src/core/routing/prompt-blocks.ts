import type { BodyText } from '#base/body-text.ts';

/**
 * A prompt as a chain of block hashes, made from the request's own bytes: two requests whose chains begin alike begin
 * alike themselves, and so do the prompts that an engine makes of them. vLLM keys its prefix cache the same way
 * (a block's hash covers its parent's, docs/design/prefix_caching.md), over token ids that only the engine knows.
 */

/** A range of a request's text, by offsets. */
export interface TextSpan {
  readonly start: number;
  readonly end: number;
}

/** Where a request's prompt stands in its bytes. */
export interface PromptText {
  readonly text: BodyText;
  /** Who shares a prefix cache: prompts of different scopes share nothing, however alike they are. */
  readonly scope: string;
  /**
   * What the chat template sets before the messages or turns it by (tools, template arguments, a cache salt). Requests
   * that differ in it share no prefix, those that have it in common share it before any message.
   */
  readonly context: readonly TextSpan[];
  readonly prompt: TextSpan;
}

/** About 128 tokens of English: a shared system prompt of a few sentences fills one, and 64 KB are only 128 of them. */
const blockBytes = 512;
/**
 * What is longer is known by its beginning. 64 KB are about 16,000 tokens and cost about 40 µs; where two prompts are
 * alike for that long, the replica that has the one is the right place for the other.
 */
const hashedBytesMax = 65_536;

const wordsPerBlock = blockBytes / 4;
const scratch = Buffer.alloc(hashedBytesMax);
const words = new Int32Array(scratch.buffer, scratch.byteOffset, hashedBytesMax / 4);

/** MurmurHash3's 32-bit body (Appleby, public domain) over one block of the scratch space, going on from `parent`. */
function hashBlock(parent: number, block: number): number {
  let hash = parent;
  const end = (block + 1) * wordsPerBlock;
  for (let at = block * wordsPerBlock; at < end; at += 1) {
    let word = Math.imul(words[at] ?? 0, 0xcc9e2d51);
    word = (word << 15) | (word >>> 17);
    hash ^= Math.imul(word, 0x1b873593);
    hash = (hash << 13) | (hash >>> 19);
    hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
  }
  return finish(hash);
}

function finish(hash: number): number {
  let mixed = hash ^ (hash >>> 16);
  mixed = Math.imul(mixed, 0x85ebca6b);
  mixed ^= mixed >>> 13;
  mixed = Math.imul(mixed, 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}

function hashScope(scope: string): number {
  let hash = 1;
  for (let at = 0; at < scope.length; at += 1) hash = finish(Math.imul(hash, 31) + scope.charCodeAt(at));
  return hash;
}

/** Writes a span at an offset of the scratch space, as much of it as fits; returns the offset after it. */
function write(text: BodyText, { start, end }: TextSpan, at: number): number {
  const fitting = Math.min(end, start + hashedBytesMax - at);
  return fitting <= start ? at : at + scratch.write(text.slice(start, fitting), at, 'latin1');
}

/** Fills the block up in which an offset stands; returns the offset of the next one. */
function fillBlock(at: number): number {
  const filled = Math.ceil(at / blockBytes) * blockBytes;
  scratch.fill(0, at, filled);
  return filled;
}

/**
 * The chain of a prompt's full blocks, up to 64 KB of it; the rest, which grows or changes with the next turn, is left
 * out. Context that fills blocks counts as they do, with its last one filled up, so that a message stands at the same
 * place in its block whatever comes before it; a short one only makes another chain.
 * 32 bits without a secret are enough: a false likeness, prepared or not, sends a request to a replica that is as good as
 * another, and every gateway must make the same chain.
 */
export function hashPrompt({ text, scope, context, prompt }: PromptText): Int32Array {
  let bytes = 0;
  let hash = hashScope(scope);
  for (const span of context) {
    const filled = fillBlock(write(text, span, bytes));
    if (filled - bytes === blockBytes) hash = hashBlock(hash, bytes / blockBytes);
    else bytes = filled;
  }
  bytes = write(text, prompt, bytes);
  const chain = new Int32Array(Math.floor(bytes / blockBytes));
  for (let block = 0; block < chain.length; block += 1) {
    hash = hashBlock(hash, block);
    chain[block] = hash;
  }
  return chain;
}
