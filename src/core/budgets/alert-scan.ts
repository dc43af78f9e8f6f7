import { and, inArray, isNull } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { type AppliedBudget, replaces } from './budget-cache.ts';
import { amountAt, type Budget, dayOf, forgivenIn, periodOf, type PeriodSpan, spanOf } from './budget.ts';
import { readAllBudgets } from './rows.ts';
import { budgetAlerts } from './schema.ts';
import { type RaiseBudgetAlert, sendBudgetAlert, sendManyUsersAlert } from './send-alerts.ts';
import {
  createSentAlertMemory,
  type Period,
  periodName,
  type SentAlerts,
  type SentAlertMemory,
} from './sent-alerts.ts';

export interface UserSpent {
  readonly user: string;
  readonly picoUsd: bigint;
}

/** Period, models (null for all) and least spending of the end users to find. */
export interface UsersAsked extends PeriodSpan {
  readonly models: readonly string[] | null;
  readonly leastPicoUsd: bigint;
}

export interface BudgetWatchOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** Returns amounts spent in pico-dollars, in the order of `spendings`. */
  readonly spent: (
    organizationId: string,
    spendings: readonly AppliedBudget['spending'][],
  ) => Promise<readonly bigint[]>;
  /** Returns up to `limit` end users who spent at least `leastPicoUsd` in a period, highest spending first. */
  readonly users: (
    organizationId: string,
    span: UsersAsked & { readonly limit: number },
  ) => Promise<readonly UserSpent[]>;
  /** Counts the end users who spent at least `leastPicoUsd` in a period. */
  readonly countUsers: (organizationId: string, span: UsersAsked) => Promise<number>;
  readonly raiseIn: RaiseBudgetAlert;
}

/** A budget in the period in which it rejected a request. */
export interface RefusingBudget extends Pick<AppliedBudget, 'budgetId' | 'slot'> {
  readonly spending: Pick<AppliedBudget['spending'], 'type' | 'id' | 'fromMs'>;
}

export interface BudgetWatch {
  /**
   * Sends alerts for the current spending. Each alert is recorded in the transaction that raises it, so it is sent
   * once.
   */
  scan(): Promise<void>;
  /** Records that a hard budget rejected a request; the next `look` sends the alert. Does not throw. */
  refused(budget: RefusingBudget): void;
  /** Deletes the records of alerts of periods that ended long ago. */
  forgetOld(): Promise<void>;
}

/** A budget and its spender; a budget for each end user has many. */
export interface Spender {
  readonly budget: Budget;
  readonly id: string;
  readonly span: PeriodSpan;
  readonly picoUsd: bigint;
}

/** Milliseconds that alerts are recorded after the start of a period that is over. */
const keptMs = 100 * 86_400_000;
const refusalsMax = 10_000;
/** Maximum recorded rejections per budget and period: clients choose the names of end users. */
const refusalsOfPeriodMax = 1000;
const lateMs = 600_000;
/**
 * Maximum alerts that a budget for each end user sends per period; then one alert says that there are more. Clients may
 * invent end users, and each of them would cause a message.
 */
export const eachUserAlertsMax = 100;
/** After a query that took longer than `slowMs`, the records are not queried for `restFactor` times its duration. */
const [slowMs, restFactor] = [250, 20];

export function createBudgetWatch(options: BudgetWatchOptions): BudgetWatch {
  const { db, clock, log } = options;
  const refusals = new Set<string>();
  const memory = createSentAlertMemory(db);
  const scan: AlertScan = { ...options, memory, resting: new Map() };
  return {
    async scan() {
      const budgets = (await readAllBudgets(db)).filter(
        (budget) => budget.scope.type === 'user' || sendsAlerts(budget),
      );
      const nowMs = clock.now();
      const periods = budgets
        .filter(sendsAlerts)
        .flatMap((budget) => spansOf(budget, nowMs).map((span) => ({ budget, span })));
      await memory.know(periods);
      for (const [organizationId, own] of Map.groupBy(budgets, (budget) => budget.organizationId)) {
        if (own.some(sendsAlerts)) await scanOrganization(scan, { organizationId, budgets: own, nowMs });
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
        log.warn(
          { err: error },
          'a budget rejected a request, and the alert about it could not be stored; the next rejection stores it',
        );
      });
    },
    async forgetOld() {
      const nowMs = clock.now();
      const yearStart = dayOf(periodOf('yearly', nowMs).fromMs);
      await db.sql`
        delete from budget_alerts a where period_start < ${dayOf(nowMs - keptMs)}::date and not exists (
          select 1 from budgets b where b.id = a.budget_id
            and (b.period = 'total' or (b.period = 'yearly' and a.period_start >= ${yearStart}::date)))`;
    },
  };
}

