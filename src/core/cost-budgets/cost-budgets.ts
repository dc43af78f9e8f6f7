import { eq, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { parseDecimal } from '#base/money.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import { type Amount, type Costs, formatPrice, parsePrice, type Scaled } from '#core/costs/costs.ts';
import { costBudgets } from './schema.ts';

/**
 * A monthly budget of each organization for node-hours and GPU-hours. It sends alerts, and stops nothing. Months are in
 * UTC.
 */

export interface CostBudget {
  /** Per month, in 10⁻¹⁰ of the currency. */
  readonly amount: Scaled;
  readonly currency: string;
  /** Percentages of the amount, ascending. */
  readonly alertPercents: readonly number[];
}

/** Costs of the current month. Percentages are of the budget, rounded down; null without a budget. */
export interface CostBudgetStatus {
  readonly budget: CostBudget | null;
  /** As YYYY-MM. */
  readonly month: string;
  readonly spent: readonly Amount[];
  /** Costs at the end of the month, if all that is allocated now stays allocated and nothing else is. */
  readonly forecast: readonly Amount[];
  readonly spentPercent: number | null;
  readonly forecastPercent: number | null;
}

export interface CostBudgetChange {
  readonly organizationId: string;
  /** Null removes the budget; `currency` null is the billing currency. */
  readonly budget: (Omit<CostBudget, 'currency'> & { readonly currency: string | null }) | null;
  readonly author: Author;
}

export interface CostBudgetAlert {
  readonly organizationId: string;
  readonly type: 'cost_budget.reached';
  readonly data: {
    readonly month: string;
    readonly percent: number;
    readonly amount: string;
    readonly spent: string;
    readonly forecast: string;
    readonly currency: string;
  };
}

export interface CostBudgets {
  read(organizationId: string): Promise<CostBudgetStatus>;
  /** @throws AppError invalid_value without a currency */
  change(change: CostBudgetChange): Promise<void>;
  /** Raises alerts for percentages that were reached. */
  notify(): Promise<void>;
}

export interface CostBudgetsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly costs: Pick<Costs, 'report' | 'billingCurrency'>;
  readonly raiseIn: (tx: Transaction, alert: CostBudgetAlert) => Promise<void>;
}

type Row = typeof costBudgets.$inferSelect;

export function createCostBudgets(options: CostBudgetsOptions): CostBudgets {
  const { db, log } = options;
  return {
    async read(organizationId) {
      const [row] = await db.orm.select().from(costBudgets).where(eq(costBudgets.organizationId, organizationId));
      return readStatus(options, organizationId, row === undefined ? null : toBudget(row));
    },
    change: (change) => changeBudget(options, change),
    async notify() {
      const rows = await db.orm.select({ id: costBudgets.organizationId }).from(costBudgets);
      for (const { id } of rows) {
        try {
          await notifyOne(options, id);
        } catch (error) {
          // Costs of one organization that cannot be read must not keep others from their alerts.
          log.warn({ err: error, organization: id }, 'the cost budget of an organization could not be checked');
        }
      }
    },
  };
}

function toBudget({ amount, currency, alertPercents }: Row): CostBudget {
  return { amount: parsePrice(amount) ?? 0n, currency, alertPercents };
}

async function readStatus(
  { costs, clock }: CostBudgetsOptions,
  organizationId: string,
  budget: CostBudget | null,
): Promise<CostBudgetStatus> {
  const now = new Date(clock.now());
  const [fromMs, toMs] = [0, 1].map((ahead) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + ahead));
  const window = { fromMs: fromMs ?? 0, toMs: toMs ?? 0, tz: 'UTC' };
  const amountsUntil = async (asOfMs: number): Promise<readonly Amount[]> => {
    const result = await costs.report({ window, organizationIds: [organizationId], asOfMs });
    if (result.kind === 'report') return result.report.grandTotal;
    throw new AppError('conflict', { message: 'The costs of this month have too many lines.' });
  };
  const [spent, forecast] = [await amountsUntil(now.getTime()), await amountsUntil(window.toMs)];
  return {
    budget,
    month: now.toISOString().slice(0, 'YYYY-MM'.length),
    spent,
    forecast,
    spentPercent: percentOf(spent, budget),
    forecastPercent: percentOf(forecast, budget),
  };
}

