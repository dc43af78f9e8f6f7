import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { type BudgetCache, type BudgetWatch, createBudgetWatch } from '#core/budgets/budgets.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './lifecycle.ts';

export interface BudgetAlertsParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly foundation: Pick<Foundation, 'alerts'>;
  readonly metering: Metering;
  readonly cache: Pick<BudgetCache, 'usersCountedFrom'>;
}

const scanMs = 5000;
const forgetMs = 3_600_000;
/** Milliseconds that spending of end users is kept, and longer where a budget counts a longer period. */
const usersKeptMs = 100 * 86_400_000;

/** Connects budgets to the books for the alerts of budgets. */
export function createBudgetAlerts(parts: BudgetAlertsParts): { readonly watch: BudgetWatch; readonly part: Part } {
  const { metering, clock, cache } = parts;
  const watch = createBudgetWatch({
    ...parts,
    spent: (organizationId, spendings) => metering.spending.spentOf(organizationId, spendings),
    users: (organizationId, span) => metering.spending.usersWith(organizationId, span),
    countUsers: (organizationId, span) => metering.spending.countUsersWith(organizationId, span),
    raiseIn: (tx, alert) => parts.foundation.alerts.raiseIn(tx, alert),
  });
  const forget = async (): Promise<void> => {
    await watch.forgetOld();
    await metering.spending.forgetUsers(clock.now() - usersKeptMs, cache.usersCountedFrom());
  };
  const part: Part = {
    name: 'alerts of budgets',
    jobs: [
      { name: 'tell of budgets', everyMs: scanMs, where: 'one', run: () => watch.scan() },
      { name: 'forget what end users spent long ago', everyMs: forgetMs, where: 'one', run: forget },
    ],
  };
  return { watch, part };
}
