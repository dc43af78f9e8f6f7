/** Progress of the settlement of a request whose answer is stored. */
export interface Settling {
  /** Compressed with Zstandard. */
  readonly answer: Buffer;
  /** Rejects if the request will never be recorded. */
  readonly durable: Promise<'booked' | 'spooled'>;
}

export interface UnsettledRequest {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  readonly settling: Settling;
}

/** An unsettled answer as repetitions see it. */
export interface UnsettledAnswer {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  /** Null if there was no room in memory; the answer is then in the row later. */
  readonly answer: Buffer | null;
  /** True if the request is certain to be billed. */
  readonly isDurable: boolean;
}

interface Entry {
  readonly name: string;
  readonly requestId: string;
  readonly bodyHash: Buffer;
  answer: Buffer | null;
  isDurable: boolean;
}

/** Maximum memory for compressed answers of unsettled requests. */
const answersBytesMax = 67_108_864;

/** Requests that are answered but not recorded yet, by the name of their Idempotency-Key. */
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

  /** @returns false if the request is unknown */
  delete(requestId: string): boolean {
    const entry = this.#byId.get(requestId);
    if (entry === undefined) return false;
    this.#byId.delete(requestId);
    this.#byName.delete(entry.name);
    this.#bytes -= entry.answer?.length ?? 0;
    return true;
  }
}
