/** How the settlement of a request that keeps its answer goes on. */
export interface Settling {
  /** Compressed. */
  readonly answer: Buffer;
  /** Rejects when the request will never be in the books. */
  readonly durable: Promise<'booked' | 'spooled'>;
}

export interface UnsettledRequest {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  readonly settling: Settling;
}

/** What a repetition is told of it. */
export interface UnsettledAnswer {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  /** Null where there was no room for it in memory: it comes with the row. */
  readonly answer: Buffer | null;
  /** It is billed for sure. */
  readonly isDurable: boolean;
}

interface Entry {
  readonly name: string;
  readonly requestId: string;
  readonly bodyHash: Buffer;
  answer: Buffer | null;
  isDurable: boolean;
}

/** Compressed answers of spooled requests may take so much memory. */
const answersBytesMax = 67_108_864;

/** Requests that are answered and not in the books yet, by the name of their Idempotency-Key. */
export class UnsettledAnswers {
  readonly #byName = new Map<string, Entry>();
  readonly #byId = new Map<string, Entry>();
  #bytes = 0;

  add(name: string, { requestId, bodyHash, settling }: UnsettledRequest): void {
    const hasRoom = this.#bytes + settling.answer.length <= answersBytesMax;
    const answer = hasRoom ? settling.answer : null;
    const entry = { name, requestId, bodyHash, answer, isDurable: false };
    this.#bytes += answer?.length ?? 0;
    this.#byName.set(name, entry);
    this.#byId.set(requestId, entry);
  }

  get(name: string): UnsettledAnswer | undefined {
    return this.#byName.get(name);
  }

  requestIds(): readonly string[] {
    return [...this.#byId.keys()];
  }

  spooled(requestId: string): void {
    const entry = this.#byId.get(requestId);
    if (entry !== undefined) entry.isDurable = true;
  }

  /** @returns false where it is not known */
  delete(requestId: string): boolean {
    const entry = this.#byId.get(requestId);
    if (entry === undefined) return false;
    this.#byId.delete(requestId);
    this.#byName.delete(entry.name);
    this.#bytes -= entry.answer?.length ?? 0;
    return true;
  }
}
