import { z } from '@hono/zod-openapi';
import { idText, orNull } from '#edge/api/shared/shared.ts';
import { windowSchema } from './cost-window.ts';

/** Schemas of the cost report that `reportToJson` writes, for the OpenAPI document. */

const hours = z.number().openapi({ description: 'Hours with six decimal places', example: 25.5 });
const decimal = (description: string) => z.string().openapi({ description, example: '130.00' });
const isoOrNull = z.iso.datetime().nullable();

const hourFields = {
  node_hours: hours,
  gpu_hours: hours,
  unrated_hours: hours.openapi({ description: 'Part of `node_hours` without a rate card' }),
  unrated_gpu_hours: hours.openapi({ description: 'Part of `gpu_hours` without a rate card' }),
};

const amountFields = {
  currency: z.string().openapi({ example: 'USD', description: 'ISO 4217 code' }),
  amount: decimal('Decimal, rounded to the minor unit of the currency; totals are sums of rounded lines'),
  amount_exact: decimal('Decimal with ten places; adds up across reports').openapi({ example: '130.0000000000' }),
};

export const amountSchema = z.object(amountFields).openapi('CostAmount');

const amounts = z.array(amountSchema).openapi({ description: 'One entry per currency' });
const price = z
  .string()
  .nullable()
  .openapi({ example: '2.49', description: 'Price per hour in `currency`, exact decimal; null is not priced' });

const lineSchema = z
  .object({
    hardware_profile: z.string(),
    rate_card_id: idText('rate').nullable().openapi({ description: 'Rate card that applies; null if unrated' }),
    from: z.iso.datetime().openapi({ description: 'Start, inclusive' }),
    to: z.iso.datetime().openapi({ description: 'End, exclusive' }),
    node_hours: hours,
    gpu_hours: hours,
    rated: z.boolean().openapi({ description: 'true if a rate card sets a price' }),
    unrated_reason: z
      .enum(['no_rate_card', 'ambiguous_rate', 'no_gpu_price'])
      .nullable()
      .openapi({
        description:
          '`no_rate_card`: no rate card is in effect. `ambiguous_rate`: several are, in different currencies. ' +
          '`no_gpu_price`: the rate card has no price per GPU-hour. Null if rated',
      }),
    native: z
      .object({ ...amountFields, node_hour_price: price, gpu_hour_price: price })
      .nullable()
      .openapi({ description: 'Cost in the currency of the rate card; null if unrated' }),
    billed: orNull(amountSchema).openapi({ description: 'Cost in the billing currency; null if unrated' }),
    conversion: z.enum(['none', 'converted', 'skipped_missing_rate']).openapi({
      description: '`skipped_missing_rate`: no conversion rate is in effect, so `billed` is not converted',
    }),
    conversion_rate: z
      .string()
      .nullable()
      .openapi({ description: 'Value of one unit of the native currency, exact decimal; null if not converted' }),
    estimated: z.boolean().openapi({ description: 'true if an end in this interval is estimated' }),
  })
  .openapi('CostLine');

const clusterSchema = z
  .object({
    id: z.string().openapi({ description: 'Cluster id; for GPUs of engine replicas the model id' }),
    name: z.string(),
    source: z
      .enum(['node', 'replica'])
      .openapi({ description: '`node`: nodes of a cluster; `replica`: replicas of an engine' }),
    started_at: z.iso.datetime(),
    ended_at: isoOrNull.openapi({ description: 'Null while hours are counted' }),
    running: z.boolean().openapi({ description: 'true while hours are counted' }),
    estimated: z.boolean().openapi({ description: 'true if an end is estimated' }),
    ...hourFields,
    amounts,
    line_items: z.array(lineSchema),
  })
  .openapi('ClusterCosts');

const organizationSchema = z
  .object({
    id: idText('org'),
    name: z.string(),
    billing_currency: z
      .string()
      .nullable()
      .openapi({ description: 'ISO 4217 code; null shows costs in the currencies of the rate cards' }),
    ...hourFields,
    amounts,
    clusters: z.array(clusterSchema),
  })
  .openapi('CostsOfOrganization');

const warningSchema = z
  .object({
    code: z.enum(['CONVERSION_RATE_MISSING', 'RATE_CARD_MISSING', 'AMBIGUOUS_RATE', 'GPU_PRICE_MISSING']).openapi({
      description: '`CONVERSION_RATE_MISSING`: costs are shown unconverted. All others: hours are unrated',
    }),
    from: z
      .string()
      .optional()
      .openapi({ description: 'Currency of the rate card, for `CONVERSION_RATE_MISSING`', example: 'USD' }),
    to: z
      .string()
      .optional()
      .openapi({ description: 'Billing currency, for `CONVERSION_RATE_MISSING`', example: 'EUR' }),
    hardware_profile: z.string().optional().openapi({ description: 'Profile of the hours, for all other codes' }),
    organization_ids: z.array(idText('org')).openapi({ description: 'Affected organizations' }),
  })
  .openapi('CostWarning');

export const reportSchema = z
  .object({
    window: windowSchema,
    totals: z.object(hourFields),
    grand_total: amounts,
    organizations: z.array(organizationSchema),
    warnings: z.array(warningSchema),
  })
  .openapi('CostReport');
