import type { Log } from '#base/log.ts';
import { type Budgets, type BudgetsOptions, createBudgetBook, createBudgets } from '#core/budgets/budgets.ts';
import { createProjectRateLimits, createRateLimitBook, type ProjectRateLimits } from '#core/rate-limits/rate-limits.ts';
import type { AdmissionParts } from './admission.ts';
import type { Coordination } from './coordination.ts';
import type { Part } from './lifecycle.ts';

const lookMs = 1000;

type BoundsOptions = Pick<BudgetsOptions, 'db' | 'clock' | 'audit'> & { readonly log: Log };

/** Limits of requests besides those of key and wallet: budgets, and rate limits of projects. */
export interface Bounds {
  readonly budgets: Budgets;
  readonly rateLimits: ProjectRateLimits;
  /** Books in which admission finds the budgets and limits in effect. */
  readonly books: Pick<AdmissionParts, 'budgets' | 'projectLimits'>;
  /** Reads budgets and limits of projects again. */
  readonly load: () => Promise<void>;
  readonly part: Part;
}

/** Opens budgets and limits of projects. A change is answered when every gateway applies the change. */
export function openBounds(options: BoundsOptions, coordination: Coordination): Bounds {
  const budgetBook = createBudgetBook(options);
  const limitBook = createRateLimitBook(options);
  const load = async (): Promise<void> => {
    await Promise.all([budgetBook.load(), limitBook.load()]);
  };
  const part: Part = {
    name: 'budgets and limits of projects',
    jobs: [
      { name: 'changes of budgets', everyMs: lookMs, where: 'every', run: () => budgetBook.look() },
      { name: 'changes of rate limits', everyMs: lookMs, where: 'every', run: () => limitBook.look() },
    ],
    start: load,
  };
  const createReload = (kind: 'budgets' | 'rate limits', load: () => Promise<void>): (() => Promise<void>) => {
    coordination.onMessage(kind, load);
    return async () => {
      await load();
      await coordination.makeKnown({ kind });
    };
  };
  const budgetsChanged = createReload('budgets', () => budgetBook.load());
  const limitsChanged = createReload('rate limits', () => limitBook.load());
  return {
    budgets: createBudgets({ ...options, book: budgetBook, onChanged: budgetsChanged }),
    rateLimits: createProjectRateLimits({ ...options, book: limitBook, onChanged: limitsChanged }),
    books: { budgets: budgetBook, projectLimits: limitBook },
    load,
    part,
  };
}
