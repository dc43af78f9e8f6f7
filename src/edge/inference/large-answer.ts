import type { Splice } from '#base/json-scan.ts';
import type { MeteredJson, PiecesMeter } from '#core/metering/metering.ts';

/** What is sent at the end of an answer: latin1, or the bytes of a large JSON answer in blocks. */
export type AnswerText = string | readonly Buffer[];

/** Null where it is longer than `bytesMax`. */
export function textOf(last: AnswerText, bytesMax: number): string | null {
  if (typeof last === 'string') return last.length > bytesMax ? null : last;
  return bytesOf(last) > bytesMax ? null : Buffer.concat(last).toString('latin1');
}

/** The first bytes of it, as latin1; a string is not copied for that. */
export function beginningOf(last: AnswerText, bytesMax: number): string {
  if (typeof last === 'string') return last;
  return Buffer.concat(last, Math.min(bytesMax, bytesOf(last))).toString('latin1');
}

export function bytesOf(blocks: readonly Buffer[]): number {
  return blocks.reduce((sum, { length }) => sum + length, 0);
}

/** `write` gives what the client gets, with what it cost where the client asked for that. */
export type LargeAnswerResult =
  | (MeteredJson & { readonly write: (costText: string | null) => AnswerText })
  | { readonly ok: false };

/** Takes in a JSON answer as it comes, which may be megabytes. */
export interface AnswerCollector {
  /** Bytes that came so far, dropped ones included; of a part of an answer, those of all its parts. */
  readonly bytes: number;
  add(text: string): void;
  /** Nobody will read it: from now on it is only metered. */
  drop(): void;
  /** To be called once all of it has come. */
  end(): LargeAnswerResult;
}

/** A larger JSON answer is given up. */
export const answerBytesMax = 268_435_456;

const blockBytesMax = 262_144;

/** Text of megabytes as bytes in blocks, of which each is as large as all before it together, up to a bound. */
export class TextBlocks {
  #blocks: Buffer[] = [];
  /** Bytes that are used of the last block. */
  #used = 0;
  #nextBytes: number;

  /** @param firstBytes bytes of the first block */
  constructor(firstBytes: number) {
    this.#nextBytes = firstBytes;
  }

  add(text: string): void {
    for (let at = 0; at < text.length;) at += this.#write(at === 0 ? text : text.slice(at));
  }

  /** To be called once all of it was added. */
  end(): Buffer[] {
    const last = this.#blocks.pop();
    if (last === undefined) return this.#blocks;
    const used = last.subarray(0, this.#used);
    // A block that is mostly empty would be kept for as long as the answer is.
    return [...this.#blocks, this.#used < last.length / 2 ? Buffer.from(used) : used];
  }

  /** @returns how much of it had a place in the last block */
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

/** It is metered and kept so that neither is ever done with all of it in one turn of the event loop. */
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
    return { ok: true, seen, aborted, write: (costText) => spliceBlocks(blocks, splices(costText)) };
  }
}

/** @param splices in their order */
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
