import { and, inArray, isNull, lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { AppliedBudget } from './book.ts';
import { type Budget, dayOf, periodOf, type PeriodSpan } from './budget.ts';
import { readAllBudgets } from './rows.ts';
import { budgetAlerts } from './schema.ts';
import { type RaiseBudgetAlert, tellBudget, tellManyUsers } from './tell.ts';
import { createToldMemory, type Period, periodName, type PeriodTold, type ToldMemory } from './told.ts';

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
  /** So many of the end users that have spent at least so much in a period; those first who have spent most. */
  readonly users: (
    organizationId: string,
    span: PeriodSpan & { readonly leastPicoUsd: bigint; readonly limit: number },
  ) => Promise<readonly UserSpent[]>;
  /** How many they are. */
  readonly countUsers: (
    organizationId: string,
    span: PeriodSpan & { readonly leastPicoUsd: bigint },
  ) => Promise<number>;
  readonly raiseIn: RaiseBudgetAlert;
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
export interface Spender {
  readonly budget: Budget;
  readonly id: string;
  readonly span: PeriodSpan;
  readonly picoUsd: bigint;
}

const keptMs = 100 * 86_400_000;
const refusalsMax = 10_000;
/** Refusals of one budget and period that are noted: end users are whoever clients say. */
const refusalsOfPeriodMax = 1000;
const lateMs = 600_000;
/**
 * A budget of each end user tells so many alerts in a period, and then that there are more: clients may make end users
 * up, and each of them would be a letter.
 */
export const eachUserAlertsMax = 100;
/** Who asks the books for longer than this lets them rest for so many times as long. */
const [slowMs, restFactor] = [250, 20];

export function createBudgetWatch(options: BudgetWatchOptions): BudgetWatch {
  const { db, clock, log } = options;
  const refusals = new Set<string>();
  const memory = createToldMemory(db);
  const look: Look = { ...options, memory, resting: new Map() };
  return {
    async look() {
      const budgets = (await readAllBudgets(db)).filter((budget) => budget.scope.type === 'user' || tells(budget));
      const nowMs = clock.now();
      const periods = budgets
        .filter(tells)
        .flatMap((budget) => spansOf(budget, nowMs).map((span) => ({ budget, span })));
      await memory.know(periods);
      for (const [organizationId, own] of Map.groupBy(budgets, (budget) => budget.organizationId)) {
        if (own.some(tells)) await lookAt(look, { organizationId, budgets: own, nowMs });
      }
    },
    refused({ budgetId, slot, spending: { type, id, fromMs } }) {
      const name = `${budgetId} ${slot}`;
      if (refusals.has(name)) return;
      if (refusals.size >= refusalsMax) refusals.clear();
      refusals.add(name);
      const [periodStart, endUser] = [dayOf(fromMs), type === 'user' ? id : ''];
      db.sql`
        insert into budget_alerts (budget_id, period_start, end_user, percent)
        select ${budgetId}::uuid, ${periodStart}::date, ${endUser}, 100
        where (select count(*) from (
          select 1 from budget_alerts where budget_id = ${budgetId}::uuid and period_start = ${periodStart}::date
          limit ${refusalsOfPeriodMax}) noted) < ${refusalsOfPeriodMax}
        on conflict do nothing`.catch((error: unknown) => {
        refusals.delete(name);
        log.warn({ err: error }, 'that a budget refused a request was not noted');
      });
    },
    async forgetOld() {
      await db.orm.delete(budgetAlerts).where(lt(budgetAlerts.periodStart, dayOf(clock.now() - keptMs)));
    },
  };
}

interface Look extends BudgetWatchOptions {
  readonly memory: ToldMemory;
  /** Until when the books are not asked for the end users of a budget, on the monotonic clock. */
  readonly resting: Map<string, number>;
}

const tells = ({ alertPercents, mode }: Budget): boolean => alertPercents.length > 0 || mode === 'hard';

/** The period that is, and for a while the one before: what came at its end is told all the same. */
function spansOf({ period }: Budget, nowMs: number): readonly PeriodSpan[] {
  const now = periodOf(period, nowMs);
  const before = periodOf(period, nowMs - lateMs);
  return before.fromMs === now.fromMs ? [now] : [before, now];
}

/** What is asked for of a budget in a period. */
interface Asked extends Period {
  readonly told: PeriodTold;
  /** Whom it has refused, and of whom that is still to be told; of keys and projects the empty name. */
  readonly refused: ReadonlySet<string>;
}

/** What is looked at of one organization, at the moment whose periods are known. */
interface LookedAt {
  readonly organizationId: string;
  readonly budgets: readonly Budget[];
  readonly nowMs: number;
}

async function lookAt(look: Look, { organizationId, budgets, nowMs }: LookedAt): Promise<void> {
  const open = budgets
    .filter(tells)
    .flatMap((budget) => spansOf(budget, nowMs).map((span) => ({ budget, span, told: look.memory.of(budget, span) })));
  const refused = await readRefused(
    look.db,
    open.filter(({ told }) => !told.isFull).map(({ budget, span }) => ({ budget, span })),
  );
  const asked = open.map((one): Asked => ({ ...one, refused: refused.get(periodName(one)) ?? new Set() }));
  await tellNamed(look, organizationId, asked);
  for (const one of asked) {
    if (one.budget.scope.id === null) await tellEach(look, one, ownersOf(budgets, one.budget));
  }
}

/** Refusals that were not told yet, by budget and period. */
async function readRefused({ orm }: Db, periods: readonly Period[]): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  if (periods.length === 0) return new Map();
  const ids = [...new Set(periods.map(({ budget }) => budget.id))];
  const days = [...new Set(periods.map(({ span }) => dayOf(span.fromMs)))];
  const rows = await orm
    .select()
    .from(budgetAlerts)
    .where(
      and(inArray(budgetAlerts.budgetId, ids), inArray(budgetAlerts.periodStart, days), isNull(budgetAlerts.raisedAt)),
    );
  const names = Map.groupBy(rows, ({ budgetId, periodStart }) => `${budgetId} ${periodStart}`);
  return new Map([...names].map(([name, some]) => [name, new Set(some.map(({ endUser }) => endUser))]));
}

