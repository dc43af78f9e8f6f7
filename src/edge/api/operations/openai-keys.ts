import { created, exampleId, openaiList } from './examples.ts';
import { type Operations, streamsEnd } from './operation.ts';

const who = 'Requires a management key of the organization.';

const key = {
  id: exampleId('key'),
  name: 'Nightly jobs',
  redacted_value: 'sk-hg-8a1b2c3d4e5f…x7Qd',
  created_at: created,
  expires_at: null,
  last_used_at: null,
  confined: null,
};
const owner = {
  id: exampleId('user'),
  name: 'Ada Lovelace',
  email: 'ada@example.com',
  role: 'admin',
  created_at: created,
};
const projectKey = {
  object: 'organization.project.api_key',
  ...key,
  owner: { type: 'user', user: owner },
  owner_project_access: 'active',
};
const adminKey = {
  object: 'organization.admin_api_key',
  ...key,
  owner: {
    type: 'user',
    object: 'organization.user',
    id: owner.id,
    name: owner.name,
    role: owner.role,
    created_at: created,
  },
};
const secret = 'sk-hg-8a1b2c3d4e5f-7c1f0d9e8b7a6f5e4d3c2b1a0x7Qd';

const projectKeys: Operations = {
  'GET /v1/organization/projects/{id}/api_keys': {
    operationId: 'list-project-api-keys',
    summary: 'List API keys of a project',
    description: `Returns the active inference keys of a project, newest first. ${who}`,
    answer: openaiList(projectKey),
  },
  'GET /v1/organization/projects/{id}/api_keys/{key}': {
    operationId: 'retrieve-project-api-key',
    summary: 'Retrieve an API key of a project',
    description: `Returns one active inference key of a project. ${who}`,
    answer: projectKey,
  },
  'DELETE /v1/organization/projects/{id}/api_keys/{key}': {
    operationId: 'delete-project-api-key',
    summary: 'Revoke an API key of a project',
    description: `Revokes a key, which fails on its next request. ${streamsEnd} ${who}`,
    answer: { object: 'organization.project.api_key.deleted', id: key.id, deleted: true },
  },
};

const adminKeys: Operations = {
  'GET /v1/organization/admin_api_keys': {
    operationId: 'admin-api-keys-list',
    summary: 'List management keys',
    description: `Returns the active management keys of the organization, newest first unless \`order\` is \`asc\`. ${who}`,
    answer: openaiList(adminKey),
  },
  'POST /v1/organization/admin_api_keys': {
    operationId: 'admin-api-keys-create',
    summary: 'Create a management key',
    description: `Creates a management key. Only this response contains its secret, in \`value\`. ${who}`,
    request: { name: key.name, expires_in_seconds: 7_776_000 },
    answer: { ...adminKey, expires_at: created + 7_776_000, value: secret },
  },
  'GET /v1/organization/admin_api_keys/{id}': {
    operationId: 'admin-api-keys-get',
    summary: 'Retrieve a management key',
    description: `Returns one active management key. ${who}`,
    answer: adminKey,
  },
  'DELETE /v1/organization/admin_api_keys/{id}': {
    operationId: 'admin-api-keys-delete',
    summary: 'Revoke a management key',
    description: `Revokes a key, which fails on its next request. ${who}`,
    answer: { object: 'organization.admin_api_key.deleted', id: key.id, deleted: true },
  },
};

const account = {
  object: 'organization.project.service_account',
  id: exampleId('svc_acct'),
  name: 'nightly',
  role: 'member',
  created_at: created,
};
const accountKey = {
  object: 'organization.project.service_account.api_key',
  id: exampleId('key'),
  name: 'nightly',
  value: secret,
  created_at: created,
  expires_at: null,
};

const accounts = '/v1/organization/projects/{id}/service_accounts';
const serviceAccounts: Operations = {
  [`GET ${accounts}`]: {
    operationId: 'list-project-service-accounts',
    summary: 'List service accounts of a project',
    description: `Returns service accounts, newest first. An archived project has none. ${who}`,
    answer: openaiList(account),
  },
  [`POST ${accounts}`]: {
    operationId: 'create-project-service-account',
    summary: 'Create a service account',
    description:
      'Creates a service account, with an API key unless `create_service_account_only` is true. Only this response ' +
      `contains the secret, in \`value\` of \`api_key\`. ${who}`,
    request: { name: account.name },
    answer: { ...account, api_key: accountKey },
  },
  [`GET ${accounts}/{account}`]: {
    operationId: 'retrieve-project-service-account',
    summary: 'Retrieve a service account',
    description: `Returns one service account of a project. ${who}`,
    answer: account,
  },
  [`POST ${accounts}/{account}`]: {
    operationId: 'update-project-service-account',
    summary: 'Rename a service account',
    description: `Changes the name of a service account. The only role is \`member\`. ${who}`,
    request: { name: 'nightly-2' },
    answer: { ...account, name: 'nightly-2' },
  },
  [`DELETE ${accounts}/{account}`]: {
    operationId: 'delete-project-service-account',
    summary: 'Delete a service account',
    description: `Deletes a service account and revokes its keys, which fail on their next request. ${who}`,
    answer: { object: 'organization.project.service_account.deleted', id: account.id, deleted: true },
  },
  [`POST ${accounts}/{account}/api_keys`]: {
    operationId: 'CreateanAPIkeyforaserviceaccount',
    summary: 'Create an API key for a service account',
    description: `Creates another key of a service account. Only this response contains its secret, in \`value\`. ${who}`,
    request: { name: 'nightly-2', expires_in_seconds: 7_776_000 },
    answer: { ...accountKey, name: 'nightly-2', expires_at: created + 7_776_000 },
  },
};

/** Operations on API keys and service accounts. */
export const openaiKeyOperations: Operations = { ...projectKeys, ...adminKeys, ...serviceAccounts };
