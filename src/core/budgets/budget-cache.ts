import { createHash } from 'node:crypto';
import type { Db } from '#base/database/database.ts';
import { uuidTimeMs } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { type Budget, periodOf, type PeriodSpan } from './budget.ts';
import { readAllBudgets, readFingerprint } from './rows.ts';

/** The caller that spends; see admission's contract. */
export interface BudgetSpender {
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  readonly user: string | null;
}

/** A budget in one period, as admission uses it. */
export interface AppliedBudget {
  readonly budgetId: string;
  readonly slot: string;
  readonly spending: {
    readonly type: 'project' | 'api_key' | 'user';
    readonly id: string;
    readonly period: 'daily' | 'monthly';
    readonly fromMs: number;
    readonly toMs: number;
  };
  readonly amountMicroUsd: bigint;
}

/** The budgets of all organizations in this gateway's memory, so that requests wait for no database query. */
export interface BudgetCache {
  /** Returns the hard budgets that apply to a request; always the same empty list if there are none. */
  of(spender: BudgetSpender, requestId: string): readonly AppliedBudget[];
  /** True if the project has a hard budget of its own. */
  boundsProject(organizationId: string, projectId: string): boolean;
  /** True if a budget of the organization counts any end user's spending. */
  countsUsers(organizationId: string): boolean;
  /** True if a budget of the organization counts this end user's spending. */
  countsUser(organizationId: string, user: string): boolean;
  /** Reads all budgets. @throws errors of the database; the budgets in memory stay in use */
  load(): Promise<void>;
  /** Reads all budgets if they have changed. Finds changes by other gateways that sent no notification. */
  refreshIfChanged(): Promise<void>;
}

/** Budgets of one organization. */
interface OrganizationBudgets {
  /** Hard budgets by scope type and id. */
  readonly hard: ReadonlyMap<string, readonly Budget[]>;
  /** Hard budgets for each end user. */
  readonly eachUser: readonly Budget[];
  readonly users: ReadonlySet<string>;
  readonly countsEachUser: boolean;
}

const none: readonly AppliedBudget[] = Object.freeze([]);
const noBudgets: readonly Budget[] = [];

export interface BudgetCacheOptions {
  readonly db: Db;
  readonly log: Log;
}

export function createBudgetCache({ db, log }: BudgetCacheOptions): BudgetCache {
  let known: ReadonlyMap<string, OrganizationBudgets> = new Map();
  let fingerprint: string | null = null;
  let isFailing = false;
  let loading = Promise.resolve();
  const read = async (): Promise<void> => {
    // Read before the rows, so that changes in between are read again.
    const seen = await readFingerprint(db);
    known = byOrganization(await readAllBudgets(db));
    fingerprint = seen;
  };
  /** Runs reads one after another, so that an older read never finishes last. */
  const load = (): Promise<void> => {
    loading = loading.catch(() => undefined).then(read);
    return loading;
  };
  return {
    of(spender, requestId) {
      const budgets = known.get(spender.organizationId);
      return budgets === undefined ? none : appliedOf(budgets, spender, requestId);
    },
    boundsProject: (organizationId, projectId) =>
      known.get(organizationId)?.hard.has(nameOf('project', projectId)) === true,
    countsUsers(organizationId) {
      const budgets = known.get(organizationId);
      return budgets !== undefined && (budgets.countsEachUser || budgets.users.size > 0);
    },
    countsUser(organizationId, user) {
      const budgets = known.get(organizationId);
      return budgets !== undefined && (budgets.countsEachUser || budgets.users.has(user));
    },
    load,
    async refreshIfChanged() {
      try {
        if ((await readFingerprint(db)) !== fingerprint) await load();
        isFailing = false;
      } catch (error) {
        if (!isFailing)
          log.warn(
            { err: error },
            'changes of budgets cannot be read from PostgreSQL; the known budgets stay in effect. Retrying every second',
          );
        isFailing = true;
      }
    },
  };
}

const nameOf = (type: string, id: string): string => `${type} ${id}`;

function byOrganization(all: readonly Budget[]): ReadonlyMap<string, OrganizationBudgets> {
  const made = new Map<string, OrganizationBudgets>();
  for (const [organizationId, budgets] of Map.groupBy(all, (budget) => budget.organizationId)) {
    const hard = budgets.filter(({ mode }) => mode === 'hard');
    const named = hard.filter(({ scope }) => scope.id !== null);
    const users = budgets.filter(({ scope }) => scope.type === 'user');
    made.set(organizationId, {
      hard: Map.groupBy(named, ({ scope }) => nameOf(scope.type, scope.id ?? '')),
      eachUser: hard.filter(({ scope }) => scope.id === null),
      users: new Set(users.flatMap(({ scope }) => (scope.id === null ? [] : [scope.id]))),
      countsEachUser: users.some(({ scope }) => scope.id === null),
    });
  }
  return made;
}

function appliedOf(
  { hard, eachUser }: OrganizationBudgets,
  { keyId, projectId, user }: BudgetSpender,
  requestId: string,
): readonly AppliedBudget[] {
  const found: AppliedBudget[] = [];
  const acceptedMs = uuidTimeMs(requestId);
  const add = (type: AppliedBudget['spending']['type'], id: string, budgets: readonly Budget[]): void => {
    for (const budget of budgets) found.push(applied(budget, { type, id }, periodOf(budget.period, acceptedMs)));
  };
  add('api_key', keyId, hard.get(nameOf('api_key', keyId)) ?? noBudgets);
  add('project', projectId, hard.get(nameOf('project', projectId)) ?? noBudgets);
  if (user !== null) {
    const own = hard.get(nameOf('user', user)) ?? noBudgets;
    const others = eachUser.filter(({ period }) => !own.some((budget) => budget.period === period));
    add('user', user, [...own, ...others]);
  }
  return found.length === 0 ? none : found;
}

function applied(
  { id: budgetId, period, amountPicoUsd }: Budget,
  { type, id }: { readonly type: AppliedBudget['spending']['type']; readonly id: string },
  { fromMs, toMs }: PeriodSpan,
): AppliedBudget {
  return {
    budgetId,
    slot: slotOf({ type, id, period, fromMs }),
    spending: { type, id, period, fromMs, toMs },
    amountMicroUsd: amountPicoUsd / PICO_PER_MICRO,
  };
}

/** Returns the name of a period's spending: only letters, digits, - and _. */
export function slotOf({ type, id, period, fromMs }: Omit<AppliedBudget['spending'], 'toMs'>): string {
  const who = type === 'user' ? createHash('sha256').update(id).digest('base64url').slice(0, 22) : id;
  return `${type}_${who}_${period}_${fromMs / 1000}`;
}
