import type { LedgerDifference } from '#core/metering/metering.ts';

/**
 * What explains a difference, or stands behind a figure:
 * - `carried`: requests were under way at the end of the hour, whose tokens the engine may count in the next one
 * - `running`: requests run now, or wait to be written, and have no record yet
 * - `unsure`: requests on record that were aborted, ended or failed before the engine had said its last count
 * - `choices`: answers with several choices that were not completed; not each choice may have been begun
 * - `uncounted`: requests of our own, or tries that were repeated, of which the engine did not say what it had counted
 * - `replica_ended`: a run of a replica ended, and its counters could not be read after its last request
 * - `replica_found`: a replica that ran already was taken over, and what it had counted before is not known
 * - `gateway_ended`: a gateway ended uncleanly: requests that it had under way are in no book
 * - `adapter_moved`: a LoRA adapter got another base in this hour, and each may have counted requests of the other's
 * - `retention`: the records are gone, and with them how many choices requests had
 * - `canary`, `probe`, `retry`, `undelivered`: requests that nobody is billed for; their tokens are in the figures
 * - `cache_hit`: answers of the response cache, which no engine was asked for
 */
export const explanationKinds = [
  'carried',
  'running',
  'unsure',
  'choices',
  'uncounted',
  'replica_ended',
  'replica_found',
  'gateway_ended',
  'adapter_moved',
  'retention',
  'canary',
  'probe',
  'retry',
  'undelivered',
  'cache_hit',
] as const;

export type ExplanationKind = (typeof explanationKinds)[number];

export interface Explanation {
  readonly kind: ExplanationKind;
  /** Requests, or 1 for the end of a run. */
  readonly count: number;
  /** Tokens that it explains at most, or stands for; null where that has no bound. */
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  /** Which replica or gateway, and how it ended; null where there is nothing more to say. */
  readonly detail: string | null;
}

interface TokenPair {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** Amounts are pico-dollars, moments milliseconds since the Unix epoch. */
export interface ReconciledHour {
  /** Catalog id; null for what no record is left of. */
  readonly model: string | null;
  readonly hourMs: number;
  /** `explained`: there is a difference, and all of it is explained. */
  readonly state: 'balanced' | 'explained' | 'unexplained';
  /** The hour is not over. */
  readonly isOpen: boolean;
  readonly ledgerPicoUsd: bigint;
  readonly usage: TokenPair & {
    readonly requests: number;
    readonly cacheHits: number;
    readonly costPicoUsd: bigint;
  };
  /** As they are kept by the hour. */
  readonly sums: TokenPair & { readonly requests: number; readonly costPicoUsd: bigint };
  /** What the engines should have counted by the books: prompts once for each choice, and requests of our own. */
  readonly expected: TokenPair;
  /** What they counted; null where nothing was counted. */
  readonly counted: (TokenPair & { readonly requests: number }) | null;
  /** Ledger less records, and counted less expected. */
  readonly difference: TokenPair & { readonly picoUsd: bigint };
  /** What of it nothing explains: above zero where the engines counted more. */
  readonly unexplained: TokenPair;
  /** In words, what is wrong with it; null when it is not unexplained. */
  readonly problem: string | null;
  readonly explanations: readonly Explanation[];
}

export interface Reconciliation {
  readonly fromMs: number;
  readonly toMs: number;
  /** By hour and model; hours of which no book has anything are left out. */
  readonly hours: readonly ReconciledHour[];
  /** Entries of the ledger that are not what their records say, the first thousand. */
  readonly ledger: readonly LedgerDifference[];
  /** Hours that nothing explains. */
  readonly unexplained: number;
}
