import { AppError } from '#base/errors.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import {
  AtOnce,
  type BodyHold,
  type BodyLimits,
  type BodyShares,
  collectBody,
  type InferenceCaller,
} from '#edge/http/http.ts';
import { readAllowsFallback } from '#edge/inference/answer/answer.ts';
import type { Call } from '#edge/inference/call/call.ts';
import {
  checkHeaders,
  type InputBounds,
  type ReadJob,
  readRequest,
  type RequestFields,
  takeWhole,
} from '#edge/inference/request/request.ts';
import { hasIdempotencyKey } from '#edge/inference/reuse/reuse.ts';
import type { LargeBodies } from './large-bodies.ts';

export { createLargeBodies } from './large-bodies.ts';

export interface ReceiveParts {
  readonly limits: BodyLimits & InputBounds;
  readonly shares: BodyShares;
  readonly catalog: Pick<Catalog, 'requestChanges'>;
  readonly largeBodies: LargeBodies;
}

/**
 * Receives and reads request bodies. A key's limits apply only after the body is read, so unread bodies are bounded
 * here, per key: their number by the key's concurrency, their bytes by its share of memory, and the time that the event
 * loop spends on them.
 */
export interface Receiver {
  /**
   * Returns synchronously for a small body that arrived with its head.
   * @throws AppError unsupported_media_type, request_too_large, request_timeout, concurrency_limit_exceeded,
   * overloaded, and what `readRequest` throws; ClientGoneError when the connection closes first
   */
  receive(call: Call, caller: InferenceCaller): RequestFields | Promise<RequestFields>;
  /**
   * Counts memory for a body that the gateway is about to make of a received one. Call before it is in memory.
   * @throws AppError concurrency_limit_exceeded, overloaded
   */
  reserve(call: Call, caller: InferenceCaller, bytes: number): void;
  /**
   * Reads a body that the gateway has made of a received one.
   * @throws AppError as `readRequest`, overloaded; ClientGoneError when the connection closes first
   */
  reread(call: Call, caller: InferenceCaller, body: Buffer): Promise<RequestFields>;
}

/** Bodies up to this size take no longer to read than the rest of the request takes, whatever they contain. */
const smallBytesMax = 4096;
/** Longer bodies are always read in another thread. */
const loopBytesMax = 262_144;
/** Milliseconds per turn of the event loop for the bodies of one key; further bodies go to the other thread. */
const loopMsMax = 5;

export function createReceiver(parts: ReceiveParts): Receiver {
  return new BodyReceiver(parts);
}

class BodyReceiver implements Receiver {
  readonly #parts: ReceiveParts;
  /** Unread bodies, by key. */
  readonly #unread = new AtOnce();
  /** Milliseconds that bodies took in this turn of the event loop, by key. */
  readonly #spentMs = new Map<string, number>();
  readonly #endTurn = (): void => this.#spentMs.clear();

  constructor(parts: ReceiveParts) {
    this.#parts = parts;
  }

  receive(call: Call, caller: InferenceCaller): RequestFields | Promise<RequestFields> {
    const limits = this.#limitsOf(call);
    checkHeaders(call.incoming, limits);
    const whole = takeWhole(call.incoming, limits);
    if (whole !== null && whole.length <= smallBytesMax) return readRequest(whole, this.#jobOf(call, caller));
    if (whole !== null && this.#mayHoldLoop(caller, whole.length)) {
      this.#holdOf(call, caller).grow(whole.length);
      return this.#readHere(caller, whole, this.#jobOf(call, caller));
    }
    return this.#receiveSlowly(call, caller, whole);
  }

  reserve(call: Call, caller: InferenceCaller, bytes: number): void {
    this.#holdOf(call, caller).grow(bytes);
  }

  async reread(call: Call, caller: InferenceCaller, body: Buffer): Promise<RequestFields> {
    const job = { ...this.#jobOf(call, caller), wantsHash: false };
    this.#holdOf(call, caller).growTo(body.length);
    if (this.#mayHoldLoop(caller, body.length)) return this.#readHere(caller, body, job);
    return this.#readElsewhere(call, caller, [body], job);
  }

  async #receiveSlowly(call: Call, caller: InferenceCaller, whole: Buffer | null): Promise<RequestFields> {
    const keyId = caller.key.id;
    this.#enter(caller);
    try {
      const body = whole === null ? await this.#collect(call, caller) : [whole];
      const job = this.#jobOf(call, caller);
      if (whole !== null) this.#holdOf(call, caller).grow(whole.length);
      if (this.#mayHoldLoop(caller, lengthOf(body))) return this.#readHere(caller, Buffer.concat(body), job);
      return await this.#readElsewhere(call, caller, body, job);
    } finally {
      this.#unread.leave(keyId);
    }
  }

  async #collect(call: Call, caller: InferenceCaller): Promise<readonly Buffer[]> {
    const sinceMs = performance.now();
    const hold = this.#holdOf(call, caller);
    const body = await collectBody(call.incoming, this.#limitsOf(call), (bytes) => hold.grow(bytes));
    call.timings.bodyMs = performance.now() - sinceMs;
    return body;
  }

  #limitsOf({ terms: { addedBytes } }: Call): BodyLimits {
    const { limits } = this.#parts;
    return addedBytes === 0 ? limits : { ...limits, bodyBytesMax: limits.bodyBytesMax + addedBytes };
  }

  #readHere(caller: InferenceCaller, body: Buffer, job: ReadJob): RequestFields {
    const sinceMs = performance.now();
    try {
      return readRequest(body, job);
    } finally {
      if (this.#spentMs.size === 0) setImmediate(this.#endTurn);
      const spentMs = performance.now() - sinceMs;
      this.#spentMs.set(caller.key.id, (this.#spentMs.get(caller.key.id) ?? 0) + spentMs);
    }
  }

  #mayHoldLoop({ key }: InferenceCaller, bytes: number): boolean {
    return bytes <= loopBytesMax && (this.#spentMs.get(key.id) ?? 0) < loopMsMax;
  }

  #readElsewhere(call: Call, { key }: InferenceCaller, body: readonly Buffer[], job: ReadJob): Promise<RequestFields> {
    const { largeBodies } = this.#parts;
    return call.stop.untilStopped((signal) => largeBodies.read(key.id, body, job, signal));
  }

  #jobOf({ endpoint, incoming }: Call, { key }: InferenceCaller): ReadJob {
    return {
      form: endpoint,
      bounds: this.#parts.limits,
      changes: this.#parts.catalog.requestChanges(),
      meaningWithout: key.cacheResponses ? endpoint.formFields : null,
      wantsHash: hasIdempotencyKey(incoming),
      allowsFallback: readAllowsFallback(incoming),
    };
  }

  #holdOf(call: Call, { key }: InferenceCaller): BodyHold {
    call.held.body ??= this.#parts.shares.hold(key.id);
    return call.held.body;
  }

  /** Counts an unread body. A key without a concurrency limit is bounded only by the limits on all requests. */
  #enter({ key }: InferenceCaller): void {
    const max = key.maxConcurrency ?? Infinity;
    if (this.#unread.enter(key.id, max)) return;
    const message = `This API key may have at most ${max} requests running at once, and ${max} are still being uploaded (max_concurrency). Wait until one is complete.`;
    throw new AppError('concurrency_limit_exceeded', {
      message,
      headers: { 'retry-after': '1' },
      reason: 'max_concurrency',
    });
  }
}

function lengthOf(parts: readonly Buffer[]): number {
  return parts.reduce((sum, { length }) => sum + length, 0);
}
