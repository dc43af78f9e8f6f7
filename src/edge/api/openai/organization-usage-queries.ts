import { z } from '@hono/zod-openapi';
import { organizationQuery } from '#edge/api/shared/shared.ts';

/** Schemas of usage and costs in OpenAI's organization API. */

type Several<T extends string> = z.ZodType<readonly T[] | undefined>;

/**
 * Returns the schemas of a list parameter. OpenAI's SDKs write a list as `name[]`, one parameter for each item; other
 * clients repeat the name.
 */
function listParameter<Name extends string, T extends string = string>(
  name: Name,
  description: string,
  known: readonly T[] | null = null,
) {
  const isKnown = (text: string): text is T => known === null || known.some((one) => one === text);
  const list: Several<T> = z
    .union([z.string(), z.array(z.string())])
    .transform((given, context): readonly T[] => {
      const items = [given].flat();
      const right = items.filter(isKnown);
      if (right.length === items.length) return right;
      context.addIssue({ code: 'custom', message: `must be one or more of ${known?.join(', ')}` });
      return z.NEVER;
    })
    .optional()
    .openapi({ type: 'array', items: { type: 'string', ...(known !== null && { enum: [...known] }) }, description });
  return { [name]: list, [`${name}[]`]: list } as Record<Name | `${Name}[]`, Several<T>>;
}

/** Last second of the year 9999. */
const secondMax = 253_402_300_799;

const seconds = (description: string) =>
  z
    .string()
    .regex(/^\d{1,12}$/, 'must be a whole number of seconds since the Unix epoch')
    .transform(Number)
    .refine((second) => second <= secondMax, 'must be in seconds, and before the year 10000')
    .openapi({ type: 'integer', minimum: 0, maximum: secondMax, description });

const limit = z
  .string()
  .regex(/^[1-9]\d{0,3}$/, 'must be a whole number of 1 or more')
  .transform(Number)
  .optional()
  .openapi({ type: 'integer', minimum: 1, description: 'Buckets per page' });

const shared = {
  ...organizationQuery,
  start_time: seconds('Start in Unix seconds, inclusive'),
  end_time: seconds('End in Unix seconds, exclusive; default is now').optional(),
  limit,
  page: z
    .string()
    .regex(/^page_\d{1,12}$/, 'must be the next_page of the previous page')
    .optional()
    .openapi({ description: '`next_page` of the previous page' }),
  ...listParameter('project_ids', 'Only these projects'),
  ...listParameter('api_key_ids', 'Only these API keys'),
};

const bucketWidth = z.enum(['1d', '1h']).default('1d').openapi({ description: 'UTC days or hours' });
const users = listParameter('user_ids', 'Only keys that act for these users');
const grouping = 'Fields to group by; without it, each bucket has one result';

export const usageQuery = z.strictObject({
  ...shared,
  bucket_width: bucketWidth,
  ...listParameter('models', 'Only these models, by catalog id'),
  ...users,
  ...listParameter('group_by', grouping, ['project_id', 'user_id', 'api_key_id', 'model']),
});

const ignored = 'Accepted and ignored';

/** Query for usage that does not exist here: any grouping is accepted, and returns nothing. */
export const absentUsageQuery = z.strictObject({
  ...shared,
  bucket_width: bucketWidth,
  batch: z.enum(['true', 'false']).optional().openapi({ description: ignored }),
  ...listParameter('models', ignored),
  ...listParameter('user_ids', ignored),
  ...listParameter('sources', ignored),
  ...listParameter('sizes', ignored),
  ...listParameter('context_levels', ignored),
  ...listParameter('vector_store_ids', ignored),
  ...listParameter('group_by', ignored),
});

export const costsQuery = z.strictObject({
  ...shared,
  bucket_width: z.enum(['1d']).default('1d').openapi({ description: 'UTC days' }),
  ...listParameter('line_items', 'Only these models, by catalog id'),
  ...users,
  ...listParameter('group_by', grouping, ['project_id', 'user_id', 'api_key_id', 'line_item']),
});
