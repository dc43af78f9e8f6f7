import { and, inArray, isNotNull } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { type Budget, dayOf, type PeriodSpan } from './budget.ts';
import { budgetAlerts } from './schema.ts';

/**
 * This gateway's memory of sent alerts: read once per period, and updated with each alert sent. Another gateway may
 * have sent more: the rows decide, and this memory only saves queries.
 */
export interface SentAlertMemory {
  /** Reads the alerts of periods that are not in memory, and forgets all other periods. */
  know(periods: readonly Period[]): Promise<void>;
  /** Returns the alerts of a period that was passed to `know`. */
  of(budget: Budget, span: PeriodSpan): SentAlerts;
}

export interface Period {
  readonly budget: Budget;
  readonly span: PeriodSpan;
}

/** Alerts sent for a budget in a period. */
export interface SentAlerts {
  readonly size: number;
  has(endUser: string, percent: number): boolean;
  add(endUser: string, percent: number): void;
  /** True if a budget for each end user has sent the alert that it sends no more. */
  readonly isFull: boolean;
  fill(): void;
  /** True if the corresponding alert after the end of the period was sent. */
  readonly isEnded: boolean;
  end(): void;
}

/** Values of the rows about no single end user, for budgets of each end user. End users' names are never empty. */
export const manyUsers = { endUser: '', fullPercent: 0, endedPercent: 100 } as const;

/** Returns the key of a budget's rows in a period. */
export const periodName = ({ budget, span }: Period): string => `${budget.id} ${dayOf(span.fromMs)}`;

export function createSentAlertMemory({ orm }: Db): SentAlertMemory {
  let known = new Map<string, SentAlerts>();
  return {
    async know(periods) {
      const unknown = periods.filter((period) => !known.has(periodName(period)));
      const kept = new Map(
        periods.map((period) => [periodName(period), known.get(periodName(period)) ?? createSentAlerts(period)]),
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
      const sent = known.get(periodName({ budget, span }));
      if (sent === undefined) throw new Error('a period must be known before it is checked');
      return sent;
    },
  };
}

function createSentAlerts({ budget }: Period): SentAlerts {
  const sent = new Set<string>();
  const marks = new Set<number>();
  const isMark = (endUser: string): boolean => budget.scope.id === null && endUser === manyUsers.endUser;
  return {
    get size() {
      return sent.size;
    },
    has: (endUser, percent) => sent.has(`${percent} ${endUser}`),
    add(endUser, percent) {
      if (isMark(endUser)) marks.add(percent);
      else sent.add(`${percent} ${endUser}`);
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
