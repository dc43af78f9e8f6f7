import { createHash } from 'node:crypto';

/** The project, API key or end user whose spending a budget limits. */
export interface BudgetScope {
  readonly type: ScopeType;
  /** A UUID, or the end user's name in requests; null for each end user without a budget of their own. */
  readonly id: string | null;
}

export const scopeTypes = ['project', 'api_key', 'user'] as const;
export type ScopeType = (typeof scopeTypes)[number];
export const budgetPeriods = ['daily', 'weekly', 'monthly', 'quarterly', 'yearly', 'total'] as const;
/** `total` is the life of a budget: it never resets. */
export type BudgetPeriod = (typeof budgetPeriods)[number];
export const budgetModes = ['soft', 'hard'] as const;
export type BudgetMode = (typeof budgetModes)[number];

/** A temporary addition to the amount of a budget. */
export interface BudgetRaise {
  readonly amountPicoUsd: bigint;
  /** Moment from which the raise no longer counts, in milliseconds since the Unix epoch. */
  readonly untilMs: number;
}

/** Spending of one period that does not count. Negative: spending elsewhere that counts in addition. */
export interface Forgiven {
  readonly picoUsd: bigint;
  /** Start of the period. */
  readonly fromMs: number;
}

export interface Budget {
  readonly id: string;
  readonly organizationId: string;
  readonly scope: BudgetScope;
  readonly period: BudgetPeriod;
  /** `hard` rejects requests over the budget, `soft` only sends alerts. */
  readonly mode: BudgetMode;
  /** Public names of the models that count, sorted; null for all models. */
  readonly models: readonly string[] | null;
  /** Short text that is equal for equal lists of models; empty for all models. */
  readonly modelsHash: string;
  readonly amountPicoUsd: bigint;
  readonly raise: BudgetRaise | null;
  readonly forgiven: Forgiven | null;
  /** Percentages of the amount that trigger an alert, in ascending order. */
  readonly alertPercents: readonly number[];
  readonly createdAtMs: number;
}

/** A period from its first moment until before its last, in milliseconds since the Unix epoch: starts of UTC days. */
export interface PeriodSpan {
  readonly fromMs: number;
  readonly toMs: number;
}

const dayMs = 86_400_000;
/** End of periods that never reset. */
const neverMs = Date.UTC(9999, 0);

const dayStartMs = (momentMs: number): number => momentMs - (momentMs % dayMs);

/** Returns the calendar period of a moment, in UTC. Weeks begin on Monday. */
export function periodOf(period: Exclude<BudgetPeriod, 'total'>, momentMs: number): PeriodSpan {
  const moment = new Date(momentMs);
  const [year, month] = [moment.getUTCFullYear(), moment.getUTCMonth()];
  switch (period) {
    case 'daily':
      return { fromMs: dayStartMs(momentMs), toMs: dayStartMs(momentMs) + dayMs };
    case 'weekly': {
      const fromMs = dayStartMs(momentMs) - ((moment.getUTCDay() + 6) % 7) * dayMs;
      return { fromMs, toMs: fromMs + 7 * dayMs };
    }
    case 'monthly':
      return { fromMs: Date.UTC(year, month), toMs: Date.UTC(year, month + 1) };
    case 'quarterly': {
      const first = month - (month % 3);
      return { fromMs: Date.UTC(year, first), toMs: Date.UTC(year, first + 3) };
    }
    case 'yearly':
      return { fromMs: Date.UTC(year, 0), toMs: Date.UTC(year + 1, 0) };
  }
}

/**
 * Returns a budget's period of a moment. A request belongs to the period in which it was accepted, however long it
 * runs. `total` begins with the day of the budget's creation; earlier spending of that day is forgiven.
 */
export function spanOf({ period, createdAtMs }: Pick<Budget, 'period' | 'createdAtMs'>, momentMs: number): PeriodSpan {
  return period === 'total' ? { fromMs: dayStartMs(createdAtMs), toMs: neverMs } : periodOf(period, momentMs);
}

/** Returns the amount with the raise that is in effect at a moment, in pico-dollars. */
export function amountAt({ amountPicoUsd, raise }: Pick<Budget, 'amountPicoUsd' | 'raise'>, nowMs: number): bigint {
  return raise === null || nowMs >= raise.untilMs ? amountPicoUsd : amountPicoUsd + raise.amountPicoUsd;
}

/** Returns the pico-dollars of a period's spending that do not count. */
export function forgivenIn({ forgiven }: Pick<Budget, 'forgiven'>, { fromMs }: Pick<PeriodSpan, 'fromMs'>): bigint {
  return forgiven?.fromMs === fromMs ? forgiven.picoUsd : 0n;
}

/** Returns the hash of a sorted list of models: see `Budget`. */
export function hashOfModels(models: readonly string[] | null): string {
  return models === null ? '' : createHash('sha256').update(models.join('\n')).digest('base64url').slice(0, 16);
}

/** Returns the UTC date as YYYY-MM-DD. */
export const dayOf = (momentMs: number): string => new Date(momentMs).toISOString().slice(0, 10);
