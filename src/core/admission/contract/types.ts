import { PICO_PER_MICRO } from '#base/money.ts';
import type { KeyLimits, LimitRefusal, LimitsView, ModelLimits, ModelRefusal } from '#core/limits/limits.ts';

/**
 * Admission store that decides whether a request may run: checks the wallet and the limits of the key, all or nothing
 * in one call. The request path calls only `admit`, `extend` and `settle`. The state is in this process's memory, or in
 * Redis if several gateways share the limits.
 *
 * available = balance − held, in whole micro-dollars. No hold exceeds the available amount, and a request is charged at
 * most its hold, so no wallet goes below zero. Balances and month counts are loaded from Postgres and then follow each
 * recorded charge and credit. While Postgres is unavailable, known values are used, and unknown ones give
 * `billing_unavailable`.
 */
export interface Admission {
  /** Admits a request, all or nothing. Gives a hold between `needed` and `wanted`: as much as is available. */
  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult>;
  /** Returns what `admit` would return now, without counting or holding anything. `view` shows the current limits. */
  check(request: AdmitRequest): AdmitResult | Promise<AdmitResult>;
  /**
   * Adds to a hold as much as is available, up to `moreMicroUsd`.
   * @param leastMicroUsd if less than this is available, nothing is added
   * @returns the amount added; 0 if the wallet has nothing more; the budget if a budget has nothing more; null if it is
   *   unknown whether there is more
   */
  extend(requestId: string, moreMicroUsd: bigint, leastMicroUsd?: bigint): Extension | Promise<Extension>;
  /**
   * Moves an admitted request to another model: from now on it counts against the budgets of that model and the limits
   * that its project has for it, and no longer against those for the model before.
   * @param isForced counts the request whatever budgets and limits are, because it was admitted before
   * @returns false if the limits reject the request, or a budget does not have its hold; then nothing changes
   */
  move(requestId: string, move: ModelMove): boolean | Promise<boolean>;
  /**
   * Marks the usage of a request as durable, but not yet in the database: gives back its slot and reservations, and
   * shrinks the hold to the coming charge, in whole micro-dollars. The hold stays until `settle`, even after this
   * gateway has ended.
   */
  spooled(requestId: string, used: Settlement): void;
  /**
   * Marks the usage of a request as recorded in the database: gives back its hold, and its slot and reservations if
   * they are still taken. Only the first call for an id has an effect.
   */
  settle(requestId: string, used: Settlement): void;
  /** Settles a request that an earlier process admitted; does nothing if nothing is held for it. */
  settleReplayed(organizationId: string, keyId: string, requestId: string, used: Settlement): void;
  /**
   * Has all values from the database read again before the next decision: the database may have been restored to an
   * older state.
   */
  forgetBooks(): Promise<void> | void;
  /**
   * Returns the current limits of a key for headers, without counting anything. `monthTokensLeft` and `concurrencyLeft`
   * may be too large: `readLimitsLeft` reads all limits.
   */
  view(key: KeyRef): LimitsView | Promise<LimitsView>;
  /**
   * Returns the micro-dollars held for running requests of an organization.
   * @throws AppError billing_unavailable while it is unknown what other gateways hold
   */
  heldMicroUsd(organizationId: string): bigint | Promise<bigint>;
  /**
   * Returns the micro-dollars held against a budget's spending, by the name of its slot.
   * @throws AppError billing_unavailable while it is unknown what other gateways hold
   */
  heldOfSlot(organizationId: string, slot: string): bigint | Promise<bigint>;
}

/** Micro-dollars added to a hold, the budget that has nothing more, or null if it is unknown whether there is more. */
export type Extension = bigint | HardBudget | null;

/** Organization, key, project and end user that spend the cost of a request. Ids are UUIDs. */
export interface Spender {
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  /** The end user as the request names them; null if the request names none, or if no budget counts end users. */
  readonly user: string | null;
}

