import type { Log } from '#base/log.ts';
import { type Budgets, type BudgetsOptions, createBudgetCache, createBudgets } from '#core/budgets/budgets.ts';
import {
  createProjectRateLimits,
  createRateLimitCache,
  type ProjectRateLimits,
} from '#core/rate-limits/rate-limits.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { AdmissionParts } from './admission.ts';
import type { Coordination } from './coordination.ts';
import type { Part } from './lifecycle.ts';

const pollMs = 1000;

type BoundsOptions = Pick<BudgetsOptions, 'db' | 'clock' | 'audit'> & {
  readonly log: Log;
  readonly metering: Pick<Metering, 'spending'>;
};

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
  const budgetCache = createBudgetCache(options);
  const limitCache = createRateLimitCache(options);
  const load = async (): Promise<void> => {
    await Promise.all([budgetCache.load(), limitCache.load()]);
  };
  const part: Part = {
    name: 'budgets and limits of projects',
    jobs: [
      { name: 'changes of budgets', everyMs: pollMs, where: 'every', run: () => budgetCache.refreshIfChanged() },
      { name: 'changes of rate limits', everyMs: pollMs, where: 'every', run: () => limitCache.refreshIfChanged() },
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
  const spent: BudgetsOptions['spent'] = (...asked) => options.metering.spending.spentOf(...asked);
  const budgetsChanged = createReload('budgets', () => budgetCache.load());
  const limitsChanged = createReload('rate limits', () => limitCache.load());
  return {
    budgets: createBudgets({ ...options, spent, cache: budgetCache, onChanged: budgetsChanged }),
    rateLimits: createProjectRateLimits({ ...options, cache: limitCache, onChanged: limitsChanged }),
    books: { budgets: budgetCache, projectLimits: limitCache },
    load,
    part,
  };
}
