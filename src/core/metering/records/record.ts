import type { ServiceTier } from '#core/catalog/catalog.ts';
import type { Usage, UsageSource } from '#core/metering/meters/meters.ts';
import type { RequestFacts, StoredFacts } from '#core/metering/tables/tables.ts';
import type { SettledClaim } from '#core/stored-requests/stored-requests.ts';

export type OutcomeKind = 'completed' | 'aborted' | 'ended' | 'failed';

/** Data that the database keeps of one admitted request. */
export interface UsageRecord {
  /** UUIDv7, created at admission. */
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  /** Catalog id. */
  readonly model: string;
  /** Requested path, such as /v1/chat/completions. */
  readonly endpoint: string;
  readonly stream: boolean;
  readonly serviceTier: ServiceTier;
  /** HTTP status that the client got, or would have got. */
  readonly status: number;
  readonly outcome: OutcomeKind;
  /**
   * Code of the reason why the request ended or failed; null for `aborted`, and for `completed` unless something was
   * odd.
   */
  readonly reason: string | null;
  readonly cacheHit: boolean;
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** Charge in pico-dollars; together with writtenOffPicoUsd it is tokens × price. */
  readonly costPicoUsd: bigint;
  readonly writtenOffPicoUsd: bigint;
  readonly priceVersionId: string;
  readonly queuedMs: number;
  readonly firstByteMs: number | null;
  readonly totalMs: number;
  readonly clientRequestId: string | null;
  /** The end user whose spending is counted, as the request names them; absent if no budget counts it. */
  readonly endUser?: string;
  /** The end user as the request names them, also if no budget counts the user; absent if it names none. */
  readonly namedUser?: string;
  /** Present only until the record is written, for a request with an Idempotency-Key. */
  readonly claim?: SettledClaim;
  readonly facts?: RequestFacts;
  /** Time since when the record waits to be written, on this process's monotonic clock; present only until then. */
  readonly settledMs?: number;
  /** Milliseconds that a spooled record had waited for the spool. */
  readonly waitedMs?: number;
  /** Number of answers requested per prompt; one if absent. An engine counts the prompt for each. */
  readonly choices?: number;
  /** Most tokens that engines may have counted for the request; only if no engine has sent its last count. */
  readonly promptTokensMax?: number;
  readonly completionTokensMax?: number;
  /** Catalog id of the requested model, if `model` answered instead; else absent. */
  readonly fallbackFor?: string;
}

/** A record with the details that only a request for this record returns. */
export interface DetailedRecord {
  readonly record: UsageRecord;
  /** Null for a request older than these facts. */
  readonly facts: StoredFacts | null;
}

/**
 * Reason of a completed record that cost nothing: another request with its Idempotency-Key was recorded before, while
 * it was unknown whether this one would be.
 */
export const repeatedReason = 'repeated_idempotency_key';
