import { count, eq, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { type Db, isUniqueViolation, type Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { AppliedBudget } from './budget-cache.ts';
import {
  type Budget,
  type BudgetMode,
  type BudgetPeriod,
  type BudgetRaise,
  type BudgetScope,
  dayOf,
  type Forgiven,
  hashOfModels,
  periodOf,
  spanOf,
} from './budget.ts';
import { type BudgetRef, findBudget, isBudget, toBudget } from './rows.ts';
import { budgets } from './schema.ts';

export interface NewBudget {
  readonly organizationId: string;
  readonly scope: BudgetScope;
  readonly period: BudgetPeriod;
  readonly mode: BudgetMode;
  /** Catalog ids; null for all models. */
  readonly models: readonly string[] | null;
  readonly amountPicoUsd: bigint;
  /** Spending elsewhere that counts in the current period. Must be 0 for each end user. */
  readonly openingPicoUsd: bigint;
  readonly alertPercents: readonly number[];
}

export interface BudgetPatch {
  readonly amountPicoUsd?: bigint | undefined;
  readonly mode?: BudgetMode | undefined;
  /** Null ends the raise. */
  readonly raise?: BudgetRaise | null | undefined;
  readonly alertPercents?: readonly number[] | undefined;
}

export interface BudgetChanges {
  /**
   * @throws AppError conflict if the scope has a budget of this period, mode and models, or the organization too many
   *   budgets
   */
  create(input: NewBudget, author: Author): Promise<Budget>;
  /**
   * Like `create`, inside a transaction of the caller, which a conflict aborts. The scope must be new in this
   * transaction, so that nothing was spent before. Call `changed` after the commit.
   */
  createIn(tx: Transaction, input: NewBudget, author: Author): Promise<Budget>;
  /** Makes all gateways apply committed changes. */
  changed(): Promise<void>;
  /** Returns null if the budget does not exist. @throws AppError conflict */
  update(ref: BudgetRef, patch: BudgetPatch, author: Author): Promise<Budget | null>;
  /**
   * Lets the spending of the current period, as the database has it, count no more. Running requests count with what
   * they are charged afterwards.
   * @returns null if the budget does not exist
   * @throws AppError invalid_request_error for a budget of each end user
   */
  reset(ref: BudgetRef, author: Author): Promise<Budget | null>;
  /** Returns false if the budget does not exist. */
  remove(ref: BudgetRef, author: Author): Promise<boolean>;
}

export interface BudgetChangesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  /** Returns amounts spent in pico-dollars, in the order of `spendings`. */
  readonly spent: (
    organizationId: string,
    spendings: readonly AppliedBudget['spending'][],
  ) => Promise<readonly bigint[]>;
  /** Called after a commit; the change is answered only after the promise resolves. */
  readonly onChanged: () => Promise<void>;
}

/** Maximum budgets of an organization: every gateway keeps all of them in memory. */
export const budgetsMax = 1000;

export const scopeText = ({ type, id }: BudgetScope): string => {
  if (id === null || type === 'user') return id ?? 'each user';
  return formatId(type === 'project' ? 'proj' : 'key', id);
};

const auditView = ({ scope, period, mode, models, raise, forgiven, ...budget }: Budget): AuditView => ({
  scope_type: scope.type,
  scope_id: scope.id === null ? null : scopeText(scope),
  period,
  mode,
  ...(models !== null && { models }),
  amount: formatUsd(budget.amountPicoUsd),
  ...(raise !== null && {
    raise_amount: formatUsd(raise.amountPicoUsd),
    raise_until: new Date(raise.untilMs).toISOString(),
  }),
  ...(forgiven !== null && { forgiven: formatUsd(forgiven.picoUsd), forgiven_from: dayOf(forgiven.fromMs) }),
  alert_percents: budget.alertPercents,
});

type Unique = Pick<Budget, 'period' | 'mode' | 'models'>;

async function refusingTaken<T>({ period, mode, models }: Unique, change: () => Promise<T>) {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'budgets_scope_key')) throw error;
    const ofModels = models === null ? '' : ' for these models';
    const message = `This scope already has a ${period} ${mode} budget${ofModels}. Change that budget instead.`;
    throw new AppError('conflict', { message, cause: error });
  }
}

