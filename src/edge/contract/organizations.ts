import { z } from 'zod';
import { idText, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { limitFields, modelList } from './keys.ts';
import { listOf, pageOf } from './lists.ts';
import { decimal } from './wallet.ts';

/** Answers of `/v1/organizations` and `/v1/admin/organizations`. */

const keysMax = 1_000_000;

/** Event types that are mailed if an organization has not chosen. */
const mailed =
  'wallet.low_balance, budget.reached, budget.exceeded, budget.many_users, cost_budget.reached, api_key.reported, ' +
  'run.failed, run.needs_confirmation, run.expiring, run.drifted, cluster.nodes_silent, cluster.nodes_back, gateways.differ, platform.problem, webhook.disabled';

const limitsFields = {
  max_active_keys: z
    .int()
    .min(1, 'must be 1 or more; null is the setting of the gateway')
    .max(keysMax, `must be at most ${keysMax}`)
    .nullable()
    .meta({ description: 'Maximum number of active keys; null is `HEADGATE_MAX_ACTIVE_KEYS`' }),
  models: modelList.meta({ description: 'Allowed models by id; null is all' }),
};

const organizationFields = {
  id: idText('org'),
  object: z.literal('organization'),
  name: z.string(),
  status: z.enum(['active', 'suspended', 'closed']).meta({
    description: '`suspended`: its keys return 403 until it is active again. `closed`: permanent, its keys are revoked',
  }),
  created_at: unixSeconds,
  closed_at: unixSecondsOrNull.meta({ description: 'Unix seconds; null if it is not closed' }),
  default_limits: z.object(limitFields).meta({ description: 'Default limits of new keys' }),
  ...limitsFields,
  wallet_alert_below: z.string().nullable().meta({
    description:
      'USD, decimal: owners and admins are notified when the balance falls below this amount; null sends no alert',
    example: '5',
  }),
  alert_emails: z
    .array(z.string())
    .nullable()
    .meta({
      type: ['array', 'null'],
      description: `Event types that owners and admins get by email; null is the default: ${mailed}`,
      example: ['wallet.low_balance'],
    }),
  members_may_apply: z.boolean().meta({
    description: 'true: members apply stacks to clusters of the organization. false: only owners and admins',
  }),
  wallet_alerted_at: unixSecondsOrNull.meta({
    description: 'When the alert was sent, in Unix seconds; null while the balance is not below `wallet_alert_below`',
  }),
};

/** An organization. */
export const organizationSchema = z.object(organizationFields).meta({ id: 'Organization' });

/** A new organization with its management key. */
export const createdOrganizationSchema = z
  .object({
    ...organizationFields,
    management_key: z.string().meta({ description: 'Secret of the management key, shown only once' }),
  })
  .meta({ id: 'CreatedOrganization' });

/** An organization with its balance, spending and keys. */
export const reportedOrganizationSchema = z
  .object({
    ...organizationSchema.shape,
    balance: decimal.meta({ description: 'Wallet balance in USD, exact decimal' }),
    spent_month: decimal.meta({ description: 'USD spent since the start of the UTC month, exact decimal' }),
    spent_30_days: decimal.meta({ description: 'USD spent in the last 30 UTC days including today, exact decimal' }),
    requests_30_days: z.int().meta({ description: 'Number of requests in the last 30 UTC days' }),
    active_keys: z.int().meta({ description: 'Number of active keys' }),
  })
  .meta({ id: 'ReportedOrganization' });

/** A page of organizations. */
export const organizationListSchema = listOf(organizationSchema, 'OrganizationList');

/** A page of the report of all organizations. */
export const organizationReportSchema = pageOf(reportedOrganizationSchema, 'OrganizationReport');

export type OrganizationAnswer = z.infer<typeof organizationSchema>;
export type CreatedOrganizationAnswer = z.infer<typeof createdOrganizationSchema>;
export type ReportedOrganizationAnswer = z.infer<typeof reportedOrganizationSchema>;
