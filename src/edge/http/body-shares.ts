import { AppError } from '#base/errors.ts';

/**
 * The memory that bodies may take in this process: those of requests until they are answered, and answers that their
 * clients have not read yet. All of them together have a bound, and so have those of one key, so that no key can take
 * the place of all others.
 */
export interface BodyShares {
  hold(keyId: string): BodyHold;
  /** @throws AppError concurrency_limit_exceeded where answers that nobody reads fill the share of a key */
  requireShare(keyId: string): void;
}

/** What one request holds. */
export interface BodyHold {
  /** @throws AppError concurrency_limit_exceeded beyond the share of the key, overloaded beyond the bound of all */
  grow(bytes: number): void;
  /** Counts what is there already and is not to be refused. */
  add(bytes: number): void;
  /** Later calls change nothing. */
  release(): void;
}

export interface BodySharesOptions {
  /** Bytes of all bodies. */
  readonly bytesMax: number;
  /** Bytes of those of one key. */
  readonly keyBytesMax: number;
}

const retryAfter = { 'retry-after': '1' };

export function createBodyShares(options: BodySharesOptions): BodyShares {
  return new Shares(options);
}

class Shares implements BodyShares {
  readonly #bytesMax: number;
  readonly #keyBytesMax: number;
  readonly #byKey = new Map<string, number>();
  #bytes = 0;

  constructor({ bytesMax, keyBytesMax }: BodySharesOptions) {
    this.#bytesMax = bytesMax;
    this.#keyBytesMax = keyBytesMax;
  }

  hold(keyId: string): BodyHold {
    return new Hold(this, keyId);
  }

  requireShare(keyId: string): void {
    if (this.#byKey.size > 0 && this.#of(keyId) > this.#keyBytesMax) throw this.#shareIsSpent();
  }

  /** @throws AppError */
  require(keyId: string, bytes: number): void {
    if (this.#of(keyId) + bytes > this.#keyBytesMax) throw this.#shareIsSpent();
    if (this.#bytes + bytes > this.#bytesMax) throw new AppError('overloaded', { headers: retryAfter });
  }

  change(keyId: string, bytes: number): void {
    this.#bytes += bytes;
    const held = this.#of(keyId) + bytes;
    if (held > 0) this.#byKey.set(keyId, held);
    else this.#byKey.delete(keyId);
  }

  #of(keyId: string): number {
    return this.#byKey.get(keyId) ?? 0;
  }

  #shareIsSpent(): AppError {
    const message =
      `The bodies of this key's requests and of answers that it has not read hold ${this.#keyBytesMax} bytes, ` +
      'which is its share: wait for some to end.';
    return new AppError('concurrency_limit_exceeded', { message, headers: retryAfter });
  }
}

class Hold implements BodyHold {
  readonly #shares: Shares;
  readonly #keyId: string;
  #bytes = 0;

  constructor(shares: Shares, keyId: string) {
    this.#shares = shares;
    this.#keyId = keyId;
  }

  grow(bytes: number): void {
    this.#shares.require(this.#keyId, bytes);
    this.add(bytes);
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    this.#shares.change(this.#keyId, bytes);
  }

  release(): void {
    if (this.#bytes === 0) return;
    this.#shares.change(this.#keyId, -this.#bytes);
    this.#bytes = 0;
  }
}
