import { z } from '@hono/zod-openapi';
import { defaultKeyToggles, type KeyRecord } from '#core/keys/keys.ts';
import {
  idText,
  listQuery,
  nameText,
  organizationQuery,
  unixSeconds,
  unixSecondsOrNull,
} from '#edge/api/shared/shared.ts';

/** Largest value of PostgreSQL's integer. */
export const int4Max = 2_147_483_647;
/** End of the year 9999, in seconds since the Unix epoch. */
const expiresAtMax = 253_402_300_799;

/** Returns the schema of a limit; null is unlimited. */
export function limitField(max: number, description: string) {
  return z
    .int()
    .min(1, 'must be 1 or more; null is unlimited')
    .max(max, `must be at most ${max}`)
    .nullable()
    .openapi({ description: `${description}; null is unlimited` });
}

/** Limits of a key, and default limits of an organization's new keys. */
export const limitFields = {
  requests_per_minute: limitField(int4Max, 'Requests per minute'),
  max_concurrency: limitField(int4Max, 'Number of concurrent requests'),
  tokens_per_minute: limitField(Number.MAX_SAFE_INTEGER, 'Tokens per minute, input and output together'),
  monthly_token_limit: limitField(
    Number.MAX_SAFE_INTEGER,
    'Tokens per calendar month in UTC, input and output together',
  ),
};

export const someLimits = z.strictObject(limitFields).partial();

const modelsMax = 200;

/** Models that a key or an organization may use. */
export const modelList = z
  .array(nameText(512))
  .min(1, 'must contain a model; null is all')
  .max(modelsMax, `must have at most ${modelsMax} models`)
  .nullable();

const allowedModels = modelList.openapi({
  description: 'Allowed models by id; null is all models of the organization',
});

/** The setting `confined`, in answers and in bodies. */
export const confinedField = z
  .boolean()
  .nullable()
  .openapi({
    description:
      '`true`: the key works only in its own project. `X-Project-ID` of another project returns 403, and a management ' +
      'key acts as a member. `false`: it works in any project that its user sees. `null`: `X-Project-ID` of another ' +
      "project returns 403 while the key's project has a hard budget. Always `true` for a key of a service account",
  });

/**
 * Returns the effective setting: a key of a service account is always confined, since the account belongs to one
 * project.
 */
export const isConfined = ({ serviceAccountId, confined }: KeyRecord): boolean | null =>
  serviceAccountId === null ? confined : true;

const scope = z
  .enum(['inference', 'management'])
  .openapi({ description: '`inference`: calls models. `management`: also administers the organization' });
const storeRequests = z.boolean().openapi({ description: 'Stores the bodies of requests and responses' });
const cacheResponses = z.boolean().openapi({ description: 'Answers identical requests from the response cache' });

const keyFields = {
  id: idText('key'),
  object: z.literal('api_key'),
  name: z.string(),
  prefix: z.string().openapi({ example: 'sk-hg-8a1b2c3d4e5f', description: 'Start of every secret of this key' }),
  last4: z.string().openapi({ example: 'x7Qd', description: 'Last 4 characters of the current secret' }),
  scope,
  held: z.boolean().openapi({
    description:
      'true if the gateway itself uses the key for its user, as in the playground. Such a key has no known secret ' +
      'and does not count toward the limit of active keys',
  }),
  project_id: idText('proj'),
  user_id: idText('user')
    .nullable()
    .openapi({ description: 'User that the key acts for; null for a key of a service account' }),
  service_account_id: idText('svc_acct').nullable().openapi({ description: 'Service account that the key acts for' }),
  status: z.enum(['active', 'revoked', 'expired']),
  created_at: unixSeconds,
  expires_at: unixSecondsOrNull.openapi({ description: 'Unix seconds; null if the key does not expire' }),
  last_used_at: unixSecondsOrNull.openapi({ description: 'Unix seconds; null if the key was never used' }),
  revoked_at: unixSecondsOrNull.openapi({ description: 'Unix seconds; null if the key is not revoked' }),
  rotated_at: unixSecondsOrNull.openapi({
    description: 'When the current secret was created, in Unix seconds; null if it is the first one',
  }),
  former_secrets_end_at: unixSecondsOrNull.openapi({
    description: 'When the last former secret stops working, in Unix seconds; null if none works',
  }),
  ...limitFields,
  store_requests: storeRequests,
  cache_responses: cacheResponses,
  confined: confinedField,
  models: allowedModels,
};

