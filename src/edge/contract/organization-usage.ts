import { z } from 'zod';
import { extension, unixSeconds } from './fields.ts';
import { cursorPageOf } from './lists.ts';

/** Usage and costs in the form of OpenAI's organization API. */

const named = z.string().nullable().meta({ description: 'Null unless usage is grouped by this field' });
const count = z.int().min(0);

const usageFields = {
  input_tokens: count,
  num_model_requests: count.meta({ description: 'Number of requests' }),
  project_id: named,
  user_id: named.meta({
    description: 'User that the key acts for; null for a service account, and unless usage is grouped by this field',
  }),
  api_key_id: named,
  model: named,
};

/** Usage of models that generate text. */
export const completionsResult = z
  .object({
    object: z.literal('organization.usage.completions.result'),
    ...usageFields,
    output_tokens: count,
    input_cached_tokens: count.meta({ description: 'Part of `input_tokens` that was cached' }),
    batch: z.null(),
    service_tier: z.null(),
  })
  .meta({ id: 'OrganizationUsageCompletionsResult' });

/** Usage of models that return vectors or scores. */
export const embeddingsResult = z
  .object({ object: z.literal('organization.usage.embeddings.result'), ...usageFields })
  .meta({ id: 'OrganizationUsageEmbeddingsResult' });

/** Cost of usage. */
export const costsResult = z
  .object({
    object: z.literal('organization.costs.result'),
    amount: z.object({
      value: z
        .number()
        .meta({ description: 'USD, as the nearest JSON number; `/v1/usage/summary` has the exact amount' }),
      currency: z.literal('usd'),
    }),
    line_item: named.meta({ description: 'Id of the model; null unless costs are grouped by this field' }),
    project_id: named,
    user_id: named,
    api_key_id: named,
    quantity: z.null(),
  })
  .meta({ id: 'OrganizationCostsResult' });

/** Returns the schema of pages of buckets; `name` is its name in the OpenAPI document. */
export function bucketPageOf<T extends z.ZodType>(result: T, name: string) {
  const bucket = z.object({
    object: z.literal('bucket'),
    start_time: unixSeconds.meta({ description: 'Start in Unix seconds, inclusive' }),
    end_time: unixSeconds.meta({ description: 'End in Unix seconds, exclusive' }),
    results: z.array(result),
  });
  return z
    .object({
      object: z.literal('page'),
      data: z.array(bucket),
      has_more: z.boolean(),
      next_page: z.string().nullable().meta({ description: '`page` of the next page; null on the last page' }),
    })
    .meta({ id: name });
}

const emptyPage = cursorPageOf(z.strictObject({ id: z.string() }), 'OrganizationEmptyPage');

/** A list of a feature that Headgate does not have. */
export const emptyList = emptyPage.extend({ next: z.null() }).meta(extension('OrganizationEmptyList', emptyPage));

/** Usage of a feature that Headgate does not have. */
export const emptyBuckets = bucketPageOf(z.strictObject({}), 'OrganizationUsageOfNothing');
