import type { Splice } from '#base/json/json.ts';
import type { MeteredJson, PiecesMeter, ShownBill } from '#core/metering/metering.ts';

/** Last bytes of an answer: latin1, or the blocks of a large JSON answer. */
export type AnswerText = string | readonly Buffer[];

/** Returns null if the text is longer than `bytesMax`. */
export function textOf(last: AnswerText, bytesMax: number): string | null {
  if (typeof last === 'string') return last.length > bytesMax ? null : last;
  return bytesOf(last) > bytesMax ? null : Buffer.concat(last).toString('latin1');
}

/** Returns the first bytes as latin1. A string is returned whole, because cutting would copy it. */
export function beginningOf(last: AnswerText, bytesMax: number): string {
  if (typeof last === 'string') return last;
  return Buffer.concat(last, Math.min(bytesMax, bytesOf(last))).toString('latin1');
}

export function bytesOf(blocks: readonly Buffer[]): number {
  return blocks.reduce((sum, { length }) => sum + length, 0);
}

/** Returns the text for the client, with the usage that a bill shows; null keeps the engine's usage. */
export type WriteAnswer = (bill: ShownBill | null) => AnswerText;

export type LargeAnswerResult = (MeteredJson & { readonly write: WriteAnswer }) | { readonly ok: false };

/** Collects a JSON answer as it arrives, which may be megabytes. */
export interface AnswerCollector {
  /** Bytes that have arrived, including dropped ones; for a part of an answer, the bytes of all its parts. */
  readonly bytes: number;
  add(text: string): void;
  /** Nobody will read the answer: from now on it is only metered. */
  drop(): void;
  /** Call when the whole answer has arrived. */
  end(): LargeAnswerResult;
}

/** A larger JSON answer is abandoned. */
export const answerBytesMax = 268_435_456;

const blockBytesMax = 262_144;

/**
 * Stores megabytes of text as blocks of bytes. Each block is as large as all blocks before it together, up to a bound.
 */
export class TextBlocks {
  #blocks: Buffer[] = [];
  /** Used bytes of the last block. */
  #used = 0;
  #nextBytes: number;

  /** @param firstBytes bytes of the first block */
  constructor(firstBytes: number) {
    this.#nextBytes = firstBytes;
  }

  add(text: string): void {
    for (let at = 0; at < text.length;) at += this.#write(at === 0 ? text : text.slice(at));
  }

  /** Call when the whole text was added. */
  end(): Buffer[] {
    const last = this.#blocks.pop();
    if (last === undefined) return this.#blocks;
    const used = last.subarray(0, this.#used);
    // A mostly empty block would stay in memory as long as the answer.
    return [...this.#blocks, this.#used < last.length / 2 ? Buffer.from(used) : used];
  }

  /** @returns how many bytes fit into the last block */
  #write(text: string): number {
    let block = this.#blocks.at(-1);
    if (block === undefined || this.#used === block.length) {
      block = Buffer.allocUnsafeSlow(this.#nextBytes);
      this.#nextBytes = Math.min(blockBytesMax, this.#blocks.length === 0 ? block.length : 2 * block.length);
      this.#blocks.push(block);
      this.#used = 0;
    }
    const written = block.write(text, this.#used, 'latin1');
    this.#used += written;
    return written;
  }
}

/** Meters and keeps an answer piece by piece, so that no turn of the event loop works on all of it. */
export class LargeAnswer implements AnswerCollector {
  bytes = 0;
  readonly #meter: PiecesMeter;
  #blocks: TextBlocks | null = new TextBlocks(blockBytesMax);

  constructor(meter: PiecesMeter) {
    this.#meter = meter;
  }

  add(text: string): void {
    this.#meter.feed(text);
    this.bytes += text.length;
    this.#blocks?.add(text);
  }

  drop(): void {
    this.#blocks = null;
  }

  end(): LargeAnswerResult {
    const metered = this.#meter.end();
    if (!metered.ok) return metered;
    const { seen, aborted, splices } = metered;
    const blocks = this.#blocks?.end() ?? [];
    return { ok: true, seen, aborted, write: (bill) => spliceBlocks(blocks, splices(bill)) };
  }
}

/** @param splices in ascending order */
function spliceBlocks(blocks: readonly Buffer[], splices: readonly Splice[]): Buffer[] {
  const result: Buffer[] = [];
  let from = 0;
  for (const { start, end, text } of splices) {
    result.push(...between(blocks, from, start), Buffer.from(text, 'latin1'));
    from = end;
  }
  result.push(...between(blocks, from, Infinity));
  return result;
}

function* between(blocks: readonly Buffer[], start: number, end: number): Generator<Buffer> {
  let at = 0;
  for (const block of blocks) {
    const part = block.subarray(Math.max(0, start - at), Math.max(0, Math.min(block.length, end - at)));
    if (part.length > 0) yield part;
    at += block.length;
  }
}
