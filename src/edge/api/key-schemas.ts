import { z } from '@hono/zod-openapi';
import { defaultKeyLimits, defaultKeyToggles } from '#core/keys/keys.ts';
import { listQuery } from './list.ts';
import { idText, nameText, unixSeconds, unixSecondsOrNull } from './schemas.ts';

/** The largest number of Postgres' integer. */
const int4Max = 2_147_483_647;
/** The end of the year 9999, in seconds since the Unix epoch. */
const expiresAtMax = 253_402_300_799;

function limit(max: number, description: string) {
  return z
    .int()
    .min(1, 'must be 1 or more; null is unlimited')
    .max(max, `must be at most ${max}`)
    .nullable()
    .openapi({ description: `${description}; null is unlimited` });
}

const requestsPerMinute = limit(int4Max, 'Requests per minute');
const maxConcurrency = limit(int4Max, 'Requests at once');
const tokensPerMinute = limit(Number.MAX_SAFE_INTEGER, 'Tokens per minute');
const monthlyTokenLimit = limit(Number.MAX_SAFE_INTEGER, 'Tokens per calendar month');

const keyFields = {
  id: idText('key'),
  object: z.literal('api_key'),
  name: z.string(),
  prefix: z.string().openapi({ example: 'sk-hg-8a1b2c3d4e5f' }),
  last4: z.string().openapi({ example: 'x7Qd' }),
  scope: z.enum(['inference', 'management']),
  project_id: idText('proj'),
  status: z.enum(['active', 'revoked', 'expired']),
  created_at: unixSeconds,
  expires_at: unixSecondsOrNull,
  last_used_at: unixSecondsOrNull,
  revoked_at: unixSecondsOrNull,
  requests_per_minute: requestsPerMinute,
  max_concurrency: maxConcurrency,
  tokens_per_minute: tokensPerMinute,
  monthly_token_limit: monthlyTokenLimit,
  store_requests: z.boolean(),
  cache_responses: z.boolean(),
};

export const keySchema = z.object(keyFields).openapi('ApiKey');

export const createdKeySchema = z
  .object({
    ...keyFields,
    secret: z.string().openapi({ description: 'The secret, shown this once', example: 'sk-hg-8a1b2c3d4e5f-…' }),
  })
  .openapi('CreatedApiKey');

export const createKeySchema = z
  .strictObject({
    name: nameText().default('API key'),
    scope: z.enum(['inference', 'management']).default('inference'),
    project_id: z
      .string()
      .optional()
      .openapi({ description: "A project of the organization; the caller's by default" }),
    expiry: z.enum(['never', '7d', '30d', '90d', '1y']).optional().openapi({ default: 'never' }),
    expires_at: unixSeconds
      .max(expiresAtMax, 'must be in seconds, and before the year 10000')
      .nullable()
      .optional()
      .openapi({ description: 'Seconds since the Unix epoch, in the future; instead of expiry' }),
    requests_per_minute: requestsPerMinute.default(defaultKeyLimits.requestsPerMinute),
    max_concurrency: maxConcurrency.default(defaultKeyLimits.maxConcurrency),
    tokens_per_minute: tokensPerMinute.default(defaultKeyLimits.tokensPerMinute),
    monthly_token_limit: monthlyTokenLimit.default(defaultKeyLimits.monthlyTokenLimit),
    store_requests: z.boolean().default(defaultKeyToggles.storeRequests),
    cache_responses: z.boolean().default(defaultKeyToggles.cacheResponses),
  })
  .openapi('CreateApiKey');

export type CreateKey = z.infer<typeof createKeySchema>;

/** Known, so that the refusal can say more than "not known here". */
const fixed = z
  .unknown()
  .refine((value) => value === undefined, 'cannot be changed; make another key')
  .optional()
  .openapi({ readOnly: true, description: 'Cannot be changed' });

export const patchKeySchema = z
  .strictObject({
    name: nameText().optional(),
    requests_per_minute: requestsPerMinute.optional(),
    max_concurrency: maxConcurrency.optional(),
    tokens_per_minute: tokensPerMinute.optional(),
    monthly_token_limit: monthlyTokenLimit.optional(),
    store_requests: z.boolean().optional(),
    cache_responses: z.boolean().optional(),
    scope: fixed,
    project_id: fixed,
    expiry: fixed,
    expires_at: fixed,
  })
  .openapi('PatchApiKey');

export type PatchKey = z.infer<typeof patchKeySchema>;

export const keyQuery = z.strictObject({
  ...listQuery,
  status: z.enum(['active', 'revoked', 'expired']).optional(),
});

export const reportSchema = z
  .strictObject({ secret: z.string().min(1, 'must not be empty').max(512, 'must have at most 512 characters') })
  .openapi('ReportApiKey');

export const reportedSchema = z
  .object({ object: z.literal('key_report'), revoked: z.boolean() })
  .openapi('ApiKeyReport');
