import { formatId } from '#base/id.ts';
import { type KeptAnswer, ownKeyMark } from '#core/stored-requests/stored-requests.ts';
import type { Batch, BatchEndpoint } from './batch.ts';

/** Parts of the gateway that batches need: keys, models, and the path of every request. */
export interface Asking {
  /** Returns the current key of a batch; null if it was revoked or has expired. */
  keyOf(batch: Pick<Batch, 'organizationId' | 'keyId'>): Promise<BatchKey | null>;
  /** Returns why a model does not serve the endpoint's batches for this key; null if it does. */
  refuseModel(key: BatchKey, endpoint: BatchEndpoint, model: string): Promise<string | null>;
  /**
   * True if the engine would run tools of a request itself: nothing limits their cost beforehand.
   * @param tools the JSON of the body's `tools`, as latin1
   */
  hasEngineTools(endpoint: BatchEndpoint, tools: string): boolean;
  /** Returns the model id for a name such as an alias; the name itself if it is unknown. */
  modelId(name: string): string;
  /** Sends a request and returns the answer that any client would get. Never rejects for the request's own errors. */
  ask(request: LineRequest): Promise<LineAnswer>;
  /**
   * Stops further charges for requests of a key, by their Idempotency-Keys, whichever gateway still runs them.
   * @returns the Idempotency-Keys of requests that were charged, and whose answers are stored
   */
  conclude(keyId: string, idempotencyKeys: readonly string[]): Promise<readonly string[]>;
  /** Returns the stored answer of such a request, with the body unchanged. */
  kept(keyId: string, idempotencyKey: string): Promise<KeptAnswer | null>;
  /** Deletes such answers, after they are stored elsewhere. Their requests are not charged again. */
  forget(keyId: string, idempotencyKeys: readonly string[]): Promise<void>;
}

/**
 * Returns the Idempotency-Key of a line, the same on every attempt, so that the line is answered and charged once.
 * Clients cannot send such a key: every request with one is a line, and may be concluded.
 */
export const lineKey = ({ id }: Pick<Batch, 'id'>, number: number): string =>
  `${ownKeyMark}${formatId('batch', id)}/${number}`;

export interface BatchKey {
  readonly id: string;
  readonly secretHash: Buffer;
  /** Most running requests of the key; null without a limit. */
  readonly maxConcurrency: number | null;
}

export interface LineRequest {
  readonly key: BatchKey;
  readonly projectId: string;
  readonly endpoint: BatchEndpoint;
  readonly body: Buffer;
  /** Bytes of the body that were added to the line's body: they count against no limit. */
  readonly addedBytes: number;
  readonly idempotencyKey: string;
  /** True to check only the limits: nothing is computed or counted. */
  readonly isDry: boolean;
  /** Text that the request's record is stored with. */
  readonly note: string;
  readonly signal: AbortSignal;
}

export interface LineAnswer {
  readonly status: number;
  /** Header names are in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}
