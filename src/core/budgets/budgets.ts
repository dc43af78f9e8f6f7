import type { BudgetCache } from './budget-cache.ts';
import { type BudgetChanges, type BudgetChangesOptions, createBudgetChanges } from './changes.ts';
import type { Budget } from './budget.ts';
import { type BudgetListing, type BudgetRef, findBudget, listBudgets } from './rows.ts';

/**
 * Limits for the spending of a project, an API key or an end user per period. A soft budget only sends alerts.
 * Admission enforces hard budgets, and reads from the book here which of them apply to a request.
 */
export { type AppliedBudget, type BudgetCache, createBudgetCache, slotOf } from './budget-cache.ts';
export {
  amountAt,
  type Budget,
  type BudgetMode,
  type BudgetPeriod,
  type BudgetScope,
  forgivenIn,
  periodOf,
  spanOf,
} from './budget.ts';
export { budgetsMax } from './changes.ts';
export type { BudgetAlert } from './send-alerts.ts';
export { createBudgetWatch, type BudgetWatch } from './alert-scan.ts';
export { type BudgetView, seesBudget } from './rows.ts';

/** The budgets of organizations. */
export interface Budgets extends BudgetChanges {
  readonly cache: BudgetCache;
  list(listing: BudgetListing): Promise<{ readonly budgets: readonly Budget[]; readonly more: boolean }>;
  find(ref: BudgetRef): Promise<Budget | null>;
}

export interface BudgetsOptions extends BudgetChangesOptions {
  readonly cache: BudgetCache;
}

export function createBudgets(options: BudgetsOptions): Budgets {
  const { db, cache } = options;
  return {
    ...createBudgetChanges(options),
    cache,
    list: (listing) => listBudgets(db, listing),
    find: (ref) => findBudget(db.orm, ref),
  };
}
