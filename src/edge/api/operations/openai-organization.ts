import { absentOperations } from './openai-absent.ts';
import { created, exampleId, openaiList } from './examples.ts';
import { openaiKeyOperations } from './openai-keys.ts';
import type { Operations, Tag } from './operation.ts';

const who = 'Requires a management key of the organization.';

const project = {
  object: 'organization.project',
  id: exampleId('proj'),
  name: 'Search',
  status: 'active',
  created_at: created,
  archived_at: null,
};

const projects: Operations = {
  'GET /v1/organization/projects': {
    operationId: 'list-projects',
    summary: 'List projects of the organization',
    description: `Returns projects, newest first; archived ones only with \`include_archived=true\`. ${who}`,
    answer: openaiList(project),
  },
  'POST /v1/organization/projects': {
    operationId: 'create-project',
    summary: 'Create a project in the organization',
    description: `Creates a private project. ${who}`,
    request: { name: project.name },
    answer: project,
  },
  'GET /v1/organization/projects/{id}': {
    operationId: 'retrieve-project',
    summary: 'Retrieve a project of the organization',
    description: `Returns one project, also when it is archived. ${who}`,
    answer: project,
  },
  'POST /v1/organization/projects/{id}': {
    operationId: 'modify-project',
    summary: 'Rename a project',
    description: `Changes the name of a project. ${who}`,
    request: { name: 'Search and ranking' },
    answer: { ...project, name: 'Search and ranking' },
  },
  'POST /v1/organization/projects/{id}/archive': {
    operationId: 'archive-project',
    summary: 'Archive a project of the organization',
    description: `Archives a project, which then accepts no requests and no new keys; its service accounts are deleted. ${who}`,
    answer: { ...project, status: 'archived' },
  },
};

const rateLimit = {
  object: 'project.rate_limit',
  id: 'rl-qwen3-32b',
  model: 'qwen3-32b',
  max_requests_per_1_minute: 60,
  max_tokens_per_1_minute: null,
  max_requests_per_1_day: 10_000,
};

const rateLimits: Operations = {
  'GET /v1/organization/projects/{id}/rate_limits': {
    operationId: 'list-project-rate-limits',
    summary: 'List rate limits of a project',
    description: `Returns one entry for each model that the organization may use. \`null\` is unlimited. ${who}`,
    answer: openaiList(rateLimit),
  },
  'POST /v1/organization/projects/{id}/rate_limits/{rate_limit}': {
    operationId: 'update-project-rate-limits',
    summary: 'Update a rate limit of a project',
    description:
      'Sets the limits of requests and tokens that all keys of a project share for one model. `null` removes a limit, ' +
      `and absent fields stay as they are; all gateways apply the limits once this returns. ${who}`,
    request: { max_requests_per_1_minute: 120 },
    answer: { ...rateLimit, max_requests_per_1_minute: 120 },
  },
};

const user = {
  object: 'organization.user',
  id: exampleId('user'),
  name: 'Ada Lovelace',
  email: 'ada@example.com',
  role: 'member',
  added_at: created,
};
const invite = {
  object: 'organization.invite',
  id: exampleId('inv'),
  email: 'ada@example.com',
  role: 'reader',
  status: 'pending',
  created_at: created,
  expires_at: created + 604_800,
  accepted_at: null,
  projects: [],
};

const people: Operations = {
  'GET /v1/organization/users': {
    operationId: 'list-users',
    summary: 'List users of the organization',
    description: `Returns users, newest first. \`/v1/users\` creates, changes and removes users. ${who}`,
    answer: openaiList(user),
  },
  'GET /v1/organization/users/{id}': {
    operationId: 'retrieve-user',
    summary: 'Retrieve a user of the organization',
    description: `Returns one user with the role in the organization. ${who}`,
    answer: user,
  },
  'GET /v1/organization/invites': {
    operationId: 'list-invites',
    summary: 'List invites to the organization',
    description: `Returns pending invitations, newest first. \`/v1/invitations\` creates and revokes them. ${who}`,
    answer: openaiList(invite),
  },
};

const bucketPage = (result: object) => {
  const bucket = { object: 'bucket', start_time: created, end_time: created + 86_400, results: [result] };
  return { object: 'page', data: [bucket], has_more: false, next_page: null };
};
const groups = { project_id: null, user_id: null, api_key_id: null };
const buckets = 'Buckets are UTC days (7 by default, at most 31) or hours (24 by default, at most 168).';

const usage: Operations = {
  'GET /v1/organization/usage/completions': {
    operationId: 'usage-completions',
    summary: 'Get usage of text generation',
    description: `Returns tokens and requests of models that generate text, without rejected requests. ${buckets} ${who}`,
    answer: bucketPage({
      object: 'organization.usage.completions.result',
      input_tokens: 12_000,
      num_model_requests: 100,
      ...groups,
      model: null,
      output_tokens: 4000,
      input_cached_tokens: 1000,
      batch: null,
      service_tier: null,
    }),
  },
  'GET /v1/organization/usage/embeddings': {
    operationId: 'usage-embeddings',
    summary: 'Get usage of embeddings and ranking',
    description: `Returns tokens and requests of models that embed, rerank or score, without rejected requests. ${buckets} ${who}`,
    answer: bucketPage({
      object: 'organization.usage.embeddings.result',
      input_tokens: 12_000,
      num_model_requests: 100,
      ...groups,
      model: null,
    }),
  },
  'GET /v1/organization/costs': {
    operationId: 'usage-costs',
    summary: 'Get costs of requests',
    description:
      'Returns the charges for requests in USD, in buckets of UTC days (7 by default, at most 180); a line item is a ' +
      `model. Costs of clusters are in \`/v1/billing/costs\`. ${who}`,
    answer: bucketPage({
      object: 'organization.costs.result',
      amount: { value: 1.25, currency: 'usd' },
      line_item: null,
      ...groups,
      quantity: null,
    }),
  },
};

export const openaiOrganization: Tag = {
  name: 'OpenAI organization API',
  description:
    "OpenAI's administration API, as `client.admin.organization` of the official SDKs calls it: projects, keys, service " +
    'accounts, people, rate limits, usage and costs.',
  operations: { ...projects, ...openaiKeyOperations, ...rateLimits, ...people, ...usage, ...absentOperations },
};
