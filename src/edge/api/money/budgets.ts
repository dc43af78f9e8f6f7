import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { formatId, parseId } from '#base/id.ts';
import { formatUsd, PICO_PER_MICRO } from '#base/money.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Admission } from '#core/admission/admission.ts';
import {
  amountAt,
  type Budget,
  type Budgets,
  type BudgetScope,
  type BudgetView,
  forgivenIn,
  seesBudget,
  slotOf,
  spanOf,
} from '#core/budgets/budgets.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import type { Keys } from '#core/keys/keys.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  readAfter,
  requireId,
  toCursorPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { keysSeen } from '#edge/api/usage/usage.ts';
import { type BudgetAnswer, budgetListSchema, budgetSchema, deletedBudgetSchema } from '#edge/contract/budgets.ts';
import { idText } from '#edge/contract/fields.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';
import { budgetQuery, createBudgetSchema, listBudgetsQuery, patchBudgetSchema } from './budget-schemas.ts';

/** Budgets of an organization: owners and admins create them, members see those of their own keys and projects. */

export interface BudgetRoutesParts {
  readonly guards: Guards;
  readonly budgets: Pick<Budgets, 'list' | 'find' | 'create' | 'update' | 'reset' | 'remove'>;
  /** Returns the amounts in pico-dollars, in the order of `spendings`. */
  readonly spentOf: (organizationId: string, spendings: readonly Spending[]) => Promise<readonly bigint[]>;
  readonly admission: Pick<Admission, 'heldOfSlot'>;
  readonly accounts: Pick<Accounts, 'findProject'>;
  readonly keys: Pick<Keys, 'idsOf' | 'get'>;
  /** Models by name or alias. */
  readonly catalog: Pick<Catalog, 'find'>;
  readonly clock: Clock;
}

/** Reads what budgets have spent. */
type SpendingParts = Pick<BudgetRoutesParts, 'spentOf' | 'admission' | 'clock'>;

interface Spending {
  readonly type: 'project' | 'api_key' | 'user';
  readonly id: string;
  readonly models?: readonly string[] | null;
  readonly fromMs: number;
  readonly toMs: number;
}

const collection = '/v1/budgets';
const params = z.object({ id: idText('budget') });
const shared = { security: bearerSecurity };

export function registerBudgetRoutes(app: ApiApp, parts: BudgetRoutesParts): void {
  registerCollection(app, parts);
  registerReading(app, parts);
  registerChanges(app, parts);
}

function registerCollection(app: ApiApp, parts: BudgetRoutesParts): void {
  const { guards, budgets } = parts;
  const list = createRoute({
    method: 'get',
    path: collection,
    ...shared,
    middleware: [guards.may('budgets.read', 'own')],
    request: { query: listBudgetsQuery },
    responses: { 200: jsonAnswer(budgetListSchema, 'A page of budgets') },
  });
  app.openapi(list, async (context) => {
    const { limit, after, scope_type: type, scope_id: id, alerted } = context.req.valid('query');
    if (id !== undefined && type === undefined) {
      throw new ValidationError([{ field: 'scope_id', message: 'requires scope_type' }]);
    }
    const organizationId = await guards.organizationOf(context);
    const view = await viewOf(parts, context);
    const scope = type === undefined || id === undefined ? undefined : readScope({ type, id }, 'scope_id');
    const alertedAtMs = alerted === undefined ? undefined : parts.clock.now();
    const asked = { organizationId, view, limit, before: readAfter('budget', after), alertedAtMs };
    const page = await budgets.list({ ...asked, scope, ...(scope === undefined && { type }) });
    return context.json(toCursorPage(await toBudgetAnswers(parts, page.budgets), page.more), 200);
  });
  const create = createRoute({
    method: 'post',
    path: collection,
    ...shared,
    middleware: [
      guards.may('budgets'),
      guards.smallJsonBody,
      guards.once('budget', { status: 201, namesOrganization: true }),
    ],
    request: {
      query: z.strictObject({ organization_id: budgetQuery.shape.organization_id }),
      headers: onceHeaders,
      body: jsonRequest(createBudgetSchema),
    },
    responses: { 201: jsonAnswer(budgetSchema, 'The budget') },
  });
  app.openapi(create, async (context) => {
    const body = context.req.valid('json');
    const organizationId = await guards.organizationOf(context, body.organization_id);
    const scope = readScope(body.scope, 'scope.id');
    await requireScope(parts, organizationId, scope);
    const { period, mode, amount: amountPicoUsd, opening_spent: opening, alert_percents: alertPercents } = body;
    if (scope.id === null && opening !== undefined) {
      throw new ValidationError([{ field: 'opening_spent', message: 'must be absent for a budget of each end user' }]);
    }
    const models = readModels(parts, body.models);
    const spending = { amountPicoUsd, openingPicoUsd: opening ?? 0n };
    const input = { organizationId, scope, period, mode, models, ...spending, alertPercents };
    const made = await budgets.create(input, authorOf(context));
    context.header('location', `${collection}/${formatId('budget', made.id)}`);
    return context.json(await toAnswer(parts, made), 201);
  });
}

