import { z } from 'zod';
import { idText, orNull } from './fields.ts';

/** Answers of `/v1/billing/costs`. */

const hours = z.number().meta({ description: 'Hours with six decimal places', example: 25.5 });
const decimal = (description: string) => z.string().meta({ description, example: '130.00' });
const isoOrNull = z.iso.datetime().nullable();

const hourFields = {
  node_hours: hours,
  gpu_hours: hours,
  unrated_hours: hours.meta({ description: 'Part of `node_hours` without a rate card' }),
  unrated_gpu_hours: hours.meta({ description: 'Part of `gpu_hours` without a rate card' }),
};

const amountFields = {
  currency: z.string().meta({ example: 'USD', description: 'ISO 4217 code' }),
  amount: decimal('Decimal, rounded to the minor unit of the currency; totals are sums of rounded lines'),
  amount_exact: decimal('Decimal with ten places; adds up across reports').meta({ example: '130.0000000000' }),
};

/** An amount in a currency. */
export const amountSchema = z.object(amountFields).meta({ id: 'CostAmount' });

const amounts = z.array(amountSchema).meta({ description: 'One entry per currency' });

/** The monthly budget of an organization, and the costs of the current month. */
export const costBudgetSchema = z
  .object({
    organization_id: idText('org'),
    budget: z
      .object({
        amount: decimal('Amount per month'),
        currency: z.string().meta({ example: 'USD', description: 'ISO 4217 code' }),
        alert_percents: z.array(z.int()).meta({ description: 'Percentages at which an alert is sent' }),
      })
      .nullable()
      .meta({ description: 'Null: no budget' }),
    month: z.string().meta({ example: '2026-11', description: 'The current month in UTC' }),
    spent: amounts.meta({ description: 'Costs until now, one entry per currency' }),
    forecast: amounts.meta({
      description: 'Costs at the end of the month if all nodes and replicas that run now keep running',
    }),
    spent_percent: z.int().nullable().meta({ description: 'Part of the budget; null without one' }),
    forecast_percent: z.int().nullable().meta({ description: 'Part of the budget; null without one' }),
  })
  .meta({ id: 'CostBudget' });

export type CostBudgetAnswer = z.infer<typeof costBudgetSchema>;

const price = z
  .string()
  .nullable()
  .meta({ example: '2.49', description: 'Price per hour in `currency`, exact decimal; null is not priced' });

const costLineSchema = z
  .object({
    hardware_profile: z.string(),
    rate_card_id: idText('rate').nullable().meta({ description: 'Rate card that applies; null if unrated' }),
    from: z.iso.datetime().meta({ description: 'Start, inclusive' }),
    to: z.iso.datetime().meta({ description: 'End, exclusive' }),
    node_hours: hours,
    gpu_hours: hours,
    rated: z.boolean().meta({ description: 'true if a rate card sets a price' }),
    unrated_reason: z
      .enum(['no_rate_card', 'ambiguous_rate', 'no_gpu_price'])
      .nullable()
      .meta({
        description:
          '`no_rate_card`: no rate card is in effect. `ambiguous_rate`: several are, in different currencies. ' +
          '`no_gpu_price`: the rate card has no price per GPU-hour. Null if rated',
      }),
    native: z
      .object({ ...amountFields, node_hour_price: price, gpu_hour_price: price })
      .nullable()
      .meta({ description: 'Cost in the currency of the rate card; null if unrated' }),
    billed: orNull(amountSchema).meta({ description: 'Cost in the billing currency; null if unrated' }),
    conversion: z.enum(['none', 'converted', 'skipped_missing_rate']).meta({
      description: '`skipped_missing_rate`: no conversion rate is in effect, so `billed` is not converted',
    }),
    conversion_rate: z
      .string()
      .nullable()
      .meta({ description: 'Value of one unit of the native currency, exact decimal; null if not converted' }),
    estimated: z.boolean().meta({ description: 'true if an end in this interval is estimated' }),
  })
  .meta({ id: 'CostLine' });

