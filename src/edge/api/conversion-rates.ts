import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { type ConversionRate, type Costs, formatPrice } from '#core/costs/costs.ts';
import type { Problem } from '#edge/http/http.ts';
import type { ApiApp } from './app.ts';
import type { Guards } from './auth.ts';
import {
  always,
  atQuery,
  changedBy,
  checkBetween,
  currencyText,
  datesOfNew,
  datesShown,
  endSchema,
  requireAdded,
  requireEnded,
  scaledText,
  showDates,
  toDates,
} from './dated-rates.ts';
import { pageOf, pageQuery, toPage } from './pages.ts';
import { bearerSecurity, idText, jsonAnswer, jsonRequest, requireId } from './schemas.ts';

export interface ConversionRateRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'conversionRates' | 'listConversionRates'>;
}

const tags = ['Billing'];
const path = '/v1/billing/conversion-rates';

const rateFields = {
  id: idText('conv'),
  from: z.string().openapi({ example: 'USD' }),
  to: z.string().openapi({ example: 'EUR' }),
  rate: z.string().openapi({ example: '0.92345', description: 'What one unit of `from` is worth in `to`, exactly' }),
  ...datesShown,
};

const rateSchema = z.object(rateFields).openapi('ConversionRate');

const createdSchema = z
  .object({
    ...rateFields,
    follows: rateSchema.nullable().openapi({ description: 'The one that held until then, and was ended by it' }),
  })
  .openapi('CreatedConversionRate');

const createSchema = z
  .strictObject({
    from: currencyText(),
    to: currencyText(),
    rate: scaledText('What one unit of `from` is worth in `to`; the way back is a rate of its own').refine(
      (rate) => rate > 0n,
      'must be more than 0',
    ),
    ...datesOfNew,
  })
  .superRefine(checkBetween(isToItself), always)
  .openapi('CreateConversionRate');

function isToItself({ from, to }: Readonly<Record<string, unknown>>): Problem | null {
  const isSame = typeof from === 'string' && from === to;
  return isSame ? { field: 'to', message: 'must be another currency than from' } : null;
}

function toAnswer(rate: ConversionRate): z.infer<typeof rateSchema> {
  return {
    id: formatId('conv', rate.id),
    from: rate.from,
    to: rate.to,
    rate: formatPrice(rate.rate),
    ...showDates(rate),
  };
}

export function registerConversionRateRoutes(app: ApiApp, parts: ConversionRateRoutesParts): void {
  registerList(app, parts);
  registerCreation(app, parts);
  registerEnd(app, parts);
}

function registerList(app: ApiApp, { guards, costs }: ConversionRateRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path,
    tags,
    summary: 'List the rates that costs are converted by, those that begin last first',
    security: bearerSecurity,
    middleware: [guards.may('rates.read')],
    request: {
      query: z.strictObject({
        ...pageQuery,
        from: currencyText().optional(),
        to: currencyText().optional(),
        at: atQuery,
      }),
    },
    responses: { 200: jsonAnswer(pageOf(rateSchema, 'ConversionRatePage'), 'A page of conversion rates') },
  });
  app.openapi(route, async (context) => {
    const { from = null, to = null, at = null, ...page } = context.req.valid('query');
    const { rates, total } = await costs.listConversionRates({ from, to, atMs: at, ...page });
    return context.json(toPage(rates.map(toAnswer), page, total), 200);
  });
}

function registerCreation(app: ApiApp, { guards, costs }: ConversionRateRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path,
    tags,
    summary: 'Say what a currency is worth in another one, and end the rate that did so until then',
    security: bearerSecurity,
    middleware: [guards.may('rates'), guards.jsonBody],
    request: { body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(createdSchema, 'The conversion rate') },
  });
  app.openapi(route, async (context) => {
    const body = context.req.valid('json');
    const input = { from: body.from, to: body.to, rate: body.rate, ...toDates(body) };
    const { rate, ended } = requireAdded('conv', await costs.conversionRates.add(input, changedBy(context)));
    return context.json({ ...toAnswer(rate), follows: ended === null ? null : toAnswer(ended) }, 201);
  });
}

function registerEnd(app: ApiApp, { guards, costs }: ConversionRateRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/end`,
    tags,
    summary: 'End a conversion rate; costs after that are shown as they are until another one converts them',
    security: bearerSecurity,
    middleware: [guards.may('rates'), guards.jsonBody],
    request: { params: z.object({ id: idText('conv') }), body: jsonRequest(endSchema) },
    responses: { 200: jsonAnswer(rateSchema, 'The conversion rate') },
  });
  app.openapi(route, async (context) => {
    const id = requireId('conv', context.req.valid('param').id);
    const { at: atMs = null, retroactive } = context.req.valid('json');
    const result = await costs.conversionRates.end(id, { atMs, retroactive }, changedBy(context));
    return context.json(toAnswer(requireEnded('conv', result)), 200);
  });
}
