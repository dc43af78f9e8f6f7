import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { type Costs, formatPrice, type RateCard, type Scaled } from '#core/costs/costs.ts';
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
import { bearerSecurity, idText, jsonAnswer, jsonRequest, nameText, requireId } from './schemas.ts';

export interface RateCardRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'rateCards' | 'listRateCards'>;
}

const tags = ['Billing'];
const path = '/v1/billing/rate-cards';

const hour = z.string().nullable().openapi({ example: '2.49', description: 'An exact decimal; null: not priced' });

const cardFields = {
  id: idText('rate'),
  hardware_profile: z.string(),
  currency: z.string().openapi({ example: 'USD' }),
  node_hour: hour,
  gpu_hour: hour,
  ...datesShown,
};

const cardSchema = z.object(cardFields).openapi('RateCard');

const createdSchema = z
  .object({
    ...cardFields,
    follows: cardSchema.nullable().openapi({ description: 'The one that held until then, and was ended by it' }),
  })
  .openapi('CreatedRateCard');

const createSchema = z
  .strictObject({
    hardware_profile: nameText(100),
    currency: currencyText(),
    node_hour: scaledText('Of a node').nullable().optional(),
    gpu_hour: scaledText('Of a GPU').nullable().optional(),
    ...datesOfNew,
  })
  .superRefine(checkBetween(isUnpriced), always)
  .openapi('CreateRateCard');

function isUnpriced({ node_hour: node, gpu_hour: gpu }: Readonly<Record<string, unknown>>): Problem | null {
  if ((node ?? null) !== null || (gpu ?? null) !== null) return null;
  return { field: 'gpu_hour', message: 'must be given, or node_hour: a card prices at least one of them' };
}

const textOrNull = (price: Scaled | null): string | null => (price === null ? null : formatPrice(price));

function toAnswer(card: RateCard): z.infer<typeof cardSchema> {
  return {
    id: formatId('rate', card.id),
    hardware_profile: card.hardwareProfile,
    currency: card.currency,
    node_hour: textOrNull(card.nodeHour),
    gpu_hour: textOrNull(card.gpuHour),
    ...showDates(card),
  };
}

export function registerRateCardRoutes(app: ApiApp, parts: RateCardRoutesParts): void {
  registerList(app, parts);
  registerCreation(app, parts);
  registerEnd(app, parts);
}

function registerList(app: ApiApp, { guards, costs }: RateCardRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path,
    tags,
    summary: 'List the prices of hours, those that begin last first',
    security: bearerSecurity,
    middleware: [guards.may('rates.read')],
    request: {
      query: z.strictObject({
        ...pageQuery,
        hardware_profile: z.string().optional(),
        currency: currencyText().optional(),
        at: atQuery,
      }),
    },
    responses: { 200: jsonAnswer(pageOf(cardSchema, 'RateCardPage'), 'A page of rate cards') },
  });
  app.openapi(route, async (context) => {
    const {
      hardware_profile: hardwareProfile = null,
      currency = null,
      at = null,
      ...page
    } = context.req.valid('query');
    const { rates, total } = await costs.listRateCards({ hardwareProfile, currency, atMs: at, ...page });
    return context.json(toPage(rates.map(toAnswer), page, total), 200);
  });
}

function registerCreation(app: ApiApp, { guards, costs }: RateCardRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path,
    tags,
    summary: 'Price the hours of a hardware profile in a currency, and end the card that did so until then',
    security: bearerSecurity,
    middleware: [guards.may('rates'), guards.jsonBody],
    request: { body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(createdSchema, 'The rate card') },
  });
  app.openapi(route, async (context) => {
    const body = context.req.valid('json');
    const input = {
      hardwareProfile: body.hardware_profile,
      currency: body.currency,
      nodeHour: body.node_hour ?? null,
      gpuHour: body.gpu_hour ?? null,
      ...toDates(body),
    };
    const { rate, ended } = requireAdded('rate', await costs.rateCards.add(input, changedBy(context)));
    return context.json({ ...toAnswer(rate), follows: ended === null ? null : toAnswer(ended) }, 201);
  });
}

function registerEnd(app: ApiApp, { guards, costs }: RateCardRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/end`,
    tags,
    summary: 'End a rate card; hours after that are unrated until another one prices them',
    security: bearerSecurity,
    middleware: [guards.may('rates'), guards.jsonBody],
    request: { params: z.object({ id: idText('rate') }), body: jsonRequest(endSchema) },
    responses: { 200: jsonAnswer(cardSchema, 'The rate card') },
  });
  app.openapi(route, async (context) => {
    const id = requireId('rate', context.req.valid('param').id);
    const { at: atMs = null, retroactive } = context.req.valid('json');
    const result = await costs.rateCards.end(id, { atMs, retroactive }, changedBy(context));
    return context.json(toAnswer(requireEnded('rate', result)), 200);
  });
}
