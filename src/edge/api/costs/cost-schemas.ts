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
  currency: z.string().openapi({ example: 'USD' }),
  amount: decimal('Rounded to the minor unit of the currency; totals are sums of rounded lines'),
  amount_exact: decimal('Ten decimal places; adds up across reports').openapi({ example: '130.0000000000' }),
};

export const amountSchema = z.object(amountFields).openapi('CostAmount');

const amounts = z.array(amountSchema).openapi({ description: 'One entry per currency' });
const price = z
  .string()
  .nullable()
  .openapi({ example: '2.49', description: 'Price per hour, exact decimal; null is not priced' });

const lineSchema = z
  .object({
    hardware_profile: z.string(),
    rate_card_id: idText('rate').nullable(),
    from: z.iso.datetime(),
    to: z.iso.datetime(),
    node_hours: hours,
    gpu_hours: hours,
    rated: z.boolean(),
    unrated_reason: z.enum(['no_rate_card', 'ambiguous_rate', 'no_gpu_price']).nullable(),
    native: z.object({ ...amountFields, node_hour_price: price, gpu_hour_price: price }).nullable(),
    billed: orNull(amountSchema),
    conversion: z.enum(['none', 'converted', 'skipped_missing_rate']),
    conversion_rate: z.string().nullable(),
    estimated: z.boolean().openapi({ description: 'An end in this interval is estimated' }),
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
    ended_at: isoOrNull,
    running: z.boolean(),
    estimated: z.boolean(),
    ...hourFields,
    amounts,
    line_items: z.array(lineSchema),
  })
  .openapi('ClusterCosts');

const organizationSchema = z
  .object({
    id: idText('org'),
    name: z.string(),
    billing_currency: z.string().nullable(),
    ...hourFields,
    amounts,
    clusters: z.array(clusterSchema),
  })
  .openapi('CostsOfOrganization');

const warningSchema = z
  .object({
    code: z.enum(['CONVERSION_RATE_MISSING', 'RATE_CARD_MISSING', 'AMBIGUOUS_RATE', 'GPU_PRICE_MISSING']),
    from: z.string().optional().openapi({ description: 'Only for CONVERSION_RATE_MISSING', example: 'USD' }),
    to: z.string().optional().openapi({ description: 'Only for CONVERSION_RATE_MISSING', example: 'EUR' }),
    hardware_profile: z.string().optional().openapi({ description: 'For all other codes' }),
    organization_ids: z.array(idText('org')),
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