const clusterCostsSchema = z
  .object({
    id: z.string().meta({ description: 'Cluster id; for GPUs of engine replicas the model id' }),
    name: z.string(),
    source: z
      .enum(['node', 'replica'])
      .meta({ description: '`node`: nodes of a cluster; `replica`: replicas of an engine' }),
    started_at: z.iso.datetime(),
    ended_at: isoOrNull.meta({ description: 'Null while hours are counted' }),
    running: z.boolean().meta({ description: 'true while hours are counted' }),
    estimated: z.boolean().meta({ description: 'true if an end is estimated' }),
    ...hourFields,
    amounts,
    line_items: z.array(costLineSchema),
  })
  .meta({ id: 'ClusterCosts' });

const organizationCostsSchema = z
  .object({
    id: idText('org'),
    name: z.string(),
    billing_currency: z
      .string()
      .nullable()
      .meta({ description: 'ISO 4217 code; null shows costs in the currencies of the rate cards' }),
    ...hourFields,
    amounts,
    clusters: z.array(clusterCostsSchema),
  })
  .meta({ id: 'CostsOfOrganization' });

const costWarningSchema = z
  .object({
    code: z.enum(['CONVERSION_RATE_MISSING', 'RATE_CARD_MISSING', 'AMBIGUOUS_RATE', 'GPU_PRICE_MISSING']).meta({
      description: '`CONVERSION_RATE_MISSING`: costs are shown unconverted. All others: hours are unrated',
    }),
    from: z
      .string()
      .optional()
      .meta({ description: 'Currency of the rate card, for `CONVERSION_RATE_MISSING`', example: 'USD' }),
    to: z.string().optional().meta({ description: 'Billing currency, for `CONVERSION_RATE_MISSING`', example: 'EUR' }),
    hardware_profile: z.string().optional().meta({ description: 'Profile of the hours, for all other codes' }),
    organization_ids: z.array(idText('org')).meta({ description: 'Affected organizations' }),
  })
  .meta({ id: 'CostWarning' });

/** The window of a report. */
export const costWindowSchema = z.object({
  from: z.iso.datetime().meta({ description: 'Start of the window, inclusive' }),
  to: z.iso.datetime().meta({ description: 'End of the window, exclusive' }),
  tz: z.string().meta({ description: 'IANA time zone' }),
  as_of: z.iso.datetime().meta({ description: 'Time until which running intervals are counted' }),
});

/** Node-hours and GPU-hours with their cost. */
export const costReportSchema = z
  .object({
    window: costWindowSchema,
    totals: z.object(hourFields),
    grand_total: amounts,
    organizations: z.array(organizationCostsSchema),
    warnings: z.array(costWarningSchema),
  })
  .meta({ id: 'CostReport' });

const costGroupSchema = z
  .object({
    value: z.string().nullable().meta({
      description:
        'Id of the organization, cluster or node, hardware profile, value of the label, or stacks; null is the rest',
      example: 'research',
    }),
    name: z.string().nullable(),
    ...hourFields,
    amounts,
  })
  .meta({ id: 'CostGroup' });

const costStepSchema = z
  .object({
    from: z.iso.datetime().meta({ description: 'Start, inclusive' }),
    to: z.iso.datetime().meta({ description: 'End, exclusive' }),
    ...hourFields,
    amounts,
    groups: z.array(costGroupSchema).meta({ description: 'Groups with usage; empty without `group_by`' }),
  })
  .meta({ id: 'CostStep' });

/** Costs over time and by group. */
export const costSeriesSchema = z
  .object({
    window: costWindowSchema,
    totals: z.object(hourFields),
    grand_total: amounts,
    groups: z.array(costGroupSchema).meta({ description: 'Sums of the groups; empty without `group_by`' }),
    steps: z.array(costStepSchema).meta({ description: 'All steps of the window' }),
    warnings: z.array(costWarningSchema),
  })
  .meta({ id: 'CostSeries' });

export type CostSeriesAnswer = z.infer<typeof costSeriesSchema>;
export type CostGroupAnswer = CostSeriesAnswer['groups'][number];
export type AmountAnswer = z.infer<typeof amountSchema>;
export type CostReportAnswer = z.infer<typeof costReportSchema>;
export type OrganizationCostsAnswer = CostReportAnswer['organizations'][number];
export type ClusterCostsAnswer = OrganizationCostsAnswer['clusters'][number];
export type CostLineAnswer = ClusterCostsAnswer['line_items'][number];
export type CostWarningAnswer = CostReportAnswer['warnings'][number];
export type HoursAnswer = CostReportAnswer['totals'];
