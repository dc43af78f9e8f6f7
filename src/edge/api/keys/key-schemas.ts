import { z } from '@hono/zod-openapi';
import { defaultKeyToggles, type KeyRecord } from '#core/keys/keys.ts';
import { listQuery, organizationQuery } from '#edge/api/shared/shared.ts';
import { idText, nameText, unixSeconds } from '#edge/contract/fields.ts';
import { confinedField, keySchema, limitFields } from '#edge/contract/keys.ts';

/** End of the year 9999, in seconds since the Unix epoch. */
const expiresAtMax = 253_402_300_799;

const {
  scope,
  store_requests: storeRequests,
  cache_responses: cacheResponses,
  unserved_tools: unservedTools,
  end_user_from_header: endUserFromHeader,
  models: allowedModels,
} = keySchema.shape;

export const someLimits = z.strictObject(limitFields).partial();

/**
 * Returns the effective setting: a key of a service account is always confined, since the account belongs to one
 * project.
 */
export const isConfined = ({ serviceAccountId, confined }: KeyRecord): boolean | null =>
  serviceAccountId === null ? confined : true;

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
      .openapi({ default: 'never', description: 'Lifetime of the key; cannot be combined with `expires_at`' }),
    expires_at: unixSeconds
      .max(expiresAtMax, 'must be in seconds, and before the year 10000')
      .nullable()
      .optional()
      .openapi({ description: 'Unix seconds in the future; cannot be combined with `expiry`' }),
    ...someLimits.shape,
    store_requests: storeRequests.default(defaultKeyToggles.storeRequests),
    cache_responses: cacheResponses.default(defaultKeyToggles.cacheResponses),
    unserved_tools: unservedTools.default(defaultKeyToggles.unservedTools),
    end_user_from_header: endUserFromHeader.default(defaultKeyToggles.endUserFromHeader),
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
    unserved_tools: unservedTools.optional(),
    end_user_from_header: endUserFromHeader.optional(),
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
