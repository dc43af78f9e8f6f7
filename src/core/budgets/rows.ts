import { and, desc, eq, exists, inArray, isNotNull, lt, or, type SQL, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { type Budget, budgetPeriods, type BudgetScope, dayOf, periodOf, type ScopeType } from './budget.ts';
import { budgetAlerts, budgets } from './schema.ts';

type BudgetRow = typeof budgets.$inferSelect;

export function toBudget(row: BudgetRow): Budget {
  const { id, organizationId, period, mode, amount, alertPercents, createdAt } = row;
  const { scopeType, scopeId, models, modelsHash, raiseAmount, raiseUntil, forgiven, forgivenFrom } = row;
  return {
    id,
    organizationId,
    scope: { type: scopeType, id: scopeId === '' ? null : scopeId },
    period,
    mode,
    models: models.length === 0 ? null : models,
    modelsHash,
    amountPicoUsd: amount,
    raise:
      raiseAmount === null || raiseUntil === null
        ? null
        : { amountPicoUsd: raiseAmount, untilMs: raiseUntil.getTime() },
    forgiven:
      forgiven === null || forgivenFrom === null ? null : { picoUsd: forgiven, fromMs: Date.parse(forgivenFrom) },
    alertPercents,
    createdAtMs: createdAt.getTime(),
  };
}

export async function readAllBudgets({ orm }: Db): Promise<readonly Budget[]> {
  return (await orm.select().from(budgets)).map(toBudget);
}

/**
 * Returns a text that differs after every created, changed or deleted budget; committed changes change a row's xmin.
 */
export async function readFingerprint({ sql }: Db): Promise<string> {
  const [row] = await sql<{ seen: string }[]>`
    select coalesce(md5(string_agg(id::text || xmin::text, ',' order by id)), '') as seen from budgets`;
  return row?.seen ?? '';
}

export interface BudgetRef {
  readonly organizationId: string;
  readonly id: string;
}

export const isBudget = ({ organizationId, id }: BudgetRef): SQL | undefined =>
  and(eq(budgets.id, id), eq(budgets.organizationId, organizationId));

export async function findBudget(db: Db['orm'] | Transaction, ref: BudgetRef): Promise<Budget | null> {
  const [row] = await db.select().from(budgets).where(isBudget(ref));
  return row === undefined ? null : toBudget(row);
}

/** Part of an organization's budgets that a caller may see: only those of these keys and projects. Ids are UUIDs. */
export interface BudgetView {
  readonly keyIds: readonly string[];
  readonly projectIds: readonly string[];
}

export interface BudgetListing {
  readonly organizationId: string;
  /** Null for all budgets. */
  readonly view: BudgetView | null;
  /** Only budgets of this scope; absent for all scopes. */
  readonly scope?: BudgetScope | undefined;
  /** Only budgets of this scope type. */
  readonly type?: ScopeType | undefined;
  /** Only budgets that have sent an alert in the period of this moment, in milliseconds since the Unix epoch. */
  readonly alertedAtMs?: number | undefined;
  readonly limit: number;
  /** Returns only budgets older than this one (its UUID); null starts with the newest. */
  readonly before: string | null;
}

export async function listBudgets(
  { orm }: Db,
  { organizationId, view, scope, type, alertedAtMs, limit, before }: BudgetListing,
): Promise<{ readonly budgets: readonly Budget[]; readonly more: boolean }> {
  const rows = await orm
    .select()
    .from(budgets)
    .where(
      and(
        eq(budgets.organizationId, organizationId),
        view === null ? undefined : isSeen(view),
        scope === undefined ? undefined : isOfScope(scope),
        type === undefined ? undefined : eq(budgets.scopeType, type),
        alertedAtMs === undefined ? undefined : exists(alertsOf(orm, alertedAtMs)),
        before === null ? undefined : lt(budgets.id, before),
      ),
    )
    .orderBy(desc(budgets.id))
    .limit(limit + 1);
  return { budgets: rows.slice(0, limit).map(toBudget), more: rows.length > limit };
}

/** Selects the sent alerts of a budget in its current period. */
function alertsOf(orm: Db['orm'], nowMs: number) {
  const isCurrent = budgetPeriods.map((period) =>
    period === 'total'
      ? eq(budgets.period, period)
      : and(eq(budgets.period, period), eq(budgetAlerts.periodStart, dayOf(periodOf(period, nowMs).fromMs))),
  );
  return orm
    .select({ found: sql`1` })
    .from(budgetAlerts)
    .where(and(eq(budgetAlerts.budgetId, budgets.id), isNotNull(budgetAlerts.raisedAt), or(...isCurrent)));
}

const isOfScope = ({ type, id }: BudgetScope): SQL | undefined =>
  and(eq(budgets.scopeType, type), eq(budgets.scopeId, id ?? ''));

function isSeen({ keyIds, projectIds }: BudgetView): SQL | undefined {
  return or(
    and(eq(budgets.scopeType, 'api_key'), inArray(budgets.scopeId, [...keyIds])),
    and(eq(budgets.scopeType, 'project'), inArray(budgets.scopeId, [...projectIds])),
  );
}

/** True if a caller with this view sees the budget. */
export function seesBudget(view: BudgetView | null, { scope: { type, id } }: Budget): boolean {
  if (view === null) return true;
  if (id === null || type === 'user') return false;
  return (type === 'api_key' ? view.keyIds : view.projectIds).includes(id);
}
