import { z } from 'zod';
import { usd } from './fields.ts';
import { amountSchema, costWindowSchema } from './costs.ts';

/** Answers of `/v1/billing/margins`. */

const usdOrNull = usd.nullable().meta({ description: 'USD; null if it cannot be computed' });
const perMillion = z.string().meta({ example: '0.15', description: 'USD per million tokens' });
const ratio = z.number().meta({ description: 'Ratio with six decimal places' });
const count = z.int().meta({ description: 'Number of tokens' });
const hours = z.number().meta({ description: 'GPU-hours with six decimal places' });
const unknownHours = hours
  .nullable()
  .meta({ description: 'GPU-hours; null if requests are no longer kept, or with `busy=false`' });

const priceFields = {
  input_per_million: perMillion,
  cached_input_per_million: perMillion,
  output_per_million: perMillion,
};

const marginFields = {
  revenue: usd.meta({ description: 'USD charged for requests' }),
  cost: usd.meta({ description: 'USD for GPU-hours at the rate cards; a lower bound if `complete` is false' }),
  complete: z.boolean().meta({ description: 'true if every GPU-hour has a price in USD, or a conversion rate to USD' }),
  margin: usdOrNull.meta({ description: '`revenue` minus `cost` in USD; null if `complete` is false' }),
};

const modelMarginSchema = z
  .object({
    model: z.string(),
    requests: z.int(),
    tokens: z.object({ input: count, cached_input: count, output: count }).meta({
      description: '`input` does not include `cached_input`',
    }),
    ...marginFields,
    margin_ratio: ratio
      .nullable()
      .meta({ description: '`margin` divided by `revenue`; null if it cannot be computed' }),
    unconverted: z.array(amountSchema).meta({ description: 'Costs in currencies without a conversion rate to USD' }),
    gpu_hours: z
      .object({ held: hours, busy: unknownHours, idle: unknownHours, starting: hours, unrated: hours })
      .meta({ description: '`held` is the sum of `busy`, `idle` and `starting`; `unrated` has no price' }),
    shares: z.object({ busy: ratio, idle: ratio, starting: ratio }).nullable().meta({
      description: 'Shares of `gpu_hours.held`; they add up to 1; null if unknown',
    }),
    cost_per_million_tokens: usdOrNull.meta({ description: 'USD; null if it cannot be computed' }),
    prices: z.object(priceFields).nullable().meta({
      description: 'Current prices; null if the adapters of the model have other prices',
    }),
    break_even: z
      .object({ factor: ratio.nullable(), ...priceFields })
      .nullable()
      .meta({
        description:
          'Prices at which the same tokens would have covered the cost: current prices times `factor`; null if unknown',
      }),
  })
  .meta({ id: 'ModelMargin' });

const warningSchema = z
  .object({
    code: z
      .enum(['REQUESTS_NOT_KEPT'])
      .meta({ description: 'Requests of some of the window were deleted by retention' }),
    kept_from: z.iso.datetime().meta({ description: 'Before this time, busy hours are unknown' }),
  })
  .meta({ id: 'MarginWarning' });

/** Revenue of models, compared with the cost of their replicas. */
export const marginsSchema = z
  .object({
    window: costWindowSchema,
    currency: z.literal('USD'),
    totals: z.object(marginFields),
    models: z.array(modelMarginSchema),
    warnings: z.array(warningSchema),
  })
  .meta({ id: 'Margins' });

export type ModelMarginAnswer = z.infer<typeof modelMarginSchema>;

export type MarginsAnswer = z.infer<typeof marginsSchema>;