export const keySchema = z.object(keyFields).openapi('ApiKey');

export const createdKeySchema = z
  .object({
    ...keyFields,
    secret: z.string().openapi({ description: 'Secret, shown only once', example: 'sk-hg-8a1b2c3d4e5f-…' }),
  })
  .openapi('CreatedApiKey');

export const createKeySchema = z
  .strictObject({
    name: nameText().default('API key'),
    scope: scope.default('inference'),
    ...organizationQuery,
    project_id: z
      .string()
      .optional()
      .openapi({ description: 'Project of the key; default is the project of the calling key' }),
    service_account_id: idText('svc_acct').optional().openapi({
      description:
        'Service account that the key acts for, in its project and with scope `inference`; default is the caller',
    }),
    expiry: z
      .enum(['never', '7d', '30d', '90d', '1y'])
      .optional()
      .openapi({ default: 'never', description: 'Lifetime of the key; excludes `expires_at`' }),
    expires_at: unixSeconds
      .max(expiresAtMax, 'must be in seconds, and before the year 10000')
      .nullable()
      .optional()
      .openapi({ description: 'Unix seconds in the future; excludes `expiry`' }),
    ...someLimits.shape,
    store_requests: storeRequests.default(defaultKeyToggles.storeRequests),
    cache_responses: cacheResponses.default(defaultKeyToggles.cacheResponses),
    confined: confinedField.default(defaultKeyToggles.confined),
    models: allowedModels.default(null),
  })
  .openapi('CreateApiKey', { description: 'An absent limit is the default limit of the organization' });

export type CreateKey = z.infer<typeof createKeySchema>;

/** Schema of fields that cannot be changed, so that the error can say so instead of "is not a known field". */
const fixed = z
  .unknown()
  .refine((value) => value === undefined, 'cannot be changed; create a new key')
  .optional()
  .openapi({ readOnly: true, description: 'Cannot be changed' });

export const patchKeySchema = z
  .strictObject({
    name: nameText().optional(),
    ...someLimits.shape,
    store_requests: storeRequests.optional(),
    cache_responses: cacheResponses.optional(),
    confined: confinedField.optional(),
    models: allowedModels.optional(),
    scope: fixed,
    project_id: fixed,
    service_account_id: fixed,
    expiry: fixed,
    expires_at: fixed,
  })
  .openapi('PatchApiKey');

const graceSecondsMax = 2_592_000;

export const rotateKeySchema = z
  .strictObject({
    grace_seconds: z
      .int()
      .min(0, 'must be 0 or more')
      .max(graceSecondsMax, `must be at most ${graceSecondsMax}: 30 days`)
      .default(86_400)
      .openapi({ description: 'Seconds that the current secret still works; 0 ends it immediately' }),
    last4: z
      .string()
      .max(16, 'must be the end of a secret')
      .optional()
      .openapi({
        description:
          '`last4` of the secret to replace. If the key has a different secret by now, the API returns 409 and changes ' +
          'nothing, so that a repeated request rotates once',
      }),
  })
  .openapi('RotateApiKey');

export type PatchKey = z.infer<typeof patchKeySchema>;

export const keyQuery = z.strictObject({
  ...organizationQuery,
  ...listQuery,
  status: z.enum(['active', 'revoked', 'expired']).optional().openapi({ description: 'Only keys with this status' }),
  project_id: idText('proj').optional().openapi({ description: 'Only keys of this project' }),
  user_id: idText('user').optional().openapi({ description: 'Only keys of this user' }),
  service_account_id: idText('svc_acct').optional().openapi({ description: 'Only keys of this service account' }),
});

export const reportSchema = z
  .strictObject({
    secret: z
      .string()
      .min(1, 'must not be empty')
      .max(512, 'must have at most 512 characters')
      .openapi({ description: 'Leaked secret' }),
  })
  .openapi('ReportApiKey');

export const reportedSchema = z
  .object({
    object: z.literal('key_report'),
    revoked: z.boolean().openapi({ description: 'true if this report ended a working secret' }),
  })
  .openapi('ApiKeyReport');
