import { PICO_PER_MICRO } from '#base/money.ts';
import type { KeyLimits, LimitRefusal, LimitsView } from '#core/limits/limits.ts';

/**
 * The admission store that decides whether a request may run: the wallet's holds and the limits of the key, all or
 * nothing in one call. `admit`, `extend` and `settle` are all that the request path asks; behind them is this
 * process's memory, or Redis where several gateways share the limits.
 *
 * available = balance − held, in whole micro-dollars, and no hold is ever given beyond it: since a request is charged
 * at most its hold, no wallet goes below zero. Balances and month counts are loaded from Postgres and then follow what
 * is booked; while Postgres is away what is known keeps serving, the unknown is `billing_unavailable`.
 */
export interface Admission {
  /** All or nothing. A hold between `needed` and `wanted` is given: as much as is available. */
  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult>;
  /** What `admit` would say now, without counting or holding anything; `view` shows the limits as they stand. */
  check(request: AdmitRequest): AdmitResult | Promise<AdmitResult>;
  /**
   * Adds to a hold as much as is available, up to `moreMicroUsd`.
   * @param leastMicroUsd where less than this is available nothing is added
   * @returns what was added; 0 where the wallet has nothing more, null where nobody knows whether it has
   */
  extend(requestId: string, moreMicroUsd: bigint, leastMicroUsd?: bigint): Extension | Promise<Extension>;
  /**
   * What was used is durable, and not in the books yet: slot and reservations are given back, and the hold shrinks to
   * what will be charged, in whole micro-dollars. It stays until `settle`, also when this gateway is gone.
   */
  spooled(requestId: string, used: Settlement): void;
  /**
   * What was used is in the books: the hold is given back, with slot and reservations where they are still taken. Only
   * the first call for an id counts.
   */
  settle(requestId: string, used: Settlement): void;
  /** The same for a request that an earlier run admitted; does nothing where nothing is held for it. */
  settleReplayed(organizationId: string, keyId: string, requestId: string, used: Settlement): void;
  /** The limits of a key as they stand, without counting anything. */
  view(key: KeyRef): LimitsView | Promise<LimitsView>;
  /**
   * Micro-dollars held for running requests of an organization.
   * @throws AppError billing_unavailable while nobody knows what other gateways hold
   */
  heldMicroUsd(organizationId: string): bigint | Promise<bigint>;
}

/** Micro-dollars that were added to a hold; null where nobody knows whether there is more. */
export type Extension = bigint | null;

/** What is to be added to a hold: nothing where that is less than the least. */
export interface Wanted {
  readonly moreMicroUsd: bigint;
  readonly leastMicroUsd: bigint;
}

/** A key with the limits that hold for it now. */
export interface KeyRef {
  readonly organizationId: string;
  readonly keyId: string;
  readonly limits: KeyLimits;
}

/** Tokens that the books have of a key, and which of the requests that were asked about are among them. */
export interface CountedTokens {
  readonly tokens: number;
  readonly counted: readonly string[];
}

export interface AdmitRequest extends KeyRef {
  readonly requestId: string;
  /** The least that makes sense: the prompt and one token. */
  readonly neededMicroUsd: bigint;
  readonly wantedMicroUsd: bigint;
  /** Tokens that the request may come to use, input and output together. */
  readonly estimatedTokens: number;
}

export interface Settlement {
  readonly chargedPicoUsd: bigint;
  /** Input and output together, as they are billed. */
  readonly tokens: number;
}

/** What a charge holds: whole micro-dollars. */
export const heldFor = (chargedPicoUsd: bigint): bigint => (chargedPicoUsd + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;

export type AdmitResult =
  | { readonly ok: true; readonly heldMicroUsd: bigint; readonly view: LimitsView }
  | AdmitRefusal;

export type AdmitRefusal =
  | {
      readonly ok: false;
      readonly code: 'insufficient_funds';
      readonly balancePicoUsd: bigint;
      readonly heldMicroUsd: bigint;
    }
  | { readonly ok: false; readonly code: 'billing_unavailable' }
  /** The key was revoked after this gateway looked it up. */
  | { readonly ok: false; readonly code: 'unauthorized' }
  | ({ readonly ok: false; readonly limits: LimitsView } & LimitRefusal);
