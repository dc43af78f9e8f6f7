import { created } from './examples.ts';
import type { Operation, Operations } from './operation.ts';

const none = { object: 'list', data: [], first_id: null, last_id: null, has_more: false, next: null };

function emptyList(operationId: string, things: string): Operation {
  return {
    operationId,
    summary: `List ${things} (always empty)`,
    description:
      `Returns an empty list in OpenAI's format: Headgate has no ${things}. Requires a management key of the ` +
      'organization.',
    answer: none,
  };
}

const bucket = { object: 'bucket', start_time: created, end_time: created + 86_400, results: [] };

function emptyUsage(operationId: string, things: string): Operation {
  return {
    operationId,
    summary: `Get usage of ${things} (always empty)`,
    description:
      `Returns empty buckets of UTC days or hours in OpenAI's format: Headgate serves no ${things}. Requires a ` +
      'management key of the organization.',
    answer: { object: 'page', data: [bucket], has_more: false, next_page: null },
  };
}

const root = '/v1/organization';
const ofProject = `${root}/projects/{id}`;

/** Parts of OpenAI's organization API that Headgate answers with nothing, so that SDKs can list them. */
export const absentOperations: Operations = {
  [`GET ${root}/certificates`]: emptyList('listOrganizationCertificates', 'certificates'),
  [`GET ${root}/external_keys`]: emptyList('listExternalKeys', 'external keys'),
  [`GET ${root}/external_storage`]: emptyList('listExternalStorage', 'external storage'),
  [`GET ${root}/groups`]: emptyList('list-groups', 'groups'),
  [`GET ${root}/groups/{group}/roles`]: emptyList('list-group-role-assignments', 'roles of a group'),
  [`GET ${root}/groups/{group}/users`]: emptyList('list-group-users', 'users of a group'),
  [`GET ${root}/roles`]: emptyList('list-roles', 'custom roles'),
  [`GET ${root}/spend_alerts`]: emptyList('list-organization-spend-alerts', 'spend alerts'),
  [`GET ${root}/users/{user}/roles`]: emptyList('list-user-role-assignments', 'custom roles of a user'),
  [`GET ${root}/workload_identity_providers`]: emptyList(
    'listWorkloadIdentityProviders',
    'workload identity providers',
  ),
  [`GET ${root}/workload_identity_providers/{provider}/federation_rules`]: emptyList(
    'listFederationRules',
    'federation rules',
  ),
  [`GET ${ofProject}/certificates`]: emptyList('listProjectCertificates', 'project certificates'),
  [`GET ${ofProject}/groups`]: emptyList('list-project-groups', 'project groups'),
  [`GET ${ofProject}/spend_alerts`]: emptyList('list-project-spend-alerts', 'project spend alerts'),
  [`GET ${ofProject}/users`]: emptyList('list-project-users', 'project members'),
  'GET /v1/projects/{id}/groups/{group}/roles': emptyList(
    'list-project-group-role-assignments',
    'project roles of a group',
  ),
  'GET /v1/projects/{id}/roles': emptyList('list-project-roles', 'project roles'),
  'GET /v1/projects/{id}/users/{user}/roles': emptyList(
    'list-project-user-role-assignments',
    'project roles of a user',
  ),
  [`GET ${root}/usage/audio_speeches`]: emptyUsage('usage-audio-speeches', 'speech'),
  [`GET ${root}/usage/audio_transcriptions`]: emptyUsage('usage-audio-transcriptions', 'transcription'),
  [`GET ${root}/usage/code_interpreter_sessions`]: emptyUsage('usage-code-interpreter-sessions', 'code interpreters'),
  [`GET ${root}/usage/decisions`]: emptyUsage('listDecisionsUsage', 'decisions'),
  [`GET ${root}/usage/file_search_calls`]: emptyUsage('usage-file-search-calls', 'file search'),
  [`GET ${root}/usage/images`]: emptyUsage('usage-images', 'images'),
  [`GET ${root}/usage/moderations`]: emptyUsage('usage-moderations', 'moderation'),
  [`GET ${root}/usage/vector_stores`]: emptyUsage('usage-vector-stores', 'vector stores'),
  [`GET ${root}/usage/web_search_calls`]: emptyUsage('usage-web-search-calls', 'web search'),
};
