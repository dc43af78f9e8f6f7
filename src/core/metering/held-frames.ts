import { spliceText, type Splice } from '#base/json-scan.ts';
import { costSplice } from './usage-member.ts';

/** Where a `usage` object stands in a text. */
export interface UsageRange {
  readonly start: number;
  readonly end: number;
}

interface HeldFrame {
  readonly text: string;
  readonly splices: readonly Splice[];
  /** The usage that is to say what the request cost; null without one. */
  readonly usage: UsageRange | null;
}

/** The last frames of a stream, which leave once the books have its usage: only then is it known what it cost. */
export class HeldFrames {
  /** Characters of all that is held back. */
  chars = 0;
  readonly #frames: HeldFrame[] = [];

  get isEmpty(): boolean {
    return this.#frames.length === 0;
  }

  add(text: string, splices: readonly Splice[] = [], usage: UsageRange | null = null): void {
    this.chars += text.length;
    this.#frames.push({ text, splices, usage });
  }

  /** @param costText goes into each usage as `cost`; null where the client did not ask for it */
  write(costText: string | null): string {
    const write = ({ text, splices, usage }: HeldFrame): string => {
      const cost = costText === null || usage === null ? [] : [costSplice(text, usage, costText)];
      return spliceText(text, [...splices, ...cost]);
    };
    return this.#frames.map(write).join('');
  }
}
