import type { AnswerPlace, AnswerMemoryBudget } from '#edge/inference/answer/answer.ts';
import type { WholeBytes } from './part-answer.ts';

/**
 * The single place that the answers to all parts of a request share in the memory budget of large answers. The parts become one
 * answer, and separate places would wait for each other. Engines still compute the rest of the answer, which must not
 * block other requests: once the size of the whole is known, that many bytes are taken, and the turn passes on.
 */
export class PartsMemoryBudget implements AnswerMemoryBudget {
  /** Null while the answers are small. */
  place: AnswerPlace | null = null;
  readonly #memory: AnswerMemoryBudget;
  readonly #whole: WholeBytes;
  readonly #onTurn: () => void;
  readonly #waiting = new Set<() => void>();
  /** Bytes of the answers that the place has counted. */
  #counted = 0;
  /** Bytes that the whole answer will have; null while unknown. */
  #expected: number | null = null;
  /** The expected bytes are taken. */
  #isTaken = false;

  /** @param onTurn called when the answers may grow again */
  constructor(memory: AnswerMemoryBudget, whole: WholeBytes, onTurn: () => void) {
    this.#memory = memory;
    this.#whole = whole;
    this.#onTurn = onTurn;
  }

  /** The answers may not grow. */
  get waits(): boolean {
    return this.place?.waits === true;
  }

  /** @returns one part's share of the place */
  enter(organizationId: string, bytes: number, onTurn: () => void): AnswerPlace {
    if (this.place === null) {
      this.#counted = bytes;
      this.place = this.#memory.enter(organizationId, bytes, () => this.#turn());
      this.#takeExpected();
    }
    this.#waiting.add(onTurn);
    const leave = (): void => void this.#waiting.delete(onTurn);
    const isWaiting = (): boolean => this.waits;
    this.#count();
    return {
      get waits() {
        return isWaiting();
      },
      add: () => this.#count(),
      collected: leave,
      end: leave,
    };
  }

  /** Sets how many bytes will be kept in the end. */
  expect(bytes: number): void {
    this.#expected = bytes;
    this.#takeExpected();
  }

  #takeExpected(): void {
    if (this.#expected === null || this.place === null || this.#isTaken || this.waits) return;
    this.place.add(this.#expected - this.#counted);
    this.place.collected();
    this.#isTaken = true;
  }

  #count(): void {
    if (this.#isTaken) return;
    this.place?.add(this.#whole.bytes - this.#counted);
    this.#counted = this.#whole.bytes;
  }

  #turn(): void {
    this.#takeExpected();
    for (const onTurn of this.#waiting) onTurn();
    this.#onTurn();
  }
}
