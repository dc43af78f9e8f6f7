/** Whose spending a budget bounds. */
export interface BudgetScope {
  readonly type: ScopeType;
  /** A UUID, or the end user as requests name him; null for each end user that has no budget of his own. */
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
  /** `hard` refuses what would pass it, `soft` only tells of it. */
  readonly mode: BudgetMode;
  readonly amountPicoUsd: bigint;
  /** Percent of the amount at which somebody is told, in order. */
  readonly alertPercents: readonly number[];
  readonly createdAtMs: number;
}

/** A day or a month of UTC: first moment, and that of the next one, in milliseconds since the Unix epoch. */
export interface PeriodSpan {
  readonly fromMs: number;
  readonly toMs: number;
}

const dayMs = 86_400_000;

/** The period of a moment. A request belongs to that in which it was accepted, however long it runs. */
export function periodOf(period: BudgetPeriod, momentMs: number): PeriodSpan {
  if (period === 'daily') {
    const fromMs = momentMs - (momentMs % dayMs);
    return { fromMs, toMs: fromMs + dayMs };
  }
  const moment = new Date(momentMs);
  const [year, month] = [moment.getUTCFullYear(), moment.getUTCMonth()];
  return { fromMs: Date.UTC(year, month), toMs: Date.UTC(year, month + 1) };
}

/** YYYY-MM-DD, of UTC. */
export const dayOf = (momentMs: number): string => new Date(momentMs).toISOString().slice(0, 10);
