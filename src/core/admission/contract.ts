import { PICO_PER_MICRO } from '#base/money.ts';
import type { KeyLimits, LimitRefusal, LimitsView, ModelLimits, ModelRefusal } from '#core/limits/limits.ts';

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
   * @returns what was added; 0 where the wallet has nothing more, the budget where that has nothing more, null where
   *   nobody knows whether there is more
   */
  extend(requestId: string, moreMicroUsd: bigint, leastMicroUsd?: bigint): Extension | Promise<Extension>;
  /**
   * Another model serves an admitted request from now on: it counts against the limits of that one in its project, and
   * no more against those of the model before.
   * @param isForced it counts there whatever the limits say, as one that had been admitted does
   * @returns false where it does not, which leaves everything as it is
   */
  move(requestId: string, move: ModelMove): boolean | Promise<boolean>;
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
  /** Has everything that the books said read again, before anything else is decided: their history may have gone back. */
  forgetBooks(): Promise<void> | void;
  /** The limits of a key as they stand, without counting anything. */
  view(key: KeyRef): LimitsView | Promise<LimitsView>;
  /**
   * Micro-dollars held for running requests of an organization.
   * @throws AppError billing_unavailable while nobody knows what other gateways hold
   */
  heldMicroUsd(organizationId: string): bigint | Promise<bigint>;
  /**
   * The same against a budget's spending, by the name of its slot.
   * @throws AppError billing_unavailable while nobody knows what other gateways hold
   */
  heldOfSlot(organizationId: string, slot: string): bigint | Promise<bigint>;
}

/** Micro-dollars that were added to a hold, the budget that has nothing more, or null where nobody knows. */
export type Extension = bigint | HardBudget | null;

/** Who spends what a request costs. Ids are UUIDs. */
export interface Spender {
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  /** The end user as the request names him; null where it does not, or where nobody counts that. */
  readonly user: string | null;
}

/** Of whom spending is counted, and in which time: of requests that were accepted from `fromMs` until before `toMs`. */
export interface Spending {
  readonly type: 'project' | 'api_key' | 'user';
  /** A UUID, or the end user as requests name him. */
  readonly id: string;
  readonly period: 'daily' | 'monthly';
  /** Starts of UTC days, in milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** A budget that no request may pass. */
export interface HardBudget {
  readonly budgetId: string;
  /** Names its spending among all of the organization, without spaces, colons and exclamation marks. */
  readonly slot: string;
  readonly spending: Spending;
  readonly amountMicroUsd: bigint;
}

/** What admission knows of budgets: whoever has none costs it one look into a map. */
export interface HardBudgets {
  /** Those that hold now for a request, by when it was accepted; `noBudgets` where there are none. */
  of(spender: Spender, requestId: string): readonly HardBudget[];
}

export const noBudgets: readonly HardBudget[] = Object.freeze([]);

/** The limits that a project has for a model. */
export interface ProjectLimit {
  /** Names its counts among all of the organization: a UUID, another one where the limits are taken back and set anew. */
  readonly slot: string;
  /** UUID. */
  readonly projectId: string;
  /** Catalog id. */
  readonly model: string;
  readonly limits: ModelLimits;
}

/** What admission knows of them: whoever has none costs it one look into a map. */
export interface ProjectLimits {
  of(spender: Spender, model: string): ProjectLimit | null;
}

/** The limits of its project that hold now for a request. */
export function projectLimitOf(
  projectLimits: ProjectLimits | undefined,
  { spender, model }: Pick<AdmitRequest, 'spender' | 'model'>,
): ProjectLimit | null {
  if (projectLimits === undefined || spender === undefined || model === undefined) return null;
  return projectLimits.of(spender, model);
}

export interface ModelMove {
  /** Catalog id. */
  readonly model: string;
  /** Tokens that the request may come to use of it. */
  readonly estimatedTokens: number;
  readonly isForced: boolean;
}

/** Requests of a model in a project that the books have of a UTC day, and which of those that were asked about are among them. */
export interface CountedRequests {
  readonly requests: number;
  readonly counted: readonly string[];
}

/** Whose requests are counted, and of which UTC day: its first moment, in milliseconds since the Unix epoch. */
export interface CountedDay {
  readonly organizationId: string;
  readonly projectId: string;
  readonly model: string;
  readonly dayMs: number;
}

/** Reads them at one moment. */
export type LoadDay = (day: CountedDay, requestIds: readonly string[]) => Promise<CountedRequests>;

/** What the books have of a spending, and which of the requests that were asked about are in it. */
export interface Spent {
  readonly picoUsd: bigint;
  readonly counted: readonly string[];
}

/** Reads it at one moment. */
export type LoadSpent = (organizationId: string, spending: Spending, requestIds: readonly string[]) => Promise<Spent>;

/** The hard budgets that hold for a request now. */
export function budgetsOf(
  budgets: HardBudgets | undefined,
  { spender, requestId }: BudgetedRequest,
): readonly HardBudget[] {
  return spender === undefined || budgets === undefined ? noBudgets : budgets.of(spender, requestId);
}

/** Asks about budgets, and again where others hold by the time of the answer: a change that was answered is gone by. */
export async function askOfCurrent<T>(
  budgets: () => readonly HardBudget[],
  ask: (budgets: readonly HardBudget[]) => Promise<T>,
): Promise<T> {
  for (;;) {
    const asked = budgets();
    const answer = await ask(asked);
    if (areSame(asked, budgets())) return answer;
  }
}

function areSame(some: readonly HardBudget[], others: readonly HardBudget[]): boolean {
  if (some.length !== others.length) return false;
  return some.every(({ slot, amountMicroUsd }, index) => {
    const other = others[index];
    return other?.slot === slot && other.amountMicroUsd === amountMicroUsd;
  });
}

interface BudgetedRequest {
  readonly spender?: Spender | undefined;
  readonly requestId: string;
}

/** The least of what budgets leave beside a wallet that has `availableMicroUsd`; never below zero where that is not. */
export function leastOf(availableMicroUsd: bigint, lefts: readonly bigint[]): bigint {
  let least = availableMicroUsd;
  for (const left of lefts) if (left < least) least = left < 0n ? 0n : left;
  return least;
}

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
  /** Whose budgets hold for it beside those of its key; absent: none do. */
  readonly spender?: Spender;
  /** Catalog id of the model that serves it; absent: no limits of its project hold. */
  readonly model?: string;
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
  | {
      readonly ok: false;
      readonly code: 'budget_exceeded';
      readonly budget: HardBudget;
      readonly spentPicoUsd: bigint;
      readonly heldMicroUsd: bigint;
    }
  | { readonly ok: false; readonly code: 'billing_unavailable' }
  /** The key was revoked after this gateway looked it up. */
  | { readonly ok: false; readonly code: 'unauthorized' }
  | ({ readonly ok: false; readonly limits: LimitsView; readonly ofProject?: undefined } & LimitRefusal)
  | {
      readonly ok: false;
      readonly code: 'rate_limit_exceeded';
      readonly limits: LimitsView;
      /** Whose limit it is that refuses. */
      readonly ofProject: Pick<ProjectLimit, 'projectId' | 'model'> & Pick<ModelRefusal, 'name'>;
      readonly view: ModelRefusal['view'];
      readonly retryAfterMs: number;
    };
