import { type ConversionRate, type Costs, formatPrice } from '#core/costs/costs.ts';
import { type ApiApp, type Guards, requireId, toPage } from '#edge/api/shared/shared.ts';
import { type ConversionRateAnswer, conversionRates } from '#edge/contract/rates.ts';
import type { Problem } from '#edge/http/http.ts';
import {
  changedBy,
  currencyText,
  datedRoutes,
  requireAdded,
  requireAllAdded,
  requireEnded,
  requireRows,
  scaledText,
  showDated,
  toDates,
} from './dated-rates.ts';

export interface ConversionRateRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'conversionRates' | 'listConversionRates'>;
}

const created = {
  from: currencyText(),
  to: currencyText(),
  rate: scaledText('Value of one unit of `from` in `to`; the opposite direction is a separate rate').refine(
    (rate) => rate > 0n,
    'must be more than 0',
  ),
};

function isToItself({ from, to }: Readonly<Record<string, unknown>>): Problem | null {
  const isSame = typeof from === 'string' && from === to;
  return isSame ? { field: 'to', message: 'must differ from "from"' } : null;
}

function toAnswer(rate: ConversionRate): ConversionRateAnswer {
  return { from: rate.from, to: rate.to, rate: formatPrice(rate.rate), ...showDated('conv', rate) };
}

export function registerConversionRateRoutes(app: ApiApp, { guards, costs }: ConversionRateRoutesParts): void {
  const routes = datedRoutes({
    guards,
    prefix: 'conv',
    path: '/v1/billing/conversion-rates',
    name: 'ConversionRate',
    answers: conversionRates,
    created,
    between: isToItself,
    filters: { from: currencyText().optional(), to: currencyText().optional() },
  });
  app.openapi(routes.list, async (context) => {
    const { from = null, to = null, at = null, ...page } = context.req.valid('query');
    const { rates, total } = await costs.listConversionRates({ from, to, atMs: at, ...page });
    return context.json(toPage(rates.map(toAnswer), page, total), 200);
  });
  app.openapi(routes.create, async (context) => {
    const { from, to, rate, ...dates } = context.req.valid('json');
    const result = await costs.conversionRates.add({ from, to, rate, ...toDates(dates) }, changedBy(context));
    return context.json(requireAdded('conv', result, toAnswer), 201);
  });
  app.openapi(routes.import, async (context) => {
    const rows = requireRows(context.req.valid('json'), routes.columns, routes.createSchema);
    const inputs = rows.map(({ row: { from, to, rate, ...dates } }) => ({ from, to, rate, ...toDates(dates) }));
    const result = await costs.conversionRates.addAll(inputs, changedBy(context));
    return context.json(requireAllAdded('conv', { result, rows }, toAnswer), 201);
  });
  app.openapi(routes.end, async (context) => {
    const id = requireId('conv', context.req.valid('param').id);
    const { at: atMs = null, retroactive } = context.req.valid('json');
    const result = await costs.conversionRates.end(id, { atMs, retroactive }, changedBy(context));
    return context.json(toAnswer(requireEnded('conv', result)), 200);
  });
}
