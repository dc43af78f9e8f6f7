import { and, inArray, isNull, lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Log } from '#base/log.ts';
import type { AppliedBudget } from './book.ts';
import { type Budget, dayOf, periodOf, type PeriodSpan } from './budget.ts';
import { scopeText } from './changes.ts';
import { readAllBudgets } from './rows.ts';
import { budgetAlerts } from './schema.ts';

/** What is told of a budget: once for each percentage and period. */
export interface BudgetAlert {
  readonly organizationId: string;
  /** `budget.exceeded` from 100 percent on, and where a hard budget refused a request. */
  readonly type: 'budget.reached' | 'budget.exceeded';
  readonly data: {
    readonly budget_id: string;
    readonly scope_type: string;
    /** As outsiders name it. */
    readonly scope_id: string;
    readonly period: string;
    /** YYYY-MM-DD, of UTC. */
    readonly period_start: string;
    /** Seconds since the Unix epoch. */
    readonly resets_at: number;
    readonly mode: string;
    readonly amount: string;
    readonly spent: string;
    readonly currency: 'USD';
    readonly percent: number;
  };
  /** The same for all that is told but once. */
  readonly once: string;
}

export interface UserSpent {
  readonly user: string;
  readonly picoUsd: bigint;
}

export interface BudgetWatchOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** What was spent, in the order of the questions, in pico-dollars. */
  readonly spent: (
    organizationId: string,
    spendings: readonly AppliedBudget['spending'][],
  ) => Promise<readonly bigint[]>;
  /** End users that have spent at least so much in a period. */
  readonly users: (
    organizationId: string,
    span: PeriodSpan & { readonly leastPicoUsd: bigint },
  ) => Promise<readonly UserSpent[]>;
  readonly raiseIn: (tx: Transaction, alert: BudgetAlert) => Promise<void>;
}

export interface BudgetWatch {
  /** Tells of what budgets have come to. That it is told stands in the transaction that raises it: it is told once. */
  look(): Promise<void>;
  /** A hard budget refused a request: it is told with the next look. Does not throw. */
  refused(budget: AppliedBudget): void;
  /** Forgets what was told of periods long over. */
  forgetOld(): Promise<void>;
}

/** A budget and who spends it: one of many where it is of each end user. */
interface Spender {
  readonly budget: Budget;
  readonly id: string;
  readonly span: PeriodSpan;
  readonly picoUsd: bigint;
}

const keptMs = 100 * 86_400_000;
const refusalsMax = 10_000;
const lateMs = 600_000;

export function createBudgetWatch(options: BudgetWatchOptions): BudgetWatch {
  const { db, clock, log } = options;
  const refusals = new Set<string>();
  return {
    async look() {
      const budgets = await readAllBudgets(db);
      for (const [organizationId, own] of Map.groupBy(budgets, (budget) => budget.organizationId)) {
        if (own.some(tells)) await lookAt(options, organizationId, own);
      }
    },
    refused({ budgetId, slot, spending: { type, id, fromMs } }) {
      const name = `${budgetId} ${slot}`;
      if (refusals.has(name)) return;
      if (refusals.size >= refusalsMax) refusals.clear();
      refusals.add(name);
      const values = { budgetId, periodStart: dayOf(fromMs), endUser: type === 'user' ? id : '', percent: 100 };
      db.orm
        .insert(budgetAlerts)
        .values({ ...values, raisedAt: null })
        .onConflictDoNothing()
        .catch((error: unknown) => {
          refusals.delete(name);
          log.warn({ err: error }, 'that a budget refused a request was not noted');
        });
    },
    async forgetOld() {
      await db.orm.delete(budgetAlerts).where(lt(budgetAlerts.periodStart, dayOf(clock.now() - keptMs)));
    },
  };
}

const tells = ({ alertPercents, mode }: Budget): boolean => alertPercents.length > 0 || mode === 'hard';

async function lookAt(options: BudgetWatchOptions, organizationId: string, budgets: readonly Budget[]): Promise<void> {
  const known = await readTold(options.db, budgets.filter(tells), options.clock.now());
  const spenders = await readSpenders(options, organizationId, budgets, known.pending);
  for (const spender of spenders) {
    const { budget, picoUsd } = spender;
    const reached = budget.alertPercents.filter((percent) => picoUsd * 100n >= budget.amountPicoUsd * BigInt(percent));
    const pending = known.pending.has(nameOf(spender, 100)) && !reached.includes(100) ? [100] : [];
    for (const percent of [...reached, ...pending]) {
      if (!known.told.has(nameOf(spender, percent))) await tell(options, spender, percent);
    }
  }
}

const nameOf = ({ budget, id, span }: Omit<Spender, 'picoUsd'>, percent: number): string =>
  [budget.id, dayOf(span.fromMs), budget.scope.type === 'user' ? id : '', percent].join('\n');

interface Told {
  readonly told: ReadonlySet<string>;
  /** Refusals that were not told yet. */
  readonly pending: ReadonlySet<string>;
}

