import type { Batch, BatchEndpoint } from './batch.ts';

/** What batches need of the rest of the gateway: keys, models, and the path of every request. */
export interface Asking {
  /** The key of a batch as it is now; null once it was revoked or has expired. */
  keyOf(batch: Pick<Batch, 'organizationId' | 'keyId'>): Promise<BatchKey | null>;
  /** Why a model does not serve the endpoint's batches for this key; null where it does. */
  refuseModel(key: BatchKey, endpoint: BatchEndpoint, model: string): Promise<string | null>;
  /** Asks as any client would, and is answered as one. Never rejects for what the request is at fault for. */
  ask(request: LineRequest): Promise<LineAnswer>;
}

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
  /** The same for the same line, so that it is answered and charged once. */
  readonly idempotencyKey: string;
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
