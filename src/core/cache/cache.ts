import { createHash } from 'node:crypto';
import type { Log } from '#base/log.ts';
import type { CacheEntryRef, CacheStore } from './store.ts';

export { makeFrames, type FrameOptions } from './make-frames.ts';
export { makeResponseFrames, mergeResponseFrames } from './response-frames.ts';
export { makeMessageFrames, mergeMessageFrames } from './message-frames.ts';
export { mergeFrames, plainAnswer } from './merge-frames.ts';
export { createMemoryStore } from './memory-store.ts';
export { createRedisStore } from './redis-store.ts';
export type { CacheBounds, CacheEntryRef, CacheStore } from './store.ts';

/** Properties that two requests must share for one answer to serve both. */
export interface RequestIdentity {
  readonly organizationId: string;
  /** Catalog id, whatever name the request used. */
  readonly model: string;
  /** Changes when the engine's file changes. */
  readonly engineHash: string;
  /** Path such as /v1/chat/completions. */
  readonly endpoint: string;
  /** Digest of the body's fields without `formFields`, by `digestMembers`. */
  readonly meaning: string;
}

/** Fields that only affect how, or for whom, an answer is sent, and not its content. */
export const formFields = ['model', 'stream', 'stream_options', 'user', 'metadata', 'usage'] as const;

/** Returns the key of an answer: a SHA-256 over the identity, hexadecimal. */
export function requestKey({ organizationId, model, engineHash, endpoint, meaning }: RequestIdentity): string {
  const identity = [organizationId, model, engineHash, endpoint, meaning];
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex');
}

/**
 * The response cache: complete answers, stored for requests with the same meaning. Of identical parallel requests one
 * goes to the engine, and the others wait for its answer. Answers are stored as JSON answers, whether they were JSON or
 * a stream; `makeFrames` converts an answer to a stream, and `mergeFrames` a stream to an answer.
 */
export interface ResponseCache {
  /**
   * Returns the stored answer, or an entry for making the answer. Waits while another request of this process makes the
   * same answer.
   */
  take(entry: CacheEntryRef, wait: CacheWait): Promise<CacheTake>;
}

export interface CacheWait {
  /** Ends the wait; the result is then a `miss`, and the caller is expected to give up. */
  readonly signal: AbortSignal;
  /** Called if there is an answer to wait for. */
  readonly onWait: () => void;
}

export type CacheTake =
  | { readonly kind: 'hit'; readonly text: string }
  | { readonly kind: 'miss'; readonly entry: InFlightEntry };

/**
 * End of an entry for the waiting requests: the answer; `next`, so that the next of them tries; or `each`, so that each
 * asks the engine.
 */
export type InFlightEnd = { readonly answer: string } | 'next' | 'each';

export interface InFlightEntry {
  /** Must be called once, however the request ended; later calls do nothing. The answer is JSON as latin1. */
  end(result: InFlightEnd): void;
}

export interface ResponseCacheOptions {
  readonly store: CacheStore;
  /** Maximum bytes of a stored answer. */
  readonly answerBytesMax: number;
  readonly log: Log;
}

export function createResponseCache(options: ResponseCacheOptions): ResponseCache {
  return new AnswerCache(options);
}

class AnswerCache implements ResponseCache {
  readonly #options: ResponseCacheOptions;
  /** Answers that are being made now. */
  readonly #inFlight = new Map<string, Promise<InFlightEnd>>();

  constructor(options: ResponseCacheOptions) {
    this.#options = options;
  }

  async take(entry: CacheEntryRef, { signal, onWait }: CacheWait): Promise<CacheTake> {
    for (;;) {
      const running = this.#inFlight.get(entry.key);
      if (running === undefined) return this.#lead(entry);
      onWait();
      const ended = await Promise.race([running, aborted(signal)]);
      if (ended === 'each') return { kind: 'miss', entry: { end: (result) => this.#keep(entry, result) } };
      if (ended !== 'next') return { kind: 'hit', text: ended.answer };
    }
  }

  async #lead(entry: CacheEntryRef): Promise<CacheTake> {
    let conclude: ((result: InFlightEnd) => void) | null = null;
    const ended = new Promise<InFlightEnd>((resolve) => {
      conclude = resolve;
    });
    this.#inFlight.set(entry.key, ended);
    const end = (result: InFlightEnd): void => {
      if (conclude === null) return;
      const resolve = conclude;
      conclude = null;
      this.#inFlight.delete(entry.key);
      resolve(result);
    };
    const kept = await this.#read(entry);
    if (kept !== null) {
      end({ answer: kept });
      return { kind: 'hit', text: kept };
    }
    return {
      kind: 'miss',
      entry: {
        end: (result) => {
          if (conclude !== null) this.#keep(entry, result);
          end(result);
        },
      },
    };
  }

  async #read(entry: CacheEntryRef): Promise<string | null> {
    try {
      return (await this.#options.store.get(entry))?.toString('latin1') ?? null;
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the response cache could not be read; the request goes to its engine');
      return null;
    }
  }

  #keep(entry: CacheEntryRef, result: InFlightEnd): void {
    const { store, answerBytesMax } = this.#options;
    if (typeof result === 'string' || result.answer.length > answerBytesMax) return;
    void store.set(entry, Buffer.from(result.answer, 'latin1'));
  }
}

function aborted(signal: AbortSignal): Promise<'each'> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve('each');
    else signal.addEventListener('abort', () => resolve('each'), { once: true });
  });
}