/** Spending of a project, key or end user in a period: requests accepted from `fromMs` until before `toMs`. */
export interface Spending {
  readonly type: 'project' | 'api_key' | 'user';
  /** A UUID, or the end user as requests name them. */
  readonly id: string;
  readonly period: 'daily' | 'weekly' | 'monthly' | 'quarterly' | 'yearly' | 'total';
  /** Catalog ids of the models that count; null or absent for all. */
  readonly models?: readonly string[] | null;
  /** Starts of UTC days, in milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** A budget that no request may exceed. */
export interface HardBudget {
  readonly budgetId: string;
  /** Name of its spending, unique in the organization, without spaces, colons and exclamation marks. */
  readonly slot: string;
  readonly spending: Spending;
  /** Most that may be spent in the period. */
  readonly amountMicroUsd: bigint;
  /** The budget as people see it: its amount, and spending of the period that does not count. */
  readonly allowedPicoUsd: bigint;
  readonly forgivenPicoUsd: bigint;
}

/** Gives admission the budgets. A request without budgets costs one lookup in a map. */
export interface HardBudgets {
  /**
   * Returns the budgets in effect for a request that a model serves, by the time when it was accepted; `noBudgets` if
   * there are none.
   */
  of(spender: Spender, requestId: string, model: string): readonly HardBudget[];
}

export const noBudgets: readonly HardBudget[] = Object.freeze([]);

/** The limits that a project has for a model. */
export interface ProjectLimit {
  /** Name of its counts, unique in the organization: a UUID that changes when the limits are removed and set again. */
  readonly slot: string;
  /** UUID. */
  readonly projectId: string;
  /** Catalog id. */
  readonly model: string;
  readonly limits: ModelLimits;
}

/** Gives admission the limits of projects. A project without limits costs one lookup in a map. */
export interface ProjectLimits {
  of(spender: Spender, model: string): ProjectLimit | null;
}

/** Returns the project limits in effect for a request. */
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
  /** Tokens of the model that the request may use. */
  readonly estimatedTokens: number;
  readonly isForced: boolean;
}

/**
 * Requests of a model in a project that the database has for a UTC day, and which of the given requests are among them.
 */
export interface CountedRequests {
  readonly requests: number;
  readonly counted: readonly string[];
}

/**
 * Organization, project and model whose requests are counted, and the start of the UTC day in ms since the Unix epoch.
 */
export interface CountedDay {
  readonly organizationId: string;
  readonly projectId: string;
  readonly model: string;
  readonly dayMs: number;
}

/** Reads the counted requests of a day in one snapshot. */
export type LoadDay = (day: CountedDay, requestIds: readonly string[]) => Promise<CountedRequests>;

/** Spending that the database has, and which of the given requests are included. */
export interface Spent {
  readonly picoUsd: bigint;
  readonly counted: readonly string[];
}

/** Reads spending in one snapshot. */
export type LoadSpent = (organizationId: string, spending: Spending, requestIds: readonly string[]) => Promise<Spent>;

/** Returns the hard budgets in effect for a request. */
export function budgetsOf(
  budgets: HardBudgets | undefined,
  { spender, requestId, model = '' }: BudgetedRequest,
): readonly HardBudget[] {
  return spender === undefined || budgets === undefined ? noBudgets : budgets.of(spender, requestId, model);
}

/**
 * Asks about the budgets in effect, and asks again if they changed before the answer: an answered change takes effect
 * at once.
 */
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
  /** Catalog id. Absent: only budgets of all models apply. */
  readonly model?: string | undefined;
}

/** Returns the least of what the wallet and the budgets have left; never below zero unless the wallet is. */
export function leastOf(availableMicroUsd: bigint, lefts: readonly bigint[]): bigint {
  let least = availableMicroUsd;
  for (const left of lefts) if (left < least) least = left < 0n ? 0n : left;
  return least;
}

/** Amount to add to a hold. Nothing is added if less than `leastMicroUsd` is available. */
export interface Wanted {
  readonly moreMicroUsd: bigint;
  readonly leastMicroUsd: bigint;
}

/** A key with the limits in effect for it. */
export interface KeyRef {
  readonly organizationId: string;
  readonly keyId: string;
  readonly limits: KeyLimits;
}

/** Tokens that the database has for a key, and which of the given requests are included. */
export interface CountedTokens {
  readonly tokens: number;
  readonly counted: readonly string[];
}

export interface AdmitRequest extends KeyRef {
  readonly requestId: string;
  /** Least useful hold: the prompt and one token. */
  readonly neededMicroUsd: bigint;
  readonly wantedMicroUsd: bigint;
  /** Tokens that the request may use, input and output together. */
  readonly estimatedTokens: number;
  /** Spender whose budgets apply besides those of the key. Absent: no budgets apply. */
  readonly spender?: Spender | undefined;
  /** Catalog id of the model that serves the request. Absent: no limits of its project apply. */
  readonly model?: string | undefined;
}

export interface Settlement {
  readonly chargedPicoUsd: bigint;
  /** Input and output together, as billed. */
  readonly tokens: number;
}

/** Returns the whole micro-dollars that a charge holds. */
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
      /** Project and model of the limit that rejects. */
      readonly ofProject: Pick<ProjectLimit, 'projectId' | 'model'> & Pick<ModelRefusal, 'name'>;
      readonly view: ModelRefusal['view'];
      readonly retryAfterMs: number;
    };