function registerReading(app: ApiApp, parts: BudgetRoutesParts): void {
  const { guards, budgets } = parts;
  const get = createRoute({
    method: 'get',
    path: `${collection}/{id}`,
    ...shared,
    middleware: [guards.may('budgets.read', 'own')],
    request: { params, query: budgetQuery },
    responses: { 200: jsonAnswer(budgetSchema, 'The budget') },
  });
  app.openapi(get, async (context) => {
    const ref = { organizationId: await guards.organizationOf(context), id: idOf(context.req.valid('param').id) };
    const budget = await budgets.find(ref);
    if (budget === null || !seesBudget(await viewOf(parts, context), budget)) throw notFound('budget');
    return context.json(await toAnswer(parts, budget, context.req.valid('query').user ?? null), 200);
  });
}

function registerChanges(app: ApiApp, parts: BudgetRoutesParts): void {
  const { guards, budgets } = parts;
  const query = z.strictObject({ organization_id: budgetQuery.shape.organization_id });
  const update = createRoute({
    method: 'patch',
    path: `${collection}/{id}`,
    ...shared,
    middleware: [guards.may('budgets'), guards.smallJsonBody],
    request: { params, query, body: jsonRequest(patchBudgetSchema) },
    responses: { 200: jsonAnswer(budgetSchema, 'The budget') },
  });
  app.openapi(update, async (context) => {
    const ref = { organizationId: await guards.organizationOf(context), id: idOf(context.req.valid('param').id) };
    const { amount: amountPicoUsd, mode, alert_percents: alertPercents, raise: asked } = context.req.valid('json');
    const raise = asked && { amountPicoUsd: asked.amount, untilMs: asked.until * 1000 };
    if (raise && raise.untilMs <= parts.clock.now()) {
      throw new ValidationError([{ field: 'raise.until', message: 'must be in the future' }]);
    }
    const changed = await budgets.update(ref, { amountPicoUsd, mode, raise, alertPercents }, authorOf(context));
    if (changed === null) throw notFound('budget');
    return context.json(await toAnswer(parts, changed), 200);
  });
  const reset = createRoute({
    method: 'post',
    path: `${collection}/{id}/reset`,
    ...shared,
    middleware: [guards.may('budgets')],
    request: { params, query },
    responses: { 200: jsonAnswer(budgetSchema, 'The budget') },
  });
  app.openapi(reset, async (context) => {
    const ref = { organizationId: await guards.organizationOf(context), id: idOf(context.req.valid('param').id) };
    const changed = await budgets.reset(ref, authorOf(context));
    if (changed === null) throw notFound('budget');
    return context.json(await toAnswer(parts, changed), 200);
  });
  const remove = createRoute({
    method: 'delete',
    path: `${collection}/{id}`,
    ...shared,
    middleware: [guards.may('budgets')],
    request: { params, query },
    responses: { 200: jsonAnswer(deletedBudgetSchema, 'Confirmation') },
  });
  app.openapi(remove, async (context) => {
    const ref = { organizationId: await guards.organizationOf(context), id: idOf(context.req.valid('param').id) };
    if (!(await budgets.remove(ref, authorOf(context)))) throw notFound('budget');
    const id = formatId('budget', ref.id);
    return context.json({ object: 'budget.deleted' as const, id, deleted: true as const }, 200);
  });
}

const idOf = (text: string): string => requireId('budget', text);

/** @throws ValidationError if the id does not match its type */
function readScope({ type, id }: BudgetScope, field: string): BudgetScope {
  if (type === 'user') return { type, id };
  if (id === null) throw new ValidationError([{ field, message: 'must not be null, except for the type user' }]);
  const prefix = type === 'project' ? 'proj' : 'key';
  const uuid = parseId(prefix, id);
  if (uuid === null) throw new ValidationError([{ field, message: `must be an id such as ${prefix}_…` }]);
  return { type, id: uuid };
}

/** Returns the ids of models, sorted, each once. @throws ValidationError for a name that no engine file has */
function readModels({ catalog }: BudgetRoutesParts, names: readonly string[] | null): readonly string[] | null {
  if (names === null) return null;
  const ids = names.map((name, index) => {
    const model = catalog.find(name);
    if (model !== undefined) return model.id;
    const message = `${JSON.stringify(name)} is no model of this gateway; list them with GET /v1/models`;
    throw new ValidationError([{ field: `models.${index}`, message }]);
  });
  return [...new Set(ids)].toSorted();
}

