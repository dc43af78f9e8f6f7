import type { z } from '@hono/zod-openapi';
import { type Costs, formatPrice, type NewRateCard, type RateCard, type Scaled } from '#core/costs/costs.ts';
import { type ApiApp, type Guards, longText, requireId, toPage } from '#edge/api/shared/shared.ts';
import { nameText, textOrNull } from '#edge/contract/fields.ts';
import { type RateCardAnswer, rateCards } from '#edge/contract/rates.ts';
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

export interface RateCardRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'rateCards' | 'listRateCards'>;
}

const created = {
  hardware_profile: nameText(100).openapi({ description: 'Hardware profile of nodes, or of the GPUs of engines' }),
  currency: currencyText(),
  node_hour: textOrNull(scaledText('Price per node-hour in `currency`, exact decimal; null is not priced')).optional(),
  gpu_hour: textOrNull(scaledText('Price per GPU-hour in `currency`, exact decimal; null is not priced')).optional(),
};

function isUnpriced({ node_hour: node, gpu_hour: gpu }: Readonly<Record<string, unknown>>): Problem | null {
  if ((node ?? null) !== null || (gpu ?? null) !== null) return null;
  return { field: 'gpu_hour', message: 'is missing: send gpu_hour, node_hour or both' };
}

const priceOrNull = (price: Scaled | null): string | null => (price === null ? null : formatPrice(price));

function toAnswer(card: RateCard): RateCardAnswer {
  return {
    hardware_profile: card.hardwareProfile,
    currency: card.currency,
    node_hour: priceOrNull(card.nodeHour),
    gpu_hour: priceOrNull(card.gpuHour),
    ...showDated('rate', card),
  };
}

export function registerRateCardRoutes(app: ApiApp, { guards, costs }: RateCardRoutesParts): void {
  const routes = datedRoutes({
    guards,
    prefix: 'rate',
    path: '/v1/billing/rate-cards',
    name: 'RateCard',
    answers: rateCards,
    created,
    between: isUnpriced,
    filters: {
      hardware_profile: longText(100).optional().openapi({ description: 'Only rate cards of this profile' }),
      currency: currencyText().optional(),
    },
  });
  app.openapi(routes.list, async (context) => {
    const {
      hardware_profile: hardwareProfile = null,
      currency = null,
      at = null,
      ...page
    } = context.req.valid('query');
    const { rates, total } = await costs.listRateCards({ hardwareProfile, currency, atMs: at, ...page });
    return context.json(toPage(rates.map(toAnswer), page, total), 200);
  });
  app.openapi(routes.create, async (context) => {
    const result = await costs.rateCards.add(toInput(context.req.valid('json')), changedBy(context));
    return context.json(requireAdded('rate', result, toAnswer), 201);
  });
  app.openapi(routes.import, async (context) => {
    const rows = requireRows(context.req.valid('json'), routes.columns, routes.createSchema);
    const inputs = rows.map(({ row }) => toInput(row));
    const result = await costs.rateCards.addAll(inputs, changedBy(context));
    return context.json(requireAllAdded('rate', { result, rows }, toAnswer), 201);
  });
  type New = z.output<typeof routes.createSchema>;
  function toInput({ hardware_profile: hardwareProfile, currency, node_hour, gpu_hour, ...dates }: New): NewRateCard {
    return { hardwareProfile, currency, nodeHour: node_hour ?? null, gpuHour: gpu_hour ?? null, ...toDates(dates) };
  }
  app.openapi(routes.end, async (context) => {
    const id = requireId('rate', context.req.valid('param').id);
    const { at: atMs = null, retroactive } = context.req.valid('json');
    const result = await costs.rateCards.end(id, { atMs, retroactive }, changedBy(context));
    return context.json(toAnswer(requireEnded('rate', result)), 200);
  });
}
