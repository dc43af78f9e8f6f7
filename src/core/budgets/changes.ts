import { count, eq, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import { type Db, isUniqueViolation, type Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { Budget, BudgetMode, BudgetPeriod, BudgetScope } from './budget.ts';
import { type BudgetRef, findBudget, isBudget, toBudget } from './rows.ts';
import { budgets } from './schema.ts';

export interface NewBudget {
  readonly organizationId: string;
  readonly scope: BudgetScope;
  readonly period: BudgetPeriod;
  readonly mode: BudgetMode;
  readonly amountPicoUsd: bigint;
  readonly alertPercents: readonly number[];
}

export interface BudgetPatch {
  readonly amountPicoUsd?: bigint | undefined;
  readonly mode?: BudgetMode | undefined;
  readonly alertPercents?: readonly number[] | undefined;
}

export interface BudgetChanges {
  /**
   * @throws AppError conflict if the scope has a budget of this period and mode, or the organization too many budgets
   */
  create(input: NewBudget, author: Author): Promise<Budget>;
  /** Returns null if the budget does not exist. @throws AppError conflict */
  update(ref: BudgetRef, patch: BudgetPatch, author: Author): Promise<Budget | null>;
  /** Returns false if the budget does not exist. */
  remove(ref: BudgetRef, author: Author): Promise<boolean>;
}

export interface BudgetChangesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  /** Called after a commit; the change is answered only after the promise resolves. */
  readonly onChanged: () => Promise<void>;
}

/** Maximum budgets of an organization: every gateway keeps all of them in memory. */
export const budgetsMax = 1000;

export const scopeText = ({ type, id }: BudgetScope): string => {
  if (id === null || type === 'user') return id ?? 'each user';
  return formatId(type === 'project' ? 'proj' : 'key', id);
};

const auditView = ({ scope, period, mode, amountPicoUsd, alertPercents }: Budget): AuditView => ({
  scope_type: scope.type,
  scope_id: scope.id === null ? null : scopeText(scope),
  period,
  mode,
  amount: formatUsd(amountPicoUsd),
  alert_percents: alertPercents,
});

async function refusingTaken<T>({ period, mode }: Pick<Budget, 'period' | 'mode'>, change: () => Promise<T>) {
  try {
    return await change();
  } catch (error) {
    if (!isUniqueViolation(error, 'budgets_scope_key')) throw error;
    const message = `This scope already has a ${period} ${mode} budget. Change that budget instead.`;
    throw new AppError('conflict', { message, cause: error });
  }
}

interface Change {
  readonly before: Budget | null;
  readonly after: Budget | null;
}

function note(audit: Audit, tx: Transaction, { before, after }: Change, author: Author): Promise<void> {
  const budget = after ?? before;
  if (budget === null) throw new Error('a change without a budget');
  const action = before === null ? 'created' : after === null ? 'deleted' : 'changed';
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

export function createBudgetChanges({ db, clock, audit, onChanged }: BudgetChangesOptions): BudgetChanges {
  return {
    async create({ scope, amountPicoUsd, alertPercents, ...input }, author) {
      const now = new Date(clock.now());
      const values = {
        ...input,
        id: uuidv7(clock.now()),
        scopeType: scope.type,
        scopeId: scope.id ?? '',
        amount: amountPicoUsd,
        alertPercents: [...alertPercents],
        createdAt: now,
        updatedAt: now,
      };
      const made = await refusingTaken(input, () =>
        db.orm.transaction(async (tx) => {
          await requireRoom(tx, input.organizationId);
          const [row] = await tx.insert(budgets).values(values).returning();
          if (row === undefined) throw new Error('a budget was not inserted');
          const budget = toBudget(row);
          await note(audit, tx, { before: null, after: budget }, author);
          return budget;
        }),
      );
      await onChanged();
      return made;
    },
    async update(ref, { amountPicoUsd, mode, alertPercents }, author) {
      const changed = await db.orm.transaction(async (tx) => {
        await tx.select({ id: budgets.id }).from(budgets).where(isBudget(ref)).for('update');
        const before = await findBudget(tx, ref);
        if (before === null) return null;
        const values = {
          ...(amountPicoUsd !== undefined && { amount: amountPicoUsd }),
          ...(mode !== undefined && { mode }),
          ...(alertPercents !== undefined && { alertPercents: [...alertPercents] }),
          updatedAt: new Date(clock.now()),
        };
        const [row] = await refusingTaken({ period: before.period, mode: mode ?? before.mode }, () =>
          tx.update(budgets).set(values).where(isBudget(ref)).returning(),
        );
        if (row === undefined) return null;
        const after = toBudget(row);
        await note(audit, tx, { before, after }, author);
        return after;
      });
      if (changed !== null) await onChanged();
      return changed;
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

/** Checks the maximum under a lock, so that two parallel creations count each other. @throws AppError conflict */
async function requireRoom(tx: Transaction, organizationId: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`budgets ${organizationId}`}, 0))`);
  const [row] = await tx.select({ total: count() }).from(budgets).where(eq(budgets.organizationId, organizationId));
  if ((row?.total ?? 0) < budgetsMax) return;
  throw new AppError('conflict', {
    message: `The organization has ${budgetsMax} budgets, the maximum. Delete one first.`,
  });
}