/** @throws AppError not_found for a project or key outside the organization */
async function requireScope({ accounts, keys }: BudgetRoutesParts, organizationId: string, scope: BudgetScope) {
  const { type, id } = scope;
  if (type === 'user' || id === null) return;
  if (type === 'project') {
    if ((await accounts.findProject(organizationId, id)) === null) throw notFound('proj');
  } else if ((await keys.get({ organizationId, keyId: id })) === null) throw notFound('key');
}

/** Returns which budgets a caller with the extent `own` sees; null for a caller who sees all. */
async function viewOf({ keys }: BudgetRoutesParts, context: HttpContext): Promise<BudgetView | null> {
  const keyIds = await keysSeen(keys, context);
  return keyIds === null ? null : { keyIds, projectIds: [context.get('caller').project.id] };
}

async function toAnswer(parts: BudgetRoutesParts, budget: Budget, user: string | null = null): Promise<BudgetAnswer> {
  const [answer] = await toBudgetAnswers(parts, [budget], user);
  if (answer === undefined) throw new Error('a budget has no answer');
  return answer;
}

/**
 * Returns budgets in the form of the API, with their spending.
 * @param user end user whose spending budgets of every end user show; null shows none
 */
export async function toBudgetAnswers(
  parts: SpendingParts,
  budgets: readonly Budget[],
  user: string | null = null,
): Promise<BudgetAnswer[]> {
  const nowMs = parts.clock.now();
  const all = budgets.map((budget) => {
    const { type, id } = budget.scope;
    const spender = id ?? user;
    const span = spanOf(budget, nowMs);
    const { period, models } = budget;
    return { budget, span, spending: spender === null ? null : { type, id: spender, period, models, ...span } };
  });
  const asked = all.flatMap(({ spending }) => (spending === null ? [] : [spending]));
  const organizationId = budgets[0]?.organizationId ?? '';
  // Holds first: a request that is charged meanwhile is then in both sums. In the other order it could be in neither.
  const held = await Promise.all(
    all.map(async ({ budget, spending }) =>
      spending !== null && budget.mode === 'hard'
        ? readHeld(parts, organizationId, slotOf({ ...spending, modelsHash: budget.modelsHash }))
        : null,
    ),
  );
  const amounts = await parts.spentOf(organizationId, asked);
  const spent = new Map(asked.map((spending, index) => [spending, amounts[index] ?? 0n]));
  return all.map(({ budget, span, spending }, index) => {
    const spentPicoUsd = spending === null ? null : (spent.get(spending) ?? 0n) - forgivenIn(budget, span);
    return answerOf(budget, span, { spentPicoUsd, heldPicoUsd: held[index] ?? null, nowMs });
  });
}

/** Returns null while the holds of other gateways are unknown. */
async function readHeld({ admission }: SpendingParts, organizationId: string, slot: string) {
  try {
    return (await admission.heldOfSlot(organizationId, slot)) * PICO_PER_MICRO;
  } catch (error) {
    if (error instanceof AppError && error.code === 'billing_unavailable') return null;
    throw error;
  }
}

interface Amounts {
  /** Null for each end user. */
  readonly spentPicoUsd: bigint | null;
  /** Null if unknown. */
  readonly heldPicoUsd: bigint | null;
  readonly nowMs: number;
}

function answerOf(
  budget: Budget,
  { fromMs, toMs }: ReturnType<typeof spanOf>,
  { spentPicoUsd, heldPicoUsd, nowMs }: Amounts,
): BudgetAnswer {
  const { id, scope, period, mode, models, raise, amountPicoUsd, alertPercents, createdAtMs } = budget;
  const left = spentPicoUsd === null ? null : amountAt(budget, nowMs) - spentPicoUsd - (heldPicoUsd ?? 0n);
  const scopeId =
    scope.id === null || scope.type === 'user'
      ? scope.id
      : formatId(scope.type === 'project' ? 'proj' : 'key', scope.id);
  return {
    object: 'budget',
    id: formatId('budget', id),
    scope: { type: scope.type, id: scopeId },
    period,
    mode,
    models: models === null ? null : [...models],
    amount: formatUsd(amountPicoUsd),
    raise:
      raise === null || raise.untilMs <= nowMs
        ? null
        : { amount: formatUsd(raise.amountPicoUsd), until: toUnixSeconds(raise.untilMs) },
    alert_percents: [...alertPercents],
    spent: spentPicoUsd === null ? null : formatUsd(spentPicoUsd),
    held: heldPicoUsd === null ? null : formatUsd(heldPicoUsd),
    remaining: left === null ? null : formatUsd(left > 0n ? left : 0n),
    period_start: toUnixSeconds(fromMs),
    resets_at: period === 'total' ? null : toUnixSeconds(toMs),
    created_at: toUnixSeconds(createdAtMs),
  };
}
