import { created, cursorList, exampleId, numberedPage } from './examples.ts';
import type { Tag } from './operation.ts';

const organization = {
  id: exampleId('org'),
  object: 'organization',
  name: 'Acme',
  status: 'active',
  created_at: created,
  closed_at: null,
  default_limits: {
    requests_per_minute: 60,
    max_concurrency: 10,
    tokens_per_minute: null,
    monthly_token_limit: null,
  },
  max_active_keys: null,
  models: null,
  wallet_alert_below: '5',
  alert_emails: null,
  members_may_apply: true,
  wallet_alerted_at: null,
};

const operators = 'Requires a management key of a platform administrator.';

export const organizations: Tag = {
  name: 'Organizations',
  description: 'Tenants, each with its own wallet, keys, projects and users.',
  operations: {
    'POST /v1/organizations': {
      operationId: 'createOrganization',
      summary: 'Create an organization',
      description:
        'Creates an organization with a project, a wallet and a management key. Only this response contains ' +
        `\`management_key\`, the secret of that key. ${operators}`,
      request: { name: organization.name },
      answer: { ...organization, management_key: 'sk-hg-8a1b2c3d4e5f-7c1f0d9e8b7a6f5e4d3c2b1a0x7Qd' },
    },
    'GET /v1/organizations': {
      operationId: 'listOrganizations',
      summary: 'List organizations',
      description: `Returns all organizations, newest first, closed ones included. ${operators}`,
      answer: cursorList(organization),
    },
    'GET /v1/organizations/{id}': {
      operationId: 'retrieveOrganization',
      summary: 'Retrieve an organization',
      description:
        'Returns one organization. Requires a management key of the organization, or of a platform administrator.',
      answer: organization,
    },
    'PATCH /v1/organizations/{id}': {
      operationId: 'updateOrganization',
      summary: 'Update an organization',
      description:
        'Changes the fields that are sent; all gateways apply them once this returns. A management key of the ' +
        'organization may change `name`, `wallet_alert_below`, `alert_emails` and `members_may_apply`; all other ' +
        'fields require a platform administrator. Returns 409 for a closed organization, and for suspending the first organization of ' +
        'the platform.',
      request: { status: 'suspended' },
      answer: { ...organization, status: 'suspended' },
    },
    'DELETE /v1/organizations/{id}': {
      operationId: 'deleteOrganization',
      summary: 'Close an organization permanently',
      description:
        'Revokes all keys of the organization and ends its running streams. Wallet, usage and audit log stay readable ' +
        `for platform administrators. ${operators}`,
      answer: { ...organization, status: 'closed', closed_at: created + 3600 },
    },
    'GET /v1/admin/organizations': {
      operationId: 'reportOrganizations',
      summary: 'Report spending by organization',
      description:
        'Returns a page of organizations with balance, spending in USD of the current UTC month and of the last 30 days, ' +
        `requests and active keys. ${operators}`,
      answer: numberedPage({
        ...organization,
        balance: '9.99958',
        spent_month: '1.25',
        spent_30_days: '4.5',
        requests_30_days: 1200,
        active_keys: 3,
      }),
    },
  },
};
