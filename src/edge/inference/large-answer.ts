import type { Splice } from '#base/json-scan.ts';
import type { PiecesMeter, Usage } from '#core/metering/metering.ts';

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

export type LargeAnswerResult =
  | { readonly ok: true; readonly last: AnswerText; readonly usage: Usage | null; readonly aborted: boolean }
  | { readonly ok: false };

const blockBytes = 262_144;

/**
 * A JSON answer of megabytes while it is collected: it is metered as it comes and kept as bytes, so that neither the
 * one nor the other is ever done with all of it in one turn of the event loop.
 */
export class LargeAnswer {
  /** Bytes that came so far, dropped ones included. */
  bytes = 0;
  readonly #meter: PiecesMeter;
  #blocks: Buffer[] = [];
  /** Bytes that are used of the last block. */
  #used = blockBytes;
  #dropped = false;

  constructor(meter: PiecesMeter) {
    this.#meter = meter;
  }

  add(text: string): void {
    this.#meter.feed(text);
    this.bytes += text.length;
    for (let at = 0; at < text.length && !this.#dropped;) at += this.#write(at === 0 ? text : text.slice(at));
  }

  /** Nobody will read it: from now on it is only metered. */
  drop(): void {
    this.#dropped = true;
    this.#blocks = [];
  }

  /** To be called once all of it has come. */
  end(): LargeAnswerResult {
    const metered = this.#meter.end();
    if (!metered.ok) return metered;
    const last = this.#blocks.pop();
    if (last !== undefined) this.#blocks.push(last.subarray(0, this.#used));
    return { ...metered, last: spliceBlocks(this.#blocks, metered.splices) };
  }

  /** @returns how much of it had a place in the last block */
  #write(text: string): number {
    if (this.#used === blockBytes) {
      this.#blocks.push(Buffer.allocUnsafeSlow(blockBytes));
      this.#used = 0;
    }
    const written = this.#blocks.at(-1)?.write(text, this.#used, 'latin1') ?? 0;
    this.#used += written;
    return written;
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
