import { z } from '@hono/zod-openapi';
import { idText, orNull } from './schemas.ts';
import { windowSchema } from './cost-window.ts';

/** The cost report as the document has it; `reportToJson` makes it. */

const hours = z.number().openapi({ description: 'Hours, six places', example: 25.5 });
const decimal = (description: string) => z.string().openapi({ description, example: '130.00' });
const isoOrNull = z.iso.datetime().nullable();

const hourFields = {
  node_hours: hours,
  gpu_hours: hours,
  unrated_hours: hours.openapi({ description: 'Node-hours that no rate card covers, among the node-hours' }),
  unrated_gpu_hours: hours.openapi({ description: 'GPU-hours that no rate card covers, among the GPU-hours' }),
};

const amountFields = {
  currency: z.string().openapi({ example: 'USD' }),
  amount: decimal('Rounded to the currency’s minor unit; a total is the sum of the rounded lines below it'),
  amount_exact: decimal('Ten places; adds up across reports').openapi({ example: '130.0000000000' }),
};

export const amountSchema = z.object(amountFields).openapi('CostAmount');

const amounts = z.array(amountSchema).openapi({ description: 'One entry a currency' });
const price = z.string().nullable().openapi({ example: '2.49', description: 'An exact decimal; null: not priced' });

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
    estimated: z.boolean().openapi({ description: 'An end within it was concluded, not told' }),
  })
  .openapi('CostLine');

const clusterSchema = z
  .object({
    id: z.string().openapi({ description: 'Of a cluster; the model’s id where replicas of an engine held the GPUs' }),
    name: z.string(),
    source: z.enum(['node', 'replica']),
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
    from: z.string().optional().openapi({ description: 'Of CONVERSION_RATE_MISSING', example: 'USD' }),
    to: z.string().optional().openapi({ description: 'Of CONVERSION_RATE_MISSING', example: 'EUR' }),
    hardware_profile: z.string().optional().openapi({ description: 'Of the others' }),
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