interface AlertScan extends BudgetWatchOptions {
  readonly memory: SentAlertMemory;
  /** Monotonic times until which the records are not queried for the end users of a budget. */
  readonly resting: Map<string, number>;
}

const sendsAlerts = ({ alertPercents, mode }: Budget): boolean => alertPercents.length > 0 || mode === 'hard';

/** Returns the current period and, for a while, the previous one, so that alerts for its last minutes are sent too. */
function spansOf(budget: Budget, nowMs: number): readonly PeriodSpan[] {
  const now = spanOf(budget, nowMs);
  const before = spanOf(budget, nowMs - lateMs);
  return before.fromMs === now.fromMs ? [now] : [before, now];
}

/** A budget and period to check. */
interface Asked extends Period {
  readonly sent: SentAlerts;
  /** End users whose rejection has a pending alert; the empty name for keys and projects. */
  readonly refused: ReadonlySet<string>;
}

/** Budgets of one organization to check, at the moment whose periods are in memory. */
interface ScannedOrganization {
  readonly organizationId: string;
  readonly budgets: readonly Budget[];
  readonly nowMs: number;
}

async function scanOrganization(
  scan: AlertScan,
  { organizationId, budgets, nowMs }: ScannedOrganization,
): Promise<void> {
  const open = budgets
    .filter(sendsAlerts)
    .flatMap((budget) => spansOf(budget, nowMs).map((span) => ({ budget, span, sent: scan.memory.of(budget, span) })));
  const refused = await readRefused(
    scan.db,
    open.filter(({ sent }) => !sent.isFull).map(({ budget, span }) => ({ budget, span })),
  );
  const asked = open.map((one): Asked => ({ ...one, refused: refused.get(periodName(one)) ?? new Set() }));
  await sendNamedAlerts(scan, organizationId, asked);
  for (const one of asked) {
    if (one.budget.scope.id === null) await sendEachUserAlerts(scan, one, ownersOf(budgets, one.budget));
  }
}

/** Reads rejections with pending alerts, by budget and period. */
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

/** Sends alerts of projects, keys and named end users; skips spending whose alerts were all sent. */
async function sendNamedAlerts(scan: AlertScan, organizationId: string, asked: readonly Asked[]): Promise<void> {
  const open = asked.flatMap((one) => {
    const { id, type } = one.budget.scope;
    if (id === null) return [];
    const name = type === 'user' ? id : '';
    const isOpen = one.refused.has(name) || one.budget.alertPercents.some((percent) => !one.sent.has(name, percent));
    return isOpen ? [{ ...one, id, isRefused: one.refused.has(name) }] : [];
  });
  const amounts = await scan.spent(organizationId, open.map(spendingOf));
  for (const [index, one] of open.entries()) {
    const picoUsd = (amounts[index] ?? 0n) - forgivenIn(one.budget, one.span);
    await sendReachedAlerts(scan, one, { ...one, picoUsd }, one.isRefused);
  }
}

const spendingOf = ({ budget, id, span }: Omit<Spender, 'picoUsd'>): AppliedBudget['spending'] => ({
  type: budget.scope.type,
  id,
  period: budget.period,
  models: budget.models,
  ...span,
});

