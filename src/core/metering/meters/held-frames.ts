import { type Splice, spliceText } from '#base/json/json.ts';
import { costSplice } from './usage-member.ts';

/** Range of a `usage` object in a text. */
export interface UsageRange {
  readonly start: number;
  readonly end: number;
}

interface HeldFrame {
  readonly text: string;
  readonly splices: readonly Splice[];
  /** The usage that shall include the cost of the request; null if there is none. */
  readonly usage: UsageRange | null;
}

/** The last frames of a stream. They are sent once the database has the usage: only then is the cost known. */
export class HeldFrames {
  /** Number of characters held back. */
  chars = 0;
  readonly #frames: HeldFrame[] = [];

  get isEmpty(): boolean {
    return this.#frames.length === 0;
  }

  add(text: string, splices: readonly Splice[] = [], usage: UsageRange | null = null): void {
    this.chars += text.length;
    this.#frames.push({ text, splices, usage });
  }

  /**
   * Returns the text of the frames. @param costText `cost` to add to each usage; null if the client did not ask for it
   */
  write(costText: string | null): string {
    const write = ({ text, splices, usage }: HeldFrame): string => {
      const cost = costText === null || usage === null ? [] : [costSplice(text, usage, costText)];
      return spliceText(text, [...splices, ...cost]);
    };
    return this.#frames.map(write).join('');
  }
}
