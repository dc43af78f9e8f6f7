import { createRoute } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import { type Admission, readLimitsLeft } from '#core/admission/admission.ts';
import { budgetsMax, periodOf } from '#core/budgets/budgets.ts';
import type { ApiKey } from '#core/keys/keys.ts';
import { type KeyLimits, type LimitsView, type LimitView, nextMonthMs } from '#core/limits/limits.ts';
import { type BudgetRoutesParts, toBudgetAnswers } from '#edge/api/money/money.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  toUnixSeconds,
  toUnixSecondsOrNull,
} from '#edge/api/shared/shared.ts';
import type { BudgetAnswer } from '#edge/contract/budgets.ts';
import { type OwnKeyAnswer, ownKeySchema } from '#edge/contract/keys.ts';

export interface OwnKeyRouteParts {
  readonly guards: Guards;
  readonly admission: Pick<Admission, 'check' | 'heldOfSlot'>;
  readonly budgets: Pick<BudgetRoutesParts['budgets'], 'list'>;
  readonly spentOf: BudgetRoutesParts['spentOf'];
  readonly clock: Clock;
}

type Data = OwnKeyAnswer['data'];

/** Registers the route by which a key reads about itself, whatever its scope. */
export function registerOwnKeyRoute(app: ApiApp, parts: OwnKeyRouteParts): void {
  const { guards, admission, clock } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/key',
    security: bearerSecurity,
    middleware: [guards.may('keys', 'own')],
    responses: { 200: jsonAnswer(ownKeySchema, 'The key of the request') },
  });
  app.openapi(route, async (context) => {
    const { actor, project, scope } = context.get('caller');
    if (actor.kind !== 'key')
      throw new AppError('insufficient_scope', { message: 'Send the request with an API key.' });
    const { key } = actor;
    const nowMs = clock.now();
    const [view, spending, budgets] = await Promise.all([
      readLimitsLeft(admission, { organizationId: key.organizationId, keyId: key.id, limits: key }, nowMs),
      readSpending(parts, key, nowMs),
      readBudgets(parts, key, project.id),
    ]);
    const data = {
      ...identityOf(key),
      is_management_key: scope === 'management',
      project_id: formatId('proj', project.id),
      limits: limitsOf(key, view, nowMs),
      ...limitOf(budgets, key),
      ...spending,
      budgets,
    };
    return context.json({ data }, 200);
  });
}

/** Returns when the secret of the request ends; null if it does not. */
function endOf({ expiresAtMs, secretEndsAtMs }: ApiKey): number | null {
  if (expiresAtMs === null || secretEndsAtMs === null) return expiresAtMs ?? secretEndsAtMs;
  return Math.min(expiresAtMs, secretEndsAtMs);
}

function identityOf(key: ApiKey) {
  return {
    id: formatId('key', key.id),
    name: key.name,
    label: `${key.prefix}…${key.last4}`,
    scope: key.scope,
    user_id: key.userId === null ? null : formatId('user', key.userId),
    service_account_id: key.serviceAccountId === null ? null : formatId('svc_acct', key.serviceAccountId),
    models: key.usableModels === null ? null : [...key.usableModels],
    created_at: toUnixSeconds(key.createdAtMs),
    expires_at: toUnixSecondsOrNull(endOf(key)),
  };
}

/** @param view what remains; null while that is unknown */
function limitsOf(key: KeyLimits, view: LimitsView | null, nowMs: number): Data['limits'] {
  const remaining = (limit: number | null, left: number | null | undefined, resetAtMs: number | null) => {
    if (limit === null) return null;
    return { limit, remaining: left ?? null, resets_at: resetAtMs === null ? null : Math.ceil(resetAtMs / 1000) };
  };
  const ofMinute = (limit: number | null, shown: LimitView | null | undefined) =>
    remaining(limit, shown?.remaining, shown?.resetAtMs ?? null);
  return {
    requests_per_minute: ofMinute(key.requestsPerMinute, view?.requests),
    max_concurrency: remaining(key.maxConcurrency, view?.concurrencyLeft, null),
    tokens_per_minute: ofMinute(key.tokensPerMinute, view?.tokens),
    monthly_token_limit: remaining(key.monthlyTokenLimit, view?.monthTokensLeft, nextMonthMs(nowMs)),
  };
}

async function readSpending({ spentOf }: OwnKeyRouteParts, { organizationId, id, createdAtMs }: ApiKey, nowMs: number) {
  const [day, month] = [periodOf('daily', nowMs), periodOf('monthly', nowMs)];
  const all = { fromMs: periodOf('daily', createdAtMs).fromMs, toMs: day.toMs };
  const amounts = await spentOf(
    organizationId,
    [all, day, month].map((span) => ({ type: 'api_key', id, ...span })),
  );
  const [usage = 0, daily = 0, monthly = 0] = amounts.map((picoUsd) => Number(formatUsd(picoUsd)));
  return { usage, usage_daily: daily, usage_monthly: monthly };
}

async function readBudgets(parts: OwnKeyRouteParts, key: ApiKey, projectId: string): Promise<BudgetAnswer[]> {
  const { organizationId } = key;
  const view = { keyIds: [key.id], projectIds: [projectId] };
  const page = await parts.budgets.list({ organizationId, view, limit: budgetsMax, before: null });
  return toBudgetAnswers(parts, page.budgets);
}

/** Returns the key's own hard budget of all models with the least left, as OpenRouter shows the limit of a key. */
function limitOf(budgets: readonly BudgetAnswer[], key: ApiKey): Pick<Data, `limit${'' | '_remaining' | '_reset'}`> {
  const left = ({ remaining }: BudgetAnswer): number => Number(remaining ?? '0');
  const [least] = budgets
    .filter(({ scope, mode, models }) => mode === 'hard' && models === null && scope.type === 'api_key')
    .filter(({ scope }) => scope.id === formatId('key', key.id))
    .toSorted((one, other) => left(one) - left(other));
  if (least === undefined) return { limit: null, limit_remaining: null, limit_reset: null };
  const limit = Number(least.amount) + Number(least.raise?.amount ?? '0');
  return { limit, limit_remaining: left(least), limit_reset: least.period };
}
