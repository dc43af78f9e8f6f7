import type { LedgerDifference } from '#core/metering/metering.ts';

/**
 * Kinds of explanations for a difference or a figure:
 * - `carried`: requests were in progress at the end of the hour; the engine may count their tokens in the next one
 * - `running`: requests run now, or wait to be written, and have no record yet
 * - `unsure`: recorded requests that were aborted, ended or failed before the engine's final count
 * - `choices`: answers with several choices that were not completed; not every choice may have been started
 * - `uncounted`: requests of the gateway itself, or repeated tries, without a count by the engine
 * - `replica_ended`: a run of a replica ended, and its counters could not be read after its last request
 * - `replica_found`: a running replica was adopted, and its earlier counts are unknown
 * - `gateway_ended`: a gateway ended uncleanly: its requests in progress have no record
 * - `adapter_moved`: a LoRA adapter got another base in this hour, and either base may have counted the other's
 * requests
 * - `retention`: the records were deleted, and with them the number of choices per request
 * - `canary`, `probe`, `retry`, `undelivered`: requests that nobody is billed for; their tokens are in the figures
 * - `cache_hit`: answers of the response cache, for which no engine was used
 */
export type ExplanationKind =
  | 'carried'
  | 'running'
  | 'unsure'
  | 'choices'
  | 'uncounted'
  | 'replica_ended'
  | 'replica_found'
  | 'gateway_ended'
  | 'adapter_moved'
  | 'retention'
  | 'canary'
  | 'probe'
  | 'retry'
  | 'undelivered'
  | 'cache_hit';

export interface Explanation {
  readonly kind: ExplanationKind;
  /** Number of requests, or 1 for the end of a run. */
  readonly count: number;
  /** Maximum tokens that the explanation covers; null without a bound. */
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  /** The replica or gateway, and how it ended; null without further details. */
  readonly detail: string | null;
}

interface TokenPair {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Result for one hour and model. Amounts are pico-dollars, times milliseconds since the Unix epoch. */
export interface ReconciledHour {
  /** Catalog id; null for ledger entries without a record. */
  readonly model: string | null;
  readonly hourMs: number;
  /** `explained`: there is a difference, and all of it is explained. */
  readonly state: 'balanced' | 'explained' | 'unexplained';
  /** True if the hour is not over. */
  readonly isOpen: boolean;
  readonly ledgerPicoUsd: bigint;
  readonly usage: TokenPair & {
    readonly requests: number;
    readonly cacheHits: number;
    readonly costPicoUsd: bigint;
  };
  /** The stored hourly sums. */
  readonly sums: TokenPair & { readonly requests: number; readonly costPicoUsd: bigint };
  /**
   * Tokens that the engines should have counted by the records: prompts once per choice, plus the gateway's own
   * requests.
   */
  readonly expected: TokenPair;
  /** Tokens and requests that the engines counted; null without counts. */
  readonly counted: (TokenPair & { readonly requests: number }) | null;
  /** Ledger minus records, and counted minus expected. */
  readonly difference: TokenPair & { readonly picoUsd: bigint };
  /** Unexplained part of the difference: above zero if the engines counted more. */
  readonly unexplained: TokenPair;
  /** Description of the problem; null unless the state is `unexplained`. */
  readonly problem: string | null;
  readonly explanations: readonly Explanation[];
}

export interface Reconciliation {
  readonly fromMs: number;
  readonly toMs: number;
  /** Results by hour and model; hours without any data are left out. */
  readonly hours: readonly ReconciledHour[];
  /** Ledger entries that differ from their records, the first thousand. */
  readonly ledger: readonly LedgerDifference[];
  /** Number of unexplained hours. */
  readonly unexplained: number;
}
