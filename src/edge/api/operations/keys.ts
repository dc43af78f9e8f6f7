import { budget } from './budgets.ts';
import { created, cursorList, exampleId, model } from './examples.ts';
import { streamsEnd, type Tag } from './operation.ts';

const key = {
  id: exampleId('key'),
  object: 'api_key',
  name: 'Nightly jobs',
  prefix: 'sk-hg-8a1b2c3d4e5f',
  last4: 'x7Qd',
  scope: 'inference',
  held: false,
  project_id: exampleId('proj'),
  user_id: exampleId('user'),
  service_account_id: null,
  status: 'active',
  created_at: created,
  expires_at: null,
  last_used_at: null,
  revoked_at: null,
  rotated_at: null,
  former_secrets_end_at: null,
  requests_per_minute: 60,
  max_concurrency: 10,
  tokens_per_minute: null,
  monthly_token_limit: null,
  store_requests: false,
  cache_responses: false,
  unserved_tools: null,
  end_user_from_header: false,
  confined: null,
  models: null,
};
const secret = 'sk-hg-8a1b2c3d4e5f-7c1f0d9e8b7a6f5e4d3c2b1a0x7Qd';

const who = 'Requires a management key of the organization.';

const { id, name, scope, project_id, user_id, service_account_id, models, created_at, expires_at } = key;
const ownKey = {
  id,
  name,
  label: `${key.prefix}…${key.last4}`,
  scope,
  is_management_key: false,
  project_id,
  user_id,
  service_account_id,
  models,
  limits: {
    requests_per_minute: { limit: 60, remaining: 58, resets_at: created + 60 },
    max_concurrency: { limit: 10, remaining: 9, resets_at: null },
    tokens_per_minute: null,
    monthly_token_limit: null,
  },
  limit: 25,
  limit_remaining: 12,
  limit_reset: 'monthly',
  usage: 40.75,
  usage_daily: 0.42,
  usage_monthly: 12.5,
  budgets: [{ ...budget, scope: { type: 'api_key', id } }],
  created_at,
  expires_at,
};

export const keys: Tag = {
  name: 'API keys',
  description: 'Keys for programs: create, limit, rotate and revoke them.',
  operations: {
    'POST /v1/keys': {
      operationId: 'createKey',
      summary: 'Create an API key',
      description:
        'Creates an API key. Only this response contains the `secret`. All fields are optional; absent limits are the ' +
        `default limits of the organization. ${who}`,
      request: { name: 'Nightly jobs', expiry: '90d', requests_per_minute: 60 },
      answer: { ...key, expires_at: created + 7_776_000, secret },
    },
    'GET /v1/keys': {
      operationId: 'listKeys',
      summary: 'List API keys',
      description: `Returns the keys of the organization, newest first, without their secrets. ${who}`,
      answer: cursorList(key),
    },
    'POST /v1/imports': {
      operationId: 'createImport',
      summary: 'Import a project and keys',
      description:
        'Creates a project and keys of another program from the hashes of their secrets, in one transaction. Clients keep ' +
        'their secrets. Projects and keys of an earlier import are not changed. Imported keys belong to a service account ' +
        'of the project, and may exceed the limit of active keys. `headgate import litellm --database` calls this route. ' +
        'Requires a management key of a platform administrator.',
      request: {
        dry_run: false,
        project: {
          imported_from: 'litellm team 7f3b',
          name: 'Search',
          budgets: [{ period: 'monthly', amount: '25', opening_spent: '12.5' }],
        },
        keys: [{ secret_sha256: '0'.repeat(64), prefix: 'sk-', last4: key.last4, name: key.name, models: [model] }],
      },
      answer: {
        object: 'import',
        dry_run: false,
        project: { status: 'created', id: key.project_id, message: null },
        keys: [{ secret_sha256: '0'.repeat(64), status: 'created', id: key.id, message: null, unknown_models: [] }],
      },
    },
    'GET /v1/key': {
      operationId: 'retrieveOwnKey',
      summary: 'Retrieve the key of the request',
      description:
        'Returns the API key that the request is sent with, without its secret: its models, what remains of its limits, ' +
        'the budgets of the key and its project, and its spending. The request counts against no limit. Any API key may ' +
        'call it.',
      answer: { data: ownKey },
    },
    'GET /v1/keys/{id}': {
      operationId: 'retrieveKey',
      summary: 'Retrieve an API key',
      description: `Returns one key of the organization, also when it is revoked or expired. ${who}`,
      answer: key,
    },
    'PATCH /v1/keys/{id}': {
      operationId: 'updateKey',
      summary: 'Update an API key',
      description:
        'Changes the name, limits, allowed models and switches of a key. Absent fields stay as they are, and a limit of ' +
        `\`null\` removes the limit. ${who}`,
      request: { requests_per_minute: 120, store_requests: true },
      answer: { ...key, requests_per_minute: 120, store_requests: true },
    },
    'DELETE /v1/keys/{id}': {
      operationId: 'deleteKey',
      summary: 'Revoke an API key',
      description: `Revokes a key, which fails on its next request. ${streamsEnd} A revoked key can still be read. ${who}`,
      answer: { ...key, status: 'revoked', revoked_at: created + 3600 },
    },
    'POST /v1/keys/{id}/rotate': {
      operationId: 'rotateKey',
      summary: 'Rotate the secret of an API key',
      description:
        'Creates a new secret, which only this response contains. The current secret works for another `grace_seconds` ' +
        `(default one day, at most 30 days). ${who}`,
      request: { grace_seconds: 86_400, last4: 'x7Qd' },
      answer: {
        ...key,
        last4: 'm3Kp',
        rotated_at: created,
        former_secrets_end_at: created + 86_400,
        secret: 'sk-hg-8a1b2c3d4e5f-0a9b8c7d6e5f4a3b2c1d0e9f8m3Kp',
      },
    },
    'POST /v1/keys/report': {
      operationId: 'reportKey',
      summary: 'Report a leaked secret',
      description:
        'Revokes the key of a leaked secret immediately; for a former secret, only that secret ends. No API key is ' +
        'required. `revoked` is true only if this report ended a working secret.',
      request: { secret },
      answer: { object: 'key_report', revoked: true },
    },
  },
};
