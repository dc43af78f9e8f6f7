import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { DefaultLimits, Organization } from '#core/accounts/accounts.ts';
import { chosenTypes, mailedTypes } from '#core/alerts/alerts.ts';
import { defaultKeyLimits } from '#core/keys/keys.ts';
import { limitFields, modelList, someLimits } from '#edge/api/keys/keys.ts';
import {
  amountText,
  idText,
  nameText,
  toUnixSeconds,
  toUnixSecondsOrNull,
  unixSeconds,
  unixSecondsOrNull,
} from '#edge/api/shared/shared.ts';

const keysMax = 1_000_000;

const limitsFields = {
  max_active_keys: z
    .int()
    .min(1, 'must be 1 or more; null is the setting of the gateway')
    .max(keysMax, `must be at most ${keysMax}`)
    .nullable()
    .openapi({ description: 'Maximum number of active keys; null is `HEADGATE_MAX_ACTIVE_KEYS`' }),
  models: modelList.openapi({ description: 'Allowed models by id; null is all' }),
};

const organizationFields = {
  id: idText('org'),
  object: z.literal('organization'),
  name: z.string(),
  status: z.enum(['active', 'suspended', 'closed']).openapi({
    description: '`suspended`: its keys return 403 until it is active again. `closed`: permanent, its keys are revoked',
  }),
  created_at: unixSeconds,
  closed_at: unixSecondsOrNull.openapi({ description: 'Unix seconds; null if it is not closed' }),
  default_limits: z.object(limitFields).openapi({ description: 'Default limits of new keys' }),
  ...limitsFields,
  wallet_alert_below: z.string().nullable().openapi({
    description:
      'USD, decimal: owners and admins are notified when the balance falls below this amount; null sends no alert',
    example: '5',
  }),
  alert_emails: z
    .array(z.string())
    .nullable()
    .openapi({
      type: ['array', 'null'],
      description: `Event types that owners and admins get by email; null is the default: ${mailedTypes.join(', ')}`,
      example: ['wallet.low_balance'],
    }),
  wallet_alerted_at: unixSecondsOrNull.openapi({
    description: 'When the alert was sent, in Unix seconds; null while the balance is not below `wallet_alert_below`',
  }),
};

export const organizationSchema = z.object(organizationFields).openapi('Organization');

export const createdSchema = z
  .object({
    ...organizationFields,
    management_key: z.string().openapi({ description: 'Secret of the management key, shown only once' }),
  })
  .openapi('CreatedOrganization');

export const createSchema = z.strictObject({ name: nameText() }).openapi('CreateOrganization');

export const patchSchema = z
  .strictObject({
    name: nameText().optional(),
    status: z.enum(['active', 'suspended']).optional().openapi({
      description: 'Keys of a suspended organization return 403 `organization_suspended`, and its running streams end',
    }),
    default_limits: someLimits.nullable().optional().openapi({
      description:
        'Default limits of new keys. Absent limits stay as they are; null restores the defaults of the gateway',
    }),
    max_active_keys: limitsFields.max_active_keys.optional(),
    models: limitsFields.models.optional(),
    wallet_alert_below: amountText({
      isSigned: false,
      example: '5',
      description:
        'USD, decimal: owners and admins are notified once each time the balance falls below this amount; null sends ' +
        'no alert',
    })
      .nullable()
      .optional(),
    alert_emails: z
      .array(z.enum(chosenTypes))
      .max(100, 'must have at most 100 event types')
      .nullable()
      .optional()
      .openapi({ description: 'Event types sent by email; [] is none, null is the default' }),
  })
  .openapi('PatchOrganization');

export type PatchOrganization = z.infer<typeof patchSchema>;

export function toAnswer(organization: Organization): z.infer<typeof organizationSchema> {
  const limits = { ...defaultKeyLimits, ...organization.defaultLimits };
  return {
    id: formatId('org', organization.id),
    object: 'organization',
    name: organization.name,
    status: organization.status,
    created_at: toUnixSeconds(organization.createdAtMs),
    closed_at: toUnixSecondsOrNull(organization.closedAtMs),
    default_limits: {
      requests_per_minute: limits.requestsPerMinute,
      max_concurrency: limits.maxConcurrency,
      tokens_per_minute: limits.tokensPerMinute,
      monthly_token_limit: limits.monthlyTokenLimit,
    },
    max_active_keys: organization.maxActiveKeys,
    models: organization.models === null ? null : [...organization.models],
    wallet_alert_below: organization.lowBalance === null ? null : formatUsd(organization.lowBalance),
    alert_emails: organization.alertEmails === null ? null : [...organization.alertEmails],
    wallet_alerted_at: toUnixSecondsOrNull(organization.lowBalanceToldAtMs),
  };
}

/** Returns the default limits that the body contains. */
export function limitsOf(limits: NonNullable<PatchOrganization['default_limits']>): DefaultLimits {
  const { requests_per_minute, max_concurrency, tokens_per_minute, monthly_token_limit } = limits;
  return {
    ...(requests_per_minute !== undefined && { requestsPerMinute: requests_per_minute }),
    ...(max_concurrency !== undefined && { maxConcurrency: max_concurrency }),
    ...(tokens_per_minute !== undefined && { tokensPerMinute: tokens_per_minute }),
    ...(monthly_token_limit !== undefined && { monthlyTokenLimit: monthly_token_limit }),
  };
}
