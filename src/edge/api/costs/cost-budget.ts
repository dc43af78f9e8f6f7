import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { CostBudgets, CostBudgetStatus } from '#core/cost-budgets/cost-budgets.ts';
import { type Amount, formatPrice } from '#core/costs/costs.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  organizationQuery,
} from '#edge/api/shared/shared.ts';
import { type CostBudgetAnswer, costBudgetSchema } from '#edge/contract/costs.ts';
import { authorOf } from '#edge/http/http.ts';
import { currencyText, scaledText } from './dated-rates.ts';

/** The monthly budget of an organization for node-hours and GPU-hours, and the forecast of the current month. */

export interface CostBudgetRoutesParts {
  readonly guards: Guards;
  readonly costBudgets: CostBudgets;
}

const path = '/v1/billing/budget';
const query = z.strictObject(organizationQuery);
const percentsMax = 10;
const percentMax = 1000;

const putSchema = z
  .strictObject({
    amount: scaledText('Amount per month').refine((amount) => amount > 0n, 'must be more than 0'),
    currency: currencyText().optional().openapi({ description: 'Default: the billing currency of the organization' }),
    alert_percents: z
      .array(z.int().min(1, 'must be 1 or more').max(percentMax, `must be at most ${percentMax}`))
      .max(percentsMax, `must have at most ${percentsMax} entries`)
      .transform((all) => [...new Set(all)].toSorted((a, b) => a - b))
      .default([80, 100])
      .openapi({
        type: 'array',
        items: { type: 'integer', minimum: 1, maximum: percentMax },
        description: 'Percentages of the amount at which owners and admins are notified, once per month',
        example: [80, 100],
      }),
  })
  .openapi('PutCostBudget');

const toAmount = ({ currency, amount, amountExact }: Amount) => ({ currency, amount, amount_exact: amountExact });

function toAnswer(organizationId: string, status: CostBudgetStatus): CostBudgetAnswer {
  const { budget } = status;
  return {
    organization_id: formatId('org', organizationId),
    budget:
      budget === null
        ? null
        : {
            amount: formatPrice(budget.amount),
            currency: budget.currency,
            alert_percents: [...budget.alertPercents],
          },
    month: status.month,
    spent: status.spent.map(toAmount),
    forecast: status.forecast.map(toAmount),
    spent_percent: status.spentPercent,
    forecast_percent: status.forecastPercent,
  };
}

export function registerCostBudgetRoutes(app: ApiApp, { guards, costBudgets }: CostBudgetRoutesParts): void {
  const common = { path, security: bearerSecurity } as const;
  const answers = { 200: jsonAnswer(costBudgetSchema, 'The budget, and the costs of this month') };
  const get = createRoute({
    ...common,
    method: 'get',
    middleware: [guards.may('costs.read')],
    request: { query },
    responses: answers,
  });
  app.openapi(get, async (context) => {
    const id = await guards.organizationOf(context);
    return context.json(toAnswer(id, await costBudgets.read(id)), 200);
  });
  const put = createRoute({
    ...common,
    method: 'put',
    middleware: [guards.may('costs.currency'), guards.jsonBody],
    request: { query, body: jsonRequest(putSchema) },
    responses: answers,
  });
  app.openapi(put, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const { amount, currency = null, alert_percents: alertPercents } = context.req.valid('json');
    const budget = { amount, currency, alertPercents };
    await costBudgets.change({ organizationId, budget, author: authorOf(context) });
    return context.json(toAnswer(organizationId, await costBudgets.read(organizationId)), 200);
  });
  const remove = createRoute({
    ...common,
    method: 'delete',
    middleware: [guards.may('costs.currency')],
    request: { query },
    responses: { 204: { description: 'The organization has no budget' } },
  });
  app.openapi(remove, async (context) => {
    const organizationId = await guards.organizationOf(context);
    await costBudgets.change({ organizationId, budget: null, author: authorOf(context) });
    return context.body(null, 204);
  });
}
