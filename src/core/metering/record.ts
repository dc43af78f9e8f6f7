import type { ServiceTier } from '#core/catalog/catalog.ts';
import type { SettledClaim } from '#core/requests/requests.ts';
import type { RequestFacts, StoredFacts } from './facts.ts';
import type { Usage, UsageSource } from './usage.ts';

export type OutcomeKind = 'completed' | 'aborted' | 'ended' | 'failed';

/** Everything that the books keep of one admitted request. */
export interface UsageRecord {
  /** UUIDv7, made at admission. */
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  /** Catalog id. */
  readonly model: string;
  /** Path that was asked, such as /v1/chat/completions. */
  readonly endpoint: string;
  readonly stream: boolean;
  readonly serviceTier: ServiceTier;
  /** HTTP status that the client got, or would have got. */
  readonly status: number;
  readonly outcome: OutcomeKind;
  /** Code of what ended or failed it; null for `aborted`, and for `completed` unless something was odd about it. */
  readonly reason: string | null;
  readonly cacheHit: boolean;
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** What is charged, in pico-dollars; with writtenOffPicoUsd it is tokens × price. */
  readonly costPicoUsd: bigint;
  readonly writtenOffPicoUsd: bigint;
  readonly priceVersionId: string;
  readonly queuedMs: number;
  readonly firstByteMs: number | null;
  readonly totalMs: number;
  readonly clientRequestId: string | null;
  /** The end user whose spending is counted, as the request names him; absent where nobody counts it. */
  readonly endUser?: string;
  /** Only on its way into the books, of a request with an Idempotency-Key. */
  readonly claim?: SettledClaim;
  readonly facts?: RequestFacts;
  /** Only on its way into the books: since when it waits to be written, on this process' monotonic clock. */
  readonly settledMs?: number;
  /** The same of one that was spooled: how long it waited for that, in milliseconds. */
  readonly waitedMs?: number;
  /** Answers that were asked for to each prompt; one when absent. An engine counts the prompt for each. */
  readonly choices?: number;
  /** Tokens that engines may have counted of it at most; only of one of which no engine has said its last count. */
  readonly promptTokensMax?: number;
  readonly completionTokensMax?: number;
  /** Catalog id of the model that was asked for, where `model` has answered in its place; else absent. */
  readonly fallbackFor?: string;
}

/** A record with what only whoever asks for this very one is told. */
export interface DetailedRecord {
  readonly record: UsageRecord;
  /** Null for a request of before they were kept. */
  readonly facts: StoredFacts | null;
}

/**
 * Reason of a completed record that cost nothing: another request with its Idempotency-Key was booked before, while it
 * was not known whether this one would be.
 */
export const repeatedReason = 'repeated_idempotency_key';
