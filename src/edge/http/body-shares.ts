import { AppError } from '#base/errors.ts';

/**
 * Memory that bodies may take in this process: bodies of requests until they are answered, and answers that their
 * clients have not read yet. One bound applies to all bodies together and another to the bodies of each caller, so that
 * no caller can take all memory. Callers are named as by `callerId`.
 */
export interface BodyShares {
  hold(callerId: string): BodyHold;
  /** @throws AppError concurrency_limit_exceeded if unread answers fill the share of the caller */
  requireShare(callerId: string): void;
}

/** Memory that one request uses. */
export interface BodyHold {
  /**
   * @throws AppError concurrency_limit_exceeded beyond the share of the caller, overloaded beyond the bound of all
   * bodies
   */
  grow(bytes: number): void;
  /** Grows to at least this many bytes. @throws AppError as `grow` */
  growTo(bytes: number): void;
  /** Counts bytes that are in memory already and cannot be rejected. */
  add(bytes: number): void;
  /** Frees the memory. Later calls change nothing. */
  release(): void;
}

export interface BodySharesOptions {
  /** Most bytes of all bodies together. */
  readonly bytesMax: number;
  /** Most bytes of the bodies of one caller. */
  readonly callerBytesMax: number;
}

const retryAfter = { 'retry-after': '1' };

export function createBodyShares(options: BodySharesOptions): BodyShares {
  return new Shares(options);
}

class Shares implements BodyShares {
  readonly #bytesMax: number;
  readonly #callerBytesMax: number;
  readonly #byCaller = new Map<string, number>();
  #bytes = 0;

  constructor({ bytesMax, callerBytesMax }: BodySharesOptions) {
    this.#bytesMax = bytesMax;
    this.#callerBytesMax = callerBytesMax;
  }

  hold(callerId: string): BodyHold {
    return new Hold(this, callerId);
  }

  requireShare(callerId: string): void {
    if (this.#byCaller.size > 0 && this.#of(callerId) > this.#callerBytesMax) throw this.#shareIsSpent();
  }

  require(callerId: string, bytes: number): void {
    if (this.#of(callerId) + bytes > this.#callerBytesMax) throw this.#shareIsSpent();
    if (this.#bytes + bytes > this.#bytesMax) throw this.#allAreSpent();
  }

  change(callerId: string, bytes: number): void {
    this.#bytes += bytes;
    const held = this.#of(callerId) + bytes;
    if (held > 0) this.#byCaller.set(callerId, held);
    else this.#byCaller.delete(callerId);
  }

  #of(callerId: string): number {
    return this.#byCaller.get(callerId) ?? 0;
  }

  #allAreSpent(): AppError {
    return new AppError('overloaded', { headers: retryAfter, reason: 'HEADGATE_MAX_BODIES_BYTES' });
  }

  #shareIsSpent(): AppError {
    const message =
      `Request bodies and unread responses of this API key use ${this.#callerBytesMax} bytes, the limit per key. ` +
      'Wait until some requests end.';
    return new AppError('concurrency_limit_exceeded', {
      message,
      headers: retryAfter,
      reason: 'HEADGATE_MAX_BODIES_BYTES',
    });
  }
}

class Hold implements BodyHold {
  readonly #shares: Shares;
  readonly #callerId: string;
  #bytes = 0;

  constructor(shares: Shares, callerId: string) {
    this.#shares = shares;
    this.#callerId = callerId;
  }

  grow(bytes: number): void {
    this.#shares.require(this.#callerId, bytes);
    this.add(bytes);
  }

  growTo(bytes: number): void {
    if (bytes > this.#bytes) this.grow(bytes - this.#bytes);
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    this.#shares.change(this.#callerId, bytes);
  }

  release(): void {
    if (this.#bytes === 0) return;
    this.#shares.change(this.#callerId, -this.#bytes);
    this.#bytes = 0;
  }
}