interface Change {
  readonly before: Budget | null;
  readonly after: Budget | null;
  readonly isReset?: boolean;
}

function note(
  audit: Audit,
  tx: Transaction,
  { before, after, isReset = false }: Change,
  author: Author,
): Promise<void> {
  const budget = after ?? before;
  if (budget === null) throw new Error('a change without a budget');
  const changed = isReset ? 'reset' : 'changed';
  const action = before === null ? 'created' : after === null ? 'deleted' : changed;
  return audit.record(tx, {
    organizationId: budget.organizationId,
    author,
    action: `budget.${action}`,
    targetType: 'budget',
    targetId: formatId('budget', budget.id),
    before: before === null ? null : auditView(before),
    after: after === null ? null : auditView(after),
  });
}

interface Creation {
  readonly input: NewBudget;
  readonly author: Author;
  readonly nowMs: number;
  /** Pico-dollars that were spent before on the day of the creation. */
  readonly beforePicoUsd: bigint;
}

async function insert(
  { audit }: BudgetChangesOptions,
  tx: Transaction,
  { input, author, nowMs, beforePicoUsd }: Creation,
): Promise<Budget> {
  const { scope, period, mode, models, organizationId } = input;
  const now = new Date(nowMs);
  const values = {
    id: uuidv7(nowMs),
    organizationId,
    scopeType: scope.type,
    scopeId: scope.id ?? '',
    period,
    mode,
    models: [...(models ?? [])],
    modelsHash: hashOfModels(models),
    amount: input.amountPicoUsd,
    ...forgivenAtFirst(input, nowMs, beforePicoUsd),
    alertPercents: [...input.alertPercents],
    createdAt: now,
    updatedAt: now,
  };
  await requireRoom(tx, organizationId);
  const [row] = await refusingTaken(input, () => tx.insert(budgets).values(values).returning());
  if (row === undefined) throw new Error('a budget was not inserted');
  const budget = toBudget(row);
  await note(audit, tx, { before: null, after: budget }, author);
  return budget;
}

export function createBudgetChanges(options: BudgetChangesOptions): BudgetChanges {
  const { db, clock, audit, onChanged } = options;
  return {
    async create(input, author) {
      const nowMs = clock.now();
      // Read first: a transaction that waits for another connection could wait forever for transactions like it.
      const beforePicoUsd = await spentBefore(options, input, nowMs);
      const made = await db.orm.transaction((tx) => insert(options, tx, { input, author, nowMs, beforePicoUsd }));
      await onChanged();
      return made;
    },
    createIn: (tx, input, author) => insert(options, tx, { input, author, nowMs: clock.now(), beforePicoUsd: 0n }),
    changed: onChanged,
    update: (ref, patch, author) => change(options, ref, { columns: () => columnsOf(patch), author }),
    async reset(ref, author) {
      const budget = await findBudget(db.orm, ref);
      if (budget === null) return null;
      const now = await forgivenNow(options, budget);
      return change(options, ref, { columns: (before) => laterForgiven(before, now), author, isReset: true });
    },
    async remove(ref, author) {
      const isDeleted = await db.orm.transaction(async (tx) => {
        const [row] = await tx.delete(budgets).where(isBudget(ref)).returning();
        if (row === undefined) return false;
        await note(audit, tx, { before: toBudget(row), after: null }, author);
        return true;
      });
      if (isDeleted) await onChanged();
      return isDeleted;
    },
  };
}

type Columns = Partial<typeof budgets.$inferInsert>;

