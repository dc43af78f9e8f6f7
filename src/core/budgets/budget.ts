/** The project, API key or end user whose spending a budget limits. */
export interface BudgetScope {
  readonly type: ScopeType;
  /** A UUID, or the end user's name in requests; null for each end user without a budget of their own. */
  readonly id: string | null;
}

export const scopeTypes = ['project', 'api_key', 'user'] as const;
export type ScopeType = (typeof scopeTypes)[number];
export const budgetPeriods = ['daily', 'monthly'] as const;
export type BudgetPeriod = (typeof budgetPeriods)[number];
export const budgetModes = ['soft', 'hard'] as const;
export type BudgetMode = (typeof budgetModes)[number];

export interface Budget {
  readonly id: string;
  readonly organizationId: string;
  readonly scope: BudgetScope;
  readonly period: BudgetPeriod;
  /** `hard` rejects requests over the budget, `soft` only sends alerts. */
  readonly mode: BudgetMode;
  readonly amountPicoUsd: bigint;
  /** Percentages of the amount that trigger an alert, in ascending order. */
  readonly alertPercents: readonly number[];
  readonly createdAtMs: number;
}

/** A UTC day or month: its first moment and the first moment of the next, in milliseconds since the Unix epoch. */
export interface PeriodSpan {
  readonly fromMs: number;
  readonly toMs: number;
}

const dayMs = 86_400_000;

/** Returns the period of a moment. A request belongs to the period in which it was accepted, however long it runs. */
export function periodOf(period: BudgetPeriod, momentMs: number): PeriodSpan {
  if (period === 'daily') {
    const fromMs = momentMs - (momentMs % dayMs);
    return { fromMs, toMs: fromMs + dayMs };
  }
  const moment = new Date(momentMs);
  const [year, month] = [moment.getUTCFullYear(), moment.getUTCMonth()];
  return { fromMs: Date.UTC(year, month), toMs: Date.UTC(year, month + 1) };
}

/** Returns the UTC date as YYYY-MM-DD. */
export const dayOf = (momentMs: number): string => new Date(momentMs).toISOString().slice(0, 10);