/** Those of projects, keys and named end users; what is told already is not asked for. */
async function tellNamed(look: Look, organizationId: string, asked: readonly Asked[]): Promise<void> {
  const open = asked.flatMap((one) => {
    const { id, type } = one.budget.scope;
    if (id === null) return [];
    const name = type === 'user' ? id : '';
    const isOpen = one.refused.has(name) || one.budget.alertPercents.some((percent) => !one.told.has(name, percent));
    return isOpen ? [{ ...one, id, isRefused: one.refused.has(name) }] : [];
  });
  const amounts = await look.spent(organizationId, open.map(spendingOf));
  for (const [index, one] of open.entries()) {
    await tellReached(look, one, { ...one, picoUsd: amounts[index] ?? 0n }, one.isRefused);
  }
}

const spendingOf = ({ budget, id, span }: Omit<Spender, 'picoUsd'>): AppliedBudget['spending'] => ({
  type: budget.scope.type,
  id,
  period: budget.period,
  ...span,
});

/** @returns whether nothing is left to be told of it */
async function tellReached(look: Look, { told }: Asked, spender: Spender, isRefused: boolean): Promise<boolean> {
  const { budget, picoUsd } = spender;
  const name = budget.scope.type === 'user' ? spender.id : '';
  const reached = budget.alertPercents.filter((percent) => picoUsd * 100n >= budget.amountPicoUsd * BigInt(percent));
  for (const percent of isRefused && !reached.includes(100) ? [...reached, 100] : reached) {
    if (told.has(name, percent)) continue;
    const alertsMax = budget.scope.id === null ? eachUserAlertsMax : null;
    if (!(await tellBudget(look, spender, { percent, alertsMax }))) return false;
    told.add(name, percent);
  }
  return true;
}

/** One of each end user. */
async function tellEach(look: Look, asked: Asked, owners: readonly string[]): Promise<void> {
  const { budget, span, told } = asked;
  const leastPicoUsd = leastOf(budget);
  if (told.isFull) {
    if (look.clock.now() < span.toMs || told.isEnded) return;
    const endUsers = await look.countUsers(budget.organizationId, { ...span, leastPicoUsd });
    await tellManyUsers(look, { budget, span, endUsers, told: told.size, isOver: true });
    told.end();
    return;
  }
  for (const spender of await readSpenders(look, asked, owners)) {
    if (await tellReached(look, asked, spender, asked.refused.has(spender.id))) continue;
    const endUsers = await look.countUsers(budget.organizationId, { ...span, leastPicoUsd });
    await tellManyUsers(look, { budget, span, endUsers, told: told.size, isOver: false });
    told.fill();
    return;
  }
}

/** What the first percentage that is told comes to; all of it where a refusal alone is told. */
function leastOf({ alertPercents, amountPicoUsd }: Budget): bigint {
  const [least = 100] = alertPercents;
  return (amountPicoUsd * BigInt(least)) / 100n;
}

/** End users who have come to something that is told, or were refused: more than may be told, but not all of them. */
async function readSpenders(look: Look, asked: Asked, owners: readonly string[]): Promise<readonly Spender[]> {
  const { budget, span, refused } = asked;
  const some = [...refused].slice(0, eachUserAlertsMax + 1);
  const ofRefused = some.map((id) => ({ budget, id, span }));
  const amounts = await look.spent(budget.organizationId, ofRefused.map(spendingOf));
  const found = ofRefused.map((one, index): Spender => ({ ...one, picoUsd: amounts[index] ?? 0n }));
  const others = new Set([...owners, ...some]);
  const limit = eachUserAlertsMax + 1 + others.size;
  const users = budget.alertPercents.length === 0 ? [] : await readUsers(look, asked, limit);
  return [
    ...found,
    ...users.flatMap(({ user: id, picoUsd }) => (others.has(id) ? [] : [{ budget, id, span, picoUsd }])),
  ];
}

async function readUsers({ users, clock, resting }: Look, { budget, span }: Asked, limit: number) {
  const name = periodName({ budget, span });
  const startedMs = clock.monotonicMs();
  if (startedMs < (resting.get(name) ?? 0)) return [];
  const found = await users(budget.organizationId, { ...span, leastPicoUsd: leastOf(budget), limit });
  const tookMs = clock.monotonicMs() - startedMs;
  resting.delete(name);
  if (tookMs > slowMs) resting.set(name, startedMs + tookMs * restFactor);
  return found;
}

/** End users for whom a budget of his own stands in the place of one of each: see the book. */
function ownersOf(budgets: readonly Budget[], each: Budget): readonly string[] {
  return budgets.flatMap(({ scope, period, mode }) =>
    scope.type === 'user' && scope.id !== null && period === each.period && mode === each.mode ? [scope.id] : [],
  );
}