function columnsOf({ amountPicoUsd, mode, alertPercents, raise }: BudgetPatch): Columns {
  return {
    ...(amountPicoUsd !== undefined && { amount: amountPicoUsd }),
    ...(mode !== undefined && { mode }),
    ...(alertPercents !== undefined && { alertPercents: [...alertPercents] }),
    ...(raise !== undefined && {
      raiseAmount: raise?.amountPicoUsd ?? null,
      raiseUntil: raise === null ? null : new Date(raise.untilMs),
    }),
  };
}

interface Changing {
  /** Returns the changed columns of a locked budget. */
  readonly columns: (before: Budget) => Columns;
  readonly author: Author;
  readonly isReset?: boolean;
}

/** Changes a budget, one change of a budget at a time. Returns null if the budget does not exist. */
async function change(
  { db, clock, audit, onChanged }: BudgetChangesOptions,
  ref: BudgetRef,
  { columns, author, isReset = false }: Changing,
): Promise<Budget | null> {
  const changed = await db.orm.transaction(async (tx) => {
    await tx.select({ id: budgets.id }).from(budgets).where(isBudget(ref)).for('update');
    const before = await findBudget(tx, ref);
    if (before === null) return null;
    const values = { ...columns(before), updatedAt: new Date(clock.now()) };
    const [row] = await refusingTaken({ ...before, mode: values.mode ?? before.mode }, () =>
      tx.update(budgets).set(values).where(isBudget(ref)).returning(),
    );
    if (row === undefined) return null;
    const after = toBudget(row);
    await note(audit, tx, { before, after, isReset }, author);
    return after;
  });
  if (changed !== null) await onChanged();
  return changed;
}

/** @throws AppError invalid_request_error for a budget of each end user */
async function forgivenNow({ clock, spent }: BudgetChangesOptions, budget: Budget): Promise<Forgiven> {
  const { organizationId, scope, period, models } = budget;
  if (scope.id === null) {
    const message = 'A budget of each end user cannot be reset. Create a budget for one end user instead.';
    throw new AppError('invalid_request_error', { message });
  }
  const span = spanOf(budget, clock.now());
  const [picoUsd = 0n] = await spent(organizationId, [{ type: scope.type, id: scope.id, period, models, ...span }]);
  return { picoUsd, fromMs: span.fromMs };
}

/** Returns what a reset forgives. A simultaneous reset may have read later, when more was spent. */
function laterForgiven({ forgiven: before }: Budget, now: Forgiven): Columns {
  const isSame = before?.fromMs === now.fromMs;
  const isLater = before !== null && (isSame ? before.picoUsd > now.picoUsd : before.fromMs > now.fromMs);
  const { picoUsd, fromMs } = isLater ? before : now;
  return { forgiven: picoUsd, forgivenFrom: dayOf(fromMs) };
}

/** Returns what the life of a budget does not count: sums are kept per day, so earlier spending of its first day. */
async function spentBefore({ spent }: BudgetChangesOptions, input: NewBudget, nowMs: number): Promise<bigint> {
  const { organizationId, scope, period, models } = input;
  if (scope.id === null || period !== 'total') return 0n;
  const today = { type: scope.type, id: scope.id, period, models, ...periodOf('daily', nowMs) };
  const [picoUsd = 0n] = await spent(organizationId, [today]);
  return picoUsd;
}

function forgivenAtFirst({ period, openingPicoUsd }: NewBudget, nowMs: number, beforePicoUsd: bigint): Columns {
  const forgiven = beforePicoUsd - openingPicoUsd;
  const { fromMs } = spanOf({ period, createdAtMs: nowMs }, nowMs);
  return forgiven === 0n ? {} : { forgiven, forgivenFrom: dayOf(fromMs) };
}

/** Checks the maximum under a lock, so that two parallel creations count each other. @throws AppError conflict */
async function requireRoom(tx: Transaction, organizationId: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`budgets ${organizationId}`}, 0))`);
  const [row] = await tx.select({ total: count() }).from(budgets).where(eq(budgets.organizationId, organizationId));
  if ((row?.total ?? 0) < budgetsMax) return;
  throw new AppError('conflict', {
    message: `The organization has ${budgetsMax} budgets, the maximum. Delete one first.`,
  });
}
