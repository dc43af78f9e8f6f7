import { and, count, eq, isNotNull, isNull, ne } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { formatUsd } from '#base/money.ts';
import { amountAt, dayOf } from './budget.ts';
import { scopeText } from './changes.ts';
import { budgetAlerts } from './schema.ts';
import { manyUsers, type Period } from './sent-alerts.ts';

/** Fields of every budget alert. */
interface BudgetData {
  readonly budget_id: string;
  readonly scope_type: string;
  readonly period: string;
  /** Public names; null for all models. */
  readonly models: readonly string[] | null;
  /** UTC date as YYYY-MM-DD. */
  readonly period_start: string;
  /** Seconds since the Unix epoch; null for the life of the budget. */
  readonly resets_at: number | null;
  readonly mode: string;
  /** With a raise that is in effect. */
  readonly amount: string;
  readonly currency: 'USD';
  readonly percent: number;
}

/** An alert about a budget: one per percentage and period. */
export type BudgetAlert = {
  readonly organizationId: string;
  /** Key that is equal for alerts that are sent only once. */
  readonly once: string;
} & (
  | {
      /** `budget.exceeded` from 100 percent on, and if a hard budget rejected a request. */
      readonly type: 'budget.reached' | 'budget.exceeded';
      /** `scope_id` is the public id. */
      readonly data: BudgetData & { readonly scope_id: string; readonly spent: string };
    }
  | {
      /** A budget for each end user has sent its maximum number of alerts. */
      readonly type: 'budget.many_users';
      readonly data: BudgetData & { readonly alerts: number; readonly end_users: number; readonly is_over: boolean };
    }
);

export type RaiseBudgetAlert = (tx: Transaction, alert: BudgetAlert) => Promise<void>;

export interface SendAlertOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly raiseIn: RaiseBudgetAlert;
}

type AlertRow = Omit<typeof budgetAlerts.$inferInsert, 'raisedAt'>;

const dataOf = ({ budget, span }: Period, percent: number, nowMs: number): BudgetData => ({
  budget_id: formatId('budget', budget.id),
  scope_type: budget.scope.type,
  period: budget.period,
  models: budget.models,
  period_start: dayOf(span.fromMs),
  resets_at: budget.period === 'total' ? null : span.toMs / 1000,
  mode: budget.mode,
  amount: formatUsd(amountAt(budget, nowMs)),
  currency: 'USD' as const,
  percent,
});

export interface AlertThreshold {
  readonly percent: number;
  /** Maximum alerts of the budget in this period; null for no maximum: a budget with one scope sends few. */
  readonly alertsMax: number | null;
}

/**
 * Sends the alert that a spender has reached a percentage of a budget, or was rejected by the budget. Sends it once,
 * even if several gateways try.
 * @returns false if the budget has sent its maximum number of alerts
 */
export async function sendBudgetAlert(
  options: SendAlertOptions,
  { budget, span, id, picoUsd }: Period & { readonly id: string; readonly picoUsd: bigint },
  { percent, alertsMax }: AlertThreshold,
): Promise<boolean> {
  const { type } = budget.scope;
  const common = dataOf({ budget, span }, percent, options.clock.now());
  const data = { ...common, scope_id: scopeText({ type, id }), spent: formatUsd(picoUsd) };
  const row = { budgetId: budget.id, periodStart: dayOf(span.fromMs), endUser: type === 'user' ? id : '', percent };
  if (alertsMax !== null && (await countSentAlerts(options.db, row)) >= alertsMax) return false;
  await sendOnce(options, row, {
    organizationId: budget.organizationId,
    type: percent >= 100 ? 'budget.exceeded' : 'budget.reached',
    data,
    once: [row.budgetId, row.periodStart, row.endUser, percent].join('\n'),
  });
  return true;
}

/** Counts alerts about end users in one period. */
async function countSentAlerts({ orm }: Db, { budgetId, periodStart }: Pick<AlertRow, 'budgetId' | 'periodStart'>) {
  const [row] = await orm
    .select({ alertsSent: count() })
    .from(budgetAlerts)
    .where(
      and(
        eq(budgetAlerts.budgetId, budgetId),
        eq(budgetAlerts.periodStart, periodStart),
        ne(budgetAlerts.endUser, manyUsers.endUser),
        isNotNull(budgetAlerts.raisedAt),
      ),
    );
  return row?.alertsSent ?? 0;
}

export interface ManyUsers extends Period {
  /** End users in the records who have reached the first percentage with an alert. */
  readonly endUsers: number;
  /** Number of alerts sent. */
  readonly alertsSent: number;
  /** True if the period is over. */
  readonly isOver: boolean;
}

/** Sends the alert that further end users get no alerts of their own. */
export async function sendManyUsersAlert(options: SendAlertOptions, many: ManyUsers): Promise<void> {
  const { budget, span, endUsers, alertsSent, isOver } = many;
  const [least = 100] = budget.alertPercents;
  const { endUser, endedPercent, fullPercent } = manyUsers;
  const percent = isOver ? endedPercent : fullPercent;
  const row = { budgetId: budget.id, periodStart: dayOf(span.fromMs), endUser, percent };
  await sendOnce(options, row, {
    organizationId: budget.organizationId,
    type: 'budget.many_users',
    data: { ...dataOf(many, least, options.clock.now()), alerts: alertsSent, end_users: endUsers, is_over: isOver },
    once: [row.budgetId, row.periodStart, 'many', percent].join('\n'),
  });
}

/** Sends an alert unless its row shows that it was sent, for example by another gateway. */
async function sendOnce(
  { db, clock, log, raiseIn }: SendAlertOptions,
  row: AlertRow,
  alert: BudgetAlert,
): Promise<void> {
  const raisedAt = new Date(clock.now());
  const isSent = await db.orm.transaction(async (tx) => {
    const noted = await tx
      .insert(budgetAlerts)
      .values({ ...row, raisedAt })
      .onConflictDoUpdate({
        target: [budgetAlerts.budgetId, budgetAlerts.periodStart, budgetAlerts.endUser, budgetAlerts.percent],
        set: { raisedAt },
        setWhere: isNull(budgetAlerts.raisedAt),
      })
      .returning();
    if (noted.length > 0) await raiseIn(tx, alert);
    return noted.length > 0;
  });
  if (!isSent) return;
  const { type, data, organizationId } = alert;
  const what =
    type === 'budget.many_users'
      ? 'a budget for each end user sends no further alerts in this period'
      : 'a budget has reached an alert threshold';
  log.warn({ organizationId: formatId('org', organizationId), ...data }, what);
}
