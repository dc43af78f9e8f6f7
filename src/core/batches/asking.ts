import { formatId } from '#base/id.ts';
import { type KeptAnswer, ownKeyMark } from '#core/requests/requests.ts';
import type { Batch, BatchEndpoint } from './batch.ts';

/** What batches need of the rest of the gateway: keys, models, and the path of every request. */
export interface Asking {
  /** The key of a batch as it is now; null once it was revoked or has expired. */
  keyOf(batch: Pick<Batch, 'organizationId' | 'keyId'>): Promise<BatchKey | null>;
  /** Why a model does not serve the endpoint's batches for this key; null where it does. */
  refuseModel(key: BatchKey, endpoint: BatchEndpoint, model: string): Promise<string | null>;
  /** The id of the model that a name stands for, such as an alias; the name itself where it stands for none. */
  modelId(name: string): string;
  /** Asks as any client would, and is answered as one. Never rejects for what the request is at fault for. */
  ask(request: LineRequest): Promise<LineAnswer>;
  /**
   * Nothing more is charged for requests of a key, by their Idempotency-Keys, whoever still runs them.
   * @returns those that were charged, and whose answers are kept
   */
  conclude(keyId: string, idempotencyKeys: readonly string[]): Promise<readonly string[]>;
  /** The answer of such a request, whose body is as it was sent. */
  kept(keyId: string, idempotencyKey: string): Promise<KeptAnswer | null>;
  /** Drops such answers: they are kept elsewhere. What they were charged for is not charged again. */
  forget(keyId: string, idempotencyKeys: readonly string[]): Promise<void>;
}

/**
 * The same for the same line whenever it is asked, so that it is answered and charged once. No client can send it: what
 * has this key is a line, and may be concluded.
 */
export const lineKey = ({ id }: Pick<Batch, 'id'>, number: number): string =>
  `${ownKeyMark}${formatId('batch', id)}/${number}`;

export interface BatchKey {
  readonly id: string;
  readonly secretHash: Buffer;
  /** Requests that it may have running; null without a limit. */
  readonly maxConcurrency: number | null;
}

export interface LineRequest {
  readonly key: BatchKey;
  readonly projectId: string;
  readonly endpoint: BatchEndpoint;
  readonly body: Buffer;
  /** Of the body, that are not of the line: they count against no limit. */
  readonly addedBytes: number;
  readonly idempotencyKey: string;
  /** Only asks how limits stand: nothing is computed or counted. */
  readonly isDry: boolean;
  /** What its record is noted with. */
  readonly note: string;
  readonly signal: AbortSignal;
}

export interface LineAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}
