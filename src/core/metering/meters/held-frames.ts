import { type Splice, spliceText } from '#base/json/json.ts';
import { type ShownBill, type UsageForm, type UsagePlace, usageSplices } from './shown-usage.ts';

interface HeldFrame {
  readonly text: string;
  readonly splices: readonly Splice[];
  /** Place of the usage that shows the bill; null for a frame without usage. */
  readonly usage: UsagePlace | null;
}

/** The last frames of a stream. They are sent once the database has the usage: only then is the bill known. */
export class HeldFrames {
  /** Number of characters held back. */
  chars = 0;
  readonly #form: UsageForm;
  readonly #frames: HeldFrame[] = [];

  constructor(form: UsageForm) {
    this.#form = form;
  }

  get isEmpty(): boolean {
    return this.#frames.length === 0;
  }

  add(text: string, splices: readonly Splice[] = [], usage: UsagePlace | null = null): void {
    this.chars += text.length;
    this.#frames.push({ text, splices, usage });
  }

  /** Returns the text of the frames. @param bill what each usage shows; null keeps the engine's usage */
  write(bill: ShownBill | null): string {
    const write = ({ text, splices, usage }: HeldFrame): string =>
      spliceText(text, [...splices, ...usageSplices(text, usage, bill, this.#form)]);
    return this.#frames.map(write).join('');
  }
}
