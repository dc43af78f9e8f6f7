import type { AnswerPlace, AnswerRoom } from './answer-room.ts';
import type { WholeBytes } from './part-answer.ts';

/**
 * The place that the answers to all parts of a request have together in the room for large answers: they become one
 * answer, and a place of each would wait for that of another. Engines are still computing the rest of it, which must
 * hold up nobody: once it is known how large the whole will be, so much is taken, and the turn goes on to others.
 */
export class PartsRoom implements AnswerRoom {
  /** Null while the answers are small. */
  place: AnswerPlace | null = null;
  readonly #room: AnswerRoom;
  readonly #whole: WholeBytes;
  readonly #onTurn: () => void;
  readonly #waiting = new Set<() => void>();
  /** Bytes of the answers that the place has counted. */
  #counted = 0;
  /** Bytes that the whole will have; null while that is not known. */
  #expected: number | null = null;
  /** They are taken. */
  #isTaken = false;

  /** @param onTurn called when the answers may grow again */
  constructor(room: AnswerRoom, whole: WholeBytes, onTurn: () => void) {
    this.#room = room;
    this.#whole = whole;
    this.#onTurn = onTurn;
  }

  /** The answers may not grow. */
  get waits(): boolean {
    return this.place?.waits === true;
  }

  /** @returns what one part has of the place */
  enter(organizationId: string, bytes: number, onTurn: () => void): AnswerPlace {
    if (this.place === null) {
      this.#counted = bytes;
      this.place = this.#room.enter(organizationId, bytes, () => this.#turn());
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

  /** So many bytes will be kept in the end. */
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
