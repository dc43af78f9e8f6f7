import type { Log } from '#base/log.ts';
import {
  type BudgetBook,
  type Budgets,
  type BudgetsOptions,
  createBudgetBook,
  createBudgets,
} from '#core/budgets/budgets.ts';
import {
  createProjectRateLimits,
  createRateLimitBook,
  type ProjectRateLimits,
  type RateLimitBook,
} from '#core/rate-limits/rate-limits.ts';
import type { AdmissionParts } from './admission.ts';
import type { Coordination } from './coordination.ts';
import type { Part } from './parts.ts';

const lookMs = 1000;

type BoundsOptions = Pick<BudgetsOptions, 'db' | 'clock' | 'audit'> & { readonly log: Log };

/** What bounds requests beside their key and their wallet: budgets, and the limits of projects. */
export function openBounds(
  options: BoundsOptions,
  coordination: Coordination,
): {
  readonly budgets: { readonly budgets: Budgets; readonly part: Part };
  readonly limits: { readonly rateLimits: ProjectRateLimits; readonly part: Part };
  /** What admission asks which of them hold. */
  readonly books: Pick<AdmissionParts, 'budgets' | 'projectLimits'>;
} {
  const budgets = openBudgets(options, coordination);
  const limits = openRateLimits(options, coordination);
  return { budgets, limits, books: { budgets: budgets.book, projectLimits: limits.book } };
}

/** A change of one is answered when every gateway goes by it. */
function openBudgets(
  options: BoundsOptions,
  coordination: Coordination,
): { readonly book: BudgetBook; readonly budgets: Budgets; readonly part: Part } {
  const book = createBudgetBook(options);
  const onChanged = async (): Promise<void> => {
    await book.load();
    await coordination.makeKnown({ kind: 'budgets' });
  };
  coordination.onMessage('budgets', () => book.load());
  const part: Part = {
    name: 'budgets',
    jobs: [{ name: 'changes of budgets', everyMs: lookMs, where: 'every', run: () => book.look() }],
    start: () => book.load(),
  };
  return { book, budgets: createBudgets({ ...options, book, onChanged }), part };
}

/** The same of the limits of projects. */
function openRateLimits(
  options: BoundsOptions,
  coordination: Coordination,
): { readonly book: RateLimitBook; readonly rateLimits: ProjectRateLimits; readonly part: Part } {
  const book = createRateLimitBook(options);
  const onChanged = async (): Promise<void> => {
    await book.load();
    await coordination.makeKnown({ kind: 'rate limits' });
  };
  coordination.onMessage('rate limits', () => book.load());
  const part: Part = {
    name: 'limits of projects',
    jobs: [{ name: 'changes of rate limits', everyMs: lookMs, where: 'every', run: () => book.look() }],
    start: () => book.load(),
  };
  return { book, rateLimits: createProjectRateLimits({ ...options, book, onChanged }), part };
}
