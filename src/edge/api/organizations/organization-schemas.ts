import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { DefaultLimits, Organization } from '#core/accounts/accounts.ts';
import { chosenTypes } from '#core/alerts/alerts.ts';
import { defaultKeyLimits } from '#core/keys/keys.ts';
import { someLimits } from '#edge/api/keys/keys.ts';
import { amountText, toUnixSeconds, toUnixSecondsOrNull } from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import { type OrganizationAnswer, organizationSchema } from '#edge/contract/organizations.ts';

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
    max_active_keys: organizationSchema.shape.max_active_keys.optional(),
    models: organizationSchema.shape.models.optional(),
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
    members_may_apply: organizationSchema.shape.members_may_apply.optional(),
  })
  .openapi('PatchOrganization');

export type PatchOrganization = z.infer<typeof patchSchema>;

export function toAnswer(organization: Organization): OrganizationAnswer {
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
    members_may_apply: organization.membersMayApply,
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