async function readTold({ orm }: Db, budgets: readonly Budget[], nowMs: number): Promise<Told> {
  const ids = budgets.map(({ id }) => id);
  const starts = new Set(budgets.flatMap((budget) => spansOf(budget, nowMs)).map(({ fromMs }) => dayOf(fromMs)));
  const rows = await orm
    .select()
    .from(budgetAlerts)
    .where(and(inArray(budgetAlerts.budgetId, ids), inArray(budgetAlerts.periodStart, [...starts])));
  const namesOf = (isTold: boolean): Set<string> =>
    new Set(
      rows
        .filter(({ raisedAt }) => (raisedAt !== null) === isTold)
        .map(({ budgetId, periodStart, endUser, percent }) => [budgetId, periodStart, endUser, percent].join('\n')),
    );
  return { told: namesOf(true), pending: namesOf(false) };
}

/** The period that is, and for a while the one before: what came at its end is told all the same. */
function spansOf({ period }: Budget, nowMs: number): readonly PeriodSpan[] {
  const now = periodOf(period, nowMs);
  const before = periodOf(period, nowMs - lateMs);
  return before.fromMs === now.fromMs ? [now] : [before, now];
}

async function readSpenders(
  options: BudgetWatchOptions,
  organizationId: string,
  budgets: readonly Budget[],
  pending: ReadonlySet<string>,
): Promise<readonly Spender[]> {
  const nowMs = options.clock.now();
  const named = budgets.filter(tells).flatMap((budget) => {
    const { id } = budget.scope;
    return id === null ? [] : spansOf(budget, nowMs).map((span) => ({ budget, id, span }));
  });
  const each = budgets.filter((budget) => budget.scope.id === null && tells(budget));
  const refused = each.flatMap((budget) =>
    spansOf(budget, nowMs).flatMap((span) => refusedOf(budget, span, pending).map((id) => ({ budget, id, span }))),
  );
  const asked = [...named, ...refused];
  const amounts = await options.spent(organizationId, asked.map(spendingOf));
  const found: Spender[] = asked.map((one, index) => ({ ...one, picoUsd: amounts[index] ?? 0n }));
  for (const budget of each) {
    const owners = ownersOf(budgets, budget);
    for (const span of spansOf(budget, nowMs)) {
      const told = new Set([...owners, ...refusedOf(budget, span, pending)]);
      found.push(...(await readUsers(options, budget, span)).filter(({ id }) => !told.has(id)));
    }
  }
  return found;
}

const spendingOf = ({ budget, id, span }: Omit<Spender, 'picoUsd'>): AppliedBudget['spending'] => ({
  type: budget.scope.type,
  id,
  period: budget.period,
  ...span,
});

/** End users for whom a budget of his own stands in the place of one of each: see the book. */
function ownersOf(budgets: readonly Budget[], each: Budget): readonly string[] {
  return budgets.flatMap(({ scope, period, mode }) =>
    scope.type === 'user' && scope.id !== null && period === each.period && mode === each.mode ? [scope.id] : [],
  );
}

/** End users whom a budget of each has refused, and of whom that is still to be told. */
function refusedOf(budget: Budget, span: PeriodSpan, pending: ReadonlySet<string>): readonly string[] {
  return [...pending].flatMap((name) => {
    const [id, from, ...rest] = name.split('\n');
    return id === budget.id && from === dayOf(span.fromMs) ? [rest.slice(0, -1).join('\n')] : [];
  });
}

/** Of a budget of each end user those who have come to something that is told. */
async function readUsers({ users }: BudgetWatchOptions, budget: Budget, span: PeriodSpan): Promise<readonly Spender[]> {
  const least = Math.min(...budget.alertPercents);
  if (!Number.isFinite(least)) return [];
  const leastPicoUsd = (budget.amountPicoUsd * BigInt(least)) / 100n;
  const spent = await users(budget.organizationId, { ...span, leastPicoUsd });
  return spent.map(({ user, picoUsd }) => ({ budget, id: user, span, picoUsd }));
}

async function tell({ db, clock, log, raiseIn }: BudgetWatchOptions, spender: Spender, percent: number): Promise<void> {
  const { budget, id, span, picoUsd } = spender;
  const data = {
    budget_id: formatId('budget', budget.id),
    scope_type: budget.scope.type,
    scope_id: scopeText({ type: budget.scope.type, id }),
    period: budget.period,
    period_start: dayOf(span.fromMs),
    resets_at: span.toMs / 1000,
    mode: budget.mode,
    amount: formatUsd(budget.amountPicoUsd),
    spent: formatUsd(picoUsd),
    currency: 'USD' as const,
    percent,
  };
  log.warn({ organizationId: formatId('org', budget.organizationId), ...data }, 'a budget has reached what is told of');
  const type = percent >= 100 ? 'budget.exceeded' : 'budget.reached';
  const key = {
    budgetId: budget.id,
    periodStart: dayOf(span.fromMs),
    endUser: budget.scope.type === 'user' ? id : '',
    percent,
  };
  const once = nameOf(spender, percent);
  const raisedAt = new Date(clock.now());
  await db.orm.transaction(async (tx) => {
    await raiseIn(tx, { organizationId: budget.organizationId, type, data, once });
    await tx
      .insert(budgetAlerts)
      .values({ ...key, raisedAt })
      .onConflictDoUpdate({
        target: [budgetAlerts.budgetId, budgetAlerts.periodStart, budgetAlerts.endUser, budgetAlerts.percent],
        set: { raisedAt },
        setWhere: isNull(budgetAlerts.raisedAt),
      });
  });
}
