import type { BodyText } from '#base/json/json.ts';

/**
 * Hashes a prompt as a chain of blocks, from the request's own bytes. Two requests whose chains have the same beginning
 * have the same beginning themselves, and so do the prompts that an engine makes of them. vLLM keys its prefix cache
 * the same way (a block's hash covers its parent's, docs/design/prefix_caching.md), over token ids that only the engine
 * knows.
 */

/** A range of a request's text, by offsets. */
export interface TextSpan {
  readonly start: number;
  readonly end: number;
}

/** Position of the prompt in a request's bytes. */
export interface PromptText {
  readonly text: BodyText;
  /** Name of the prefix cache's users: prompts of different scopes never share blocks, even if they are equal. */
  readonly scope: string;
  /**
   * Parts that the chat template puts before the messages, or that change the template (tools, template arguments, a
   * cache salt). Requests with different context share no prefix; requests with equal context share it before any
   * message.
   */
  readonly context: readonly TextSpan[];
  readonly prompt: TextSpan;
}

/**
 * About 128 tokens of English: a shared system prompt of a few sentences fills one block, and 64 KB are only 128
 * blocks.
 */
const blockBytes = 512;
/**
 * Maximum bytes hashed; longer prompts are identified by their beginning. 64 KB are about 16,000 tokens and take about
 * 40 µs. If two prompts are equal for this length, the replica that has one is the right replica for the other.
 */
const hashedBytesMax = 65_536;

const wordsPerBlock = blockBytes / 4;
const scratch = Buffer.alloc(hashedBytesMax);
const words = new Int32Array(scratch.buffer, scratch.byteOffset, hashedBytesMax / 4);

/**
 * Hashes one block of the scratch buffer with MurmurHash3's 32-bit body (Appleby, public domain), starting from
 * `parent`.
 */
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

/** Writes a span to the scratch buffer at an offset, as much as fits; returns the offset after the span. */
function write(text: BodyText, { start, end }: TextSpan, at: number): number {
  const fitting = Math.min(end, start + hashedBytesMax - at);
  return fitting <= start ? at : at + scratch.write(text.slice(start, fitting), at, 'latin1');
}

/** Pads the block at an offset with zeros; returns the offset of the next block. */
function fillBlock(at: number): number {
  const filled = Math.ceil(at / blockBytes) * blockBytes;
  scratch.fill(0, at, filled);
  return filled;
}

/**
 * Returns the chain of a prompt's full blocks, up to 64 KB. The last, partial block is left out, because it grows or
 * changes with the next message. Context is padded to full blocks, so that a message is at the same place in its block
 * whatever the context; context of a single block only changes the chain's start.
 * 32 bits without a secret are enough: a collision, prepared or not, sends a request to a replica that is as good as
 * any other, and every gateway must compute the same chain.
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
