import { and, inArray, isNotNull } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { type Budget, dayOf, type PeriodSpan } from './budget.ts';
import { budgetAlerts } from './schema.ts';

/**
 * What was told of budgets, as this gateway knows it: it is read once for each period, and noted as it is told. Another
 * gateway may have told more: that it was told stands in the row that tells it, and this only spares the asking.
 */
export interface ToldMemory {
  /** Reads of these periods what is not known, and forgets all others. */
  know(periods: readonly Period[]): Promise<void>;
  /** Of one of those. */
  of(budget: Budget, span: PeriodSpan): PeriodTold;
}

export interface Period {
  readonly budget: Budget;
  readonly span: PeriodSpan;
}

/** What was told of a budget in a period. */
export interface PeriodTold {
  readonly size: number;
  has(endUser: string, percent: number): boolean;
  add(endUser: string, percent: number): void;
  /** Of one of each end user: that there are more than are told. */
  readonly isFull: boolean;
  fill(): void;
  /** The same once it was over. */
  readonly isEnded: boolean;
  end(): void;
}

/** What stands for no end user, whose name is never empty, in a budget of each of them. */
export const manyUsers = { endUser: '', fullPercent: 0, endedPercent: 100 } as const;

/** By which a budget's rows of a period are known. */
export const periodName = ({ budget, span }: Period): string => `${budget.id} ${dayOf(span.fromMs)}`;

export function createToldMemory({ orm }: Db): ToldMemory {
  let known = new Map<string, PeriodTold>();
  return {
    async know(periods) {
      const unknown = periods.filter((period) => !known.has(periodName(period)));
      const kept = new Map(
        periods.map((period) => [periodName(period), known.get(periodName(period)) ?? createTold(period)]),
      );
      if (unknown.length > 0) {
        const days = [...new Set(unknown.map(({ span }) => dayOf(span.fromMs)))];
        const ids = [...new Set(unknown.map(({ budget }) => budget.id))];
        const rows = await orm
          .select()
          .from(budgetAlerts)
          .where(
            and(
              inArray(budgetAlerts.budgetId, ids),
              inArray(budgetAlerts.periodStart, days),
              isNotNull(budgetAlerts.raisedAt),
            ),
          );
        for (const { budgetId, periodStart, endUser, percent } of rows) {
          kept.get(`${budgetId} ${periodStart}`)?.add(endUser, percent);
        }
      }
      known = kept;
    },
    of(budget, span) {
      const told = known.get(periodName({ budget, span }));
      if (told === undefined) throw new Error('a period is known before it is looked at');
      return told;
    },
  };
}

function createTold({ budget }: Period): PeriodTold {
  const told = new Set<string>();
  const marks = new Set<number>();
  const isMark = (endUser: string): boolean => budget.scope.id === null && endUser === manyUsers.endUser;
  return {
    get size() {
      return told.size;
    },
    has: (endUser, percent) => told.has(`${percent} ${endUser}`),
    add(endUser, percent) {
      if (isMark(endUser)) marks.add(percent);
      else told.add(`${percent} ${endUser}`);
    },
    get isFull() {
      return marks.has(manyUsers.fullPercent);
    },
    fill: () => void marks.add(manyUsers.fullPercent),
    get isEnded() {
      return marks.has(manyUsers.endedPercent);
    },
    end: () => void marks.add(manyUsers.endedPercent),
  };
}