const exactDigits = 10;

/** Amounts in other currencies do not count: there is no conversion rate for them. */
function percentOf(amounts: readonly Amount[], budget: CostBudget | null): number | null {
  if (budget === null) return null;
  const exact = amounts.find(({ currency }) => currency === budget.currency)?.amountExact ?? '0';
  // Costs may have more digits than a price.
  const scaled = parseDecimal(exact, exactDigits);
  if (scaled === null) throw new Error('costs cannot be read');
  return Number((scaled * 100n) / budget.amount);
}

async function lockBudget(tx: Transaction, organizationId: string): Promise<Row | null> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`headgate cost budget ${organizationId}`}, 0))`);
  const [row] = await tx.select().from(costBudgets).where(eq(costBudgets.organizationId, organizationId));
  return row ?? null;
}

const auditView = (budget: CostBudget | null): AuditView =>
  budget === null
    ? { amount: null }
    : { amount: formatPrice(budget.amount), currency: budget.currency, alert_percents: budget.alertPercents };

async function changeBudget({ db, audit, costs }: CostBudgetsOptions, change: CostBudgetChange): Promise<void> {
  const { organizationId, budget, author } = change;
  const currency = budget?.currency ?? (await costs.billingCurrency(organizationId));
  if (budget !== null && currency === null) {
    const message = 'Set "currency": the organization has no billing currency.';
    throw new AppError('invalid_value', { message, param: 'currency' });
  }
  const after = budget === null || currency === null ? null : { ...budget, currency };
  await db.orm.transaction(async (tx) => {
    const row = await lockBudget(tx, organizationId);
    await tx.delete(costBudgets).where(eq(costBudgets.organizationId, organizationId));
    if (after !== null) {
      // A changed budget sends its alerts again.
      await tx.insert(costBudgets).values({
        organizationId,
        amount: formatPrice(after.amount),
        currency: after.currency,
        alertPercents: [...after.alertPercents],
        updatedAt: new Date(),
      });
    }
    await audit.record(tx, {
      organizationId,
      author,
      action: 'cost_budget.changed',
      targetType: 'organization',
      targetId: formatId('org', organizationId),
      before: auditView(row === null ? null : toBudget(row)),
      after: auditView(after),
    });
  });
}

async function notifyOne(options: CostBudgetsOptions, organizationId: string): Promise<void> {
  const { db, raiseIn } = options;
  const [found] = await db.orm.select().from(costBudgets).where(eq(costBudgets.organizationId, organizationId));
  if (found === undefined) return;
  const status = await readStatus(options, organizationId, toBudget(found));
  const percent = found.alertPercents.filter((one) => one <= (status.spentPercent ?? 0)).at(-1);
  if (percent === undefined) return;
  await db.orm.transaction(async (tx) => {
    const row = await lockBudget(tx, organizationId);
    // The budget was changed meanwhile: the next run reads it again.
    if (row === null || row.updatedAt.getTime() !== found.updatedAt.getTime()) return;
    if (row.alertedMonth === status.month && (row.alertedPercent ?? 0) >= percent) return;
    await tx
      .update(costBudgets)
      .set({ alertedMonth: status.month, alertedPercent: percent })
      .where(eq(costBudgets.organizationId, organizationId));
    const { amount, currency } = toBudget(row);
    const shown = (amounts: readonly Amount[]) => amounts.find((one) => one.currency === currency)?.amount ?? '0';
    await raiseIn(tx, {
      organizationId,
      type: 'cost_budget.reached',
      data: {
        month: status.month,
        percent,
        amount: formatPrice(amount),
        spent: shown(status.spent),
        forecast: shown(status.forecast),
        currency,
      },
    });
  });
}
