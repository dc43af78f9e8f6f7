import { createRoute, z } from '@hono/zod-openapi';
import { type Costs, currencies } from '#core/costs/costs.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  pageQuery,
  toPage,
  wholeListLimit,
} from '#edge/api/shared/shared.ts';
import { currencyPageSchema } from '#edge/contract/rates.ts';
import { type BillingCurrencyRoutesParts, registerBillingCurrencyRoutes } from './billing-currency.ts';
import { type CostBudgetRoutesParts, registerCostBudgetRoutes } from './cost-budget.ts';
import { type ConversionRateRoutesParts, registerConversionRateRoutes } from './conversion-rates.ts';
import { type CostRoutesParts, registerCostRoutes } from './cost-reports.ts';
import { type MarginRoutesParts, registerMarginRoutes } from './margins.ts';
import { type RateCardRoutesParts, registerRateCardRoutes } from './rate-cards.ts';

/** Costs of nodes and GPUs, in the shape of the generic API, with ISO times. */

export interface BillingRoutesParts
  extends
    RateCardRoutesParts,
    ConversionRateRoutesParts,
    CostRoutesParts,
    CostBudgetRoutesParts,
    BillingCurrencyRoutesParts,
    MarginRoutesParts {
  readonly guards: Guards;
  /** The cost store. Its report methods block nothing else: see `History.during`. */
  readonly costs: Costs;
}

export function registerBillingRoutes(app: ApiApp, parts: BillingRoutesParts): void {
  registerCurrencies(app, parts);
  registerBillingCurrencyRoutes(app, parts);
  registerRateCardRoutes(app, parts);
  registerConversionRateRoutes(app, parts);
  registerCostRoutes(app, parts);
  registerCostBudgetRoutes(app, parts);
  registerMarginRoutes(app, parts);
}

function registerCurrencies(app: ApiApp, { guards }: Pick<BillingRoutesParts, 'guards'>): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/billing/currencies',
    security: bearerSecurity,
    middleware: [guards.may('costs.read')],
    request: { query: z.strictObject({ ...pageQuery, limit: wholeListLimit }) },
    responses: { 200: jsonAnswer(currencyPageSchema, 'Currencies') },
  });
  app.openapi(route, (context) => {
    const asked = context.req.valid('query');
    const shown = currencies.slice((asked.page - 1) * asked.limit, asked.page * asked.limit);
    const data = shown.map(({ code, name, symbol, minorUnits }) => ({ code, name, symbol, minor_units: minorUnits }));
    return context.json(toPage(data, asked, currencies.length), 200);
  });
}