/** @returns true if no alert of the spender is left to send */
async function sendReachedAlerts(
  scan: AlertScan,
  { sent }: Asked,
  spender: Spender,
  isRefused: boolean,
): Promise<boolean> {
  const { budget, picoUsd } = spender;
  const name = budget.scope.type === 'user' ? spender.id : '';
  const amountPicoUsd = amountAt(budget, scan.clock.now());
  const reached = budget.alertPercents.filter((percent) => picoUsd * 100n >= amountPicoUsd * BigInt(percent));
  for (const percent of isRefused && !reached.includes(100) ? [...reached, 100] : reached) {
    if (sent.has(name, percent)) continue;
    const alertsMax = budget.scope.id === null ? eachUserAlertsMax : null;
    if (!(await sendBudgetAlert(scan, spender, { percent, alertsMax }))) return false;
    sent.add(name, percent);
  }
  return true;
}

/** Sends alerts of a budget for each end user. */
async function sendEachUserAlerts(scan: AlertScan, asked: Asked, owners: readonly string[]): Promise<void> {
  const { budget, span, sent } = asked;
  const { models } = budget;
  const leastPicoUsd = leastOf(budget, scan.clock.now());
  if (sent.isFull) {
    if (scan.clock.now() < span.toMs || sent.isEnded) return;
    const endUsers = await scan.countUsers(budget.organizationId, { ...span, models, leastPicoUsd });
    await sendManyUsersAlert(scan, { budget, span, endUsers, alertsSent: sent.size, isOver: true });
    sent.end();
    return;
  }
  for (const spender of await readSpenders(scan, asked, owners)) {
    if (await sendReachedAlerts(scan, asked, spender, asked.refused.has(spender.id))) continue;
    const endUsers = await scan.countUsers(budget.organizationId, { ...span, models, leastPicoUsd });
    await sendManyUsersAlert(scan, { budget, span, endUsers, alertsSent: sent.size, isOver: false });
    sent.fill();
    return;
  }
}

/** Returns the amount of the first percentage with an alert; the whole amount if only rejections send alerts. */
function leastOf(budget: Budget, nowMs: number): bigint {
  const [least = 100] = budget.alertPercents;
  return (amountAt(budget, nowMs) * BigInt(least)) / 100n;
}

/** Reads end users with an alert percentage reached, or rejected: enough to exceed the maximum alerts, not all. */
async function readSpenders(scan: AlertScan, asked: Asked, owners: readonly string[]): Promise<readonly Spender[]> {
  const { budget, span, refused } = asked;
  const some = [...refused].slice(0, eachUserAlertsMax + 1);
  const ofRefused = some.map((id) => ({ budget, id, span }));
  const amounts = await scan.spent(budget.organizationId, ofRefused.map(spendingOf));
  const found = ofRefused.map((one, index): Spender => ({ ...one, picoUsd: amounts[index] ?? 0n }));
  const others = new Set([...owners, ...some]);
  const limit = eachUserAlertsMax + 1 + others.size;
  const users = budget.alertPercents.length === 0 ? [] : await readUsers(scan, asked, limit);
  return [
    ...found,
    ...users.flatMap(({ user: id, picoUsd }) => (others.has(id) ? [] : [{ budget, id, span, picoUsd }])),
  ];
}

async function readUsers({ users, clock, resting }: AlertScan, { budget, span }: Asked, limit: number) {
  const name = periodName({ budget, span });
  const startedMs = clock.monotonicMs();
  if (startedMs < (resting.get(name) ?? 0)) return [];
  const asked = { ...span, models: budget.models, leastPicoUsd: leastOf(budget, clock.now()), limit };
  const found = await users(budget.organizationId, asked);
  const tookMs = clock.monotonicMs() - startedMs;
  resting.delete(name);
  if (tookMs > slowMs) resting.set(name, startedMs + tookMs * restFactor);
  return found;
}

/** Returns end users whose own budget replaces the budget for each end user: see the book. */
function ownersOf(budgets: readonly Budget[], each: Budget): readonly string[] {
  return budgets.flatMap((budget) => {
    const { id, type } = budget.scope;
    return type === 'user' && id !== null && replaces(budget, each) ? [id] : [];
  });
}
