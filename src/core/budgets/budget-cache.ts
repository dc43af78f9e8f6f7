import { createHash } from 'node:crypto';
import type { Db } from '#base/database/database.ts';
import { uuidTimeMs } from '#base/id.ts';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { amountAt, type Budget, type BudgetPeriod, forgivenIn, spanOf } from './budget.ts';
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
    readonly period: BudgetPeriod;
    /** Sorted public names; null for all models. */
    readonly models: readonly string[] | null;
    readonly fromMs: number;
    readonly toMs: number;
  };
  /** Most that may be spent in the period: the amount with its raise and what is forgiven, at least 0. */
  readonly amountMicroUsd: bigint;
  /** The amount with its raise. */
  readonly allowedPicoUsd: bigint;
  /** Spending of the period that does not count. */
  readonly forgivenPicoUsd: bigint;
}

/** The budgets of all organizations in this gateway's memory, so that requests wait for no database query. */
export interface BudgetCache {
  /**
   * Returns the hard budgets that apply to a request; always the same empty list if there are none.
   * @param model catalog id of the model that serves the request
   */
  of(spender: BudgetSpender, requestId: string, model: string): readonly AppliedBudget[];
  /** True if the project has a hard budget of its own. */
  boundsProject(organizationId: string, projectId: string): boolean;
  /** True if a budget of the organization counts any end user's spending. */
  countsUsers(organizationId: string): boolean;
  /** True if a budget of the organization counts this end user's spending. */
  countsUser(organizationId: string, user: string): boolean;
  /** Returns, by organization, the start of the earliest current period in which end users are counted, in ms. */
  usersCountedFrom(): ReadonlyMap<string, number>;
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
  /** Budgets of end users, hard and soft. */
  readonly ofUsers: readonly Budget[];
  readonly users: ReadonlySet<string>;
  readonly countsEachUser: boolean;
}

const none: readonly AppliedBudget[] = Object.freeze([]);
const noBudgets: readonly Budget[] = [];

export interface BudgetCacheOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

export function createBudgetCache({ db, clock, log }: BudgetCacheOptions): BudgetCache {
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
    of(spender, requestId, model) {
      const budgets = known.get(spender.organizationId);
      if (budgets === undefined) return none;
      return appliedOf(budgets, { ...spender, acceptedMs: uuidTimeMs(requestId), model, nowMs: clock.now() });
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
    usersCountedFrom() {
      const nowMs = clock.now();
      const starts = [...known].map(
        ([id, { ofUsers }]) => [id, Math.min(...ofUsers.map((budget) => spanOf(budget, nowMs).fromMs))] as const,
      );
      return new Map(starts.filter(([, fromMs]) => fromMs < nowMs));
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
      ofUsers: users,
      users: new Set(users.flatMap(({ scope }) => (scope.id === null ? [] : [scope.id]))),
      countsEachUser: users.some(({ scope }) => scope.id === null),
    });
  }
  return made;
}

interface AskedBudgets extends BudgetSpender {
  /** When the request was accepted, and now, in milliseconds since the Unix epoch. */
  readonly acceptedMs: number;
  readonly nowMs: number;
  readonly model: string;
}

function appliedOf({ hard, eachUser }: OrganizationBudgets, asked: AskedBudgets): readonly AppliedBudget[] {
  const { keyId, projectId, user, model } = asked;
  const found: AppliedBudget[] = [];
  const add = (type: AppliedBudget['spending']['type'], id: string, budgets: readonly Budget[]): void => {
    for (const budget of budgets) {
      if (budget.models === null || budget.models.includes(model)) found.push(applied(budget, { type, id }, asked));
    }
  };
  add('api_key', keyId, hard.get(nameOf('api_key', keyId)) ?? noBudgets);
  add('project', projectId, hard.get(nameOf('project', projectId)) ?? noBudgets);
  if (user !== null) {
    const own = hard.get(nameOf('user', user)) ?? noBudgets;
    const others = eachUser.filter((each) => !own.some((budget) => replaces(budget, each)));
    add('user', user, [...own, ...others]);
  }
  return found.length === 0 ? none : found;
}

/** True if a budget of one end user replaces a budget of each end user for that user. */
export function replaces(own: Budget, each: Budget): boolean {
  return own.period === each.period && own.mode === each.mode && own.modelsHash === each.modelsHash;
}

function applied(
  budget: Budget,
  { type, id }: { readonly type: AppliedBudget['spending']['type']; readonly id: string },
  { acceptedMs, nowMs }: AskedBudgets,
): AppliedBudget {
  const { period, models, modelsHash } = budget;
  const span = spanOf(budget, acceptedMs);
  const spending = { type, id, period, models, ...span };
  const allowedPicoUsd = amountAt(budget, nowMs);
  const forgivenPicoUsd = forgivenIn(budget, span);
  const most = allowedPicoUsd + forgivenPicoUsd;
  const amountMicroUsd = most > 0n ? most / PICO_PER_MICRO : 0n;
  return {
    budgetId: budget.id,
    slot: slotOf({ ...spending, modelsHash }),
    spending,
    amountMicroUsd,
    allowedPicoUsd,
    forgivenPicoUsd,
  };
}

type SlotParts = Pick<AppliedBudget['spending'], 'type' | 'id' | 'period' | 'fromMs'> & Pick<Budget, 'modelsHash'>;

/** Returns the name of a period's spending: only letters, digits, - and _. */
export function slotOf({ type, id, period, modelsHash, fromMs }: SlotParts): string {
  const who = type === 'user' ? createHash('sha256').update(id).digest('base64url').slice(0, 22) : id;
  const ofAll = `${type}_${who}_${period}_${fromMs / 1000}`;
  return modelsHash === '' ? ofAll : `${ofAll}_${modelsHash}`;
}
