import type { ServiceTier } from '#core/catalog/catalog.ts';
import type { UsageSource } from './stream-meter.ts';
import type { Usage } from './usage.ts';

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
  /** Code of what ended or failed it; null for `completed` and `aborted`. */
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
  /** Answers that were asked for to each prompt; one when absent. An engine counts the prompt for each. */
  readonly choices?: number;
}
