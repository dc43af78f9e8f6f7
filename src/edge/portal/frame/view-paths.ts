import type { Viewed } from '#edge/portal/ui/ui.ts';

/**
 * API paths while a platform administrator looks at an organization. A path that is in none of the three tables throws,
 * because without `organization_id` the API would mean the visitor's own organization.
 */

/** Paths with `organization_id`: it is set to the viewed organization. */
export const pathsOfOrganization: readonly string[] = [
  '/v1/audit',
  '/v1/batches',
  '/v1/batches/{id}',
  '/v1/batches/{id}/cancel',
  '/v1/billing/costs',
  '/v1/billing/costs.csv',
  '/v1/billing/costs/series',
  '/v1/budgets',
  '/v1/budgets/{id}',
  '/v1/budgets/{id}/reset',
  '/v1/billing/budget',
  '/v1/clusters',
  '/v1/files',
  '/v1/files/{id}',
  '/v1/files/{id}/content',
  '/v1/imports',
  '/v1/invitations',
  '/v1/invitations/{id}',
  '/v1/keys',
  '/v1/keys/{id}',
  '/v1/keys/{id}/rotate',
  '/v1/organization/admin_api_keys',
  '/v1/organization/admin_api_keys/{id}',
  '/v1/organization/certificates',
  '/v1/organization/costs',
  '/v1/organization/external_keys',
  '/v1/organization/external_storage',
  '/v1/organization/groups',
  '/v1/organization/groups/{group}/roles',
  '/v1/organization/groups/{group}/users',
  '/v1/organization/invites',
  '/v1/organization/projects',
  '/v1/organization/projects/{id}',
  '/v1/organization/projects/{id}/api_keys',
  '/v1/organization/projects/{id}/api_keys/{key}',
  '/v1/organization/projects/{id}/archive',
  '/v1/organization/projects/{id}/certificates',
  '/v1/organization/projects/{id}/groups',
  '/v1/organization/projects/{id}/rate_limits',
  '/v1/organization/projects/{id}/rate_limits/{rate_limit}',
  '/v1/organization/projects/{id}/service_accounts',
  '/v1/organization/projects/{id}/service_accounts/{account}',
  '/v1/organization/projects/{id}/service_accounts/{account}/api_keys',
  '/v1/organization/projects/{id}/spend_alerts',
  '/v1/organization/projects/{id}/users',
  '/v1/organization/roles',
  '/v1/organization/spend_alerts',
  '/v1/organization/usage/audio_speeches',
  '/v1/organization/usage/audio_transcriptions',
  '/v1/organization/usage/code_interpreter_sessions',
  '/v1/organization/usage/completions',
  '/v1/organization/usage/decisions',
  '/v1/organization/usage/embeddings',
  '/v1/organization/usage/file_search_calls',
  '/v1/organization/usage/images',
  '/v1/organization/usage/moderations',
  '/v1/organization/usage/vector_stores',
  '/v1/organization/usage/web_search_calls',
  '/v1/organization/users',
  '/v1/organization/users/{id}',
  '/v1/organization/users/{user}/roles',
  '/v1/organization/workload_identity_providers',
  '/v1/organization/workload_identity_providers/{provider}/federation_rules',
  '/v1/projects',
  '/v1/projects/{id}',
  '/v1/projects/{id}/archive',
  '/v1/projects/{id}/groups/{group}/roles',
  '/v1/projects/{id}/roles',
  '/v1/projects/{id}/users/{user}/roles',
  '/v1/runs',
  '/v1/usage/rejected',
  '/v1/usage/requests',
  '/v1/usage/requests/{id}',
  '/v1/usage/requests/{id}/content',
  '/v1/usage/summary',
  '/v1/users',
  '/v1/users/{id}/reset-link',
  '/v1/wallet',
  '/v1/wallet/adjustments',
  '/v1/wallet/credits',
  '/v1/wallet/days',
  '/v1/wallet/ledger',
  '/v1/wallet/statements/{month}',
  '/v1/webhooks',
  '/v1/webhooks/{id}',
  '/v1/webhooks/{id}/deliveries',
  '/v1/webhooks/{id}/deliveries/{delivery}/replay',
  '/v1/webhooks/{id}/rotate',
  '/v1/webhooks/{id}/test',
];

/** Paths with an optional `organization_id` that name a person, who is the same in all organizations. */
export const pathsOfPerson: readonly string[] = ['/v1/users/{id}', '/v1/users/{id}/identities'];

/**
 * Paths that name their organization otherwise (in the path, the body or another parameter), and paths of the platform.
 */
export const pathsOfAll: readonly string[] = [
  '/v1/admin/engine-files/check',
  '/v1/admin/engines',
  '/v1/admin/engines/reload',
  '/v1/admin/engines/{id}',
  '/v1/admin/engines/{id}/file',
  '/v1/admin/engines/{id}/history',
  '/v1/admin/engines/{id}/logs',
  '/v1/admin/engines/{id}/requests',
  '/v1/admin/engines/{id}/requests/{request_id}/cancel',
  '/v1/admin/engines/{id}/reset',
  '/v1/admin/engines/{id}/restart',
  '/v1/admin/engines/{id}/start',
  '/v1/admin/engines/{id}/stop',
  '/v1/admin/holds',
  '/v1/admin/holds/{id}/release',
  '/v1/admin/hosts',
  '/v1/admin/organizations',
  '/v1/admin/quarantine',
  '/v1/admin/quarantine/{id}',
  '/v1/admin/quarantine/{id}/discard',
  '/v1/admin/quarantine/{id}/retry',
  '/v1/admin/reconcile',
  '/v1/admin/unused-storage',
  '/v1/admin/unused-storage/{name}',
  '/v1/billing/conversion-rates',
  '/v1/billing/conversion-rates/import',
  '/v1/billing/conversion-rates/{id}/end',
  '/v1/billing/currencies',
  '/v1/billing/margins',
  '/v1/billing/rate-cards',
  '/v1/billing/rate-cards/import',
  '/v1/billing/rate-cards/{id}/end',
  '/v1/clusters/{id}',
  '/v1/clusters/{id}/access-identity/rotate',
  '/v1/clusters/{id}/allocations',
  '/v1/clusters/{id}/nodes',
  '/v1/clusters/{id}/nodes/{node}',
  '/v1/clusters/{id}/nodes/{node}/allocate',
  '/v1/clusters/{id}/nodes/{node}/allocations/{generation}/amend',
  '/v1/clusters/{id}/nodes/{node}/allocations/{generation}/void',
  '/v1/clusters/{id}/nodes/{node}/heartbeat',
  '/v1/clusters/{id}/nodes/{node}/release',
  '/v1/key',
  '/v1/keys/report',
  '/v1/models',
  '/v1/models/{id}',
  '/v1/organizations',
  '/v1/organizations/{id}',
  '/v1/orgs/{id}/billing-currency',
  '/v1/pricing',
  '/v1/runner',
  '/v1/runs/{id}',
  '/v1/runs/{id}/cancel',
  '/v1/runs/{id}/confirm',
  '/v1/runs/{id}/destroy',
  '/v1/runs/{id}/discard',
  '/v1/runs/{id}/forget',
  '/v1/runs/{id}/logs',
  '/v1/runs/{id}/open',
  '/v1/runs/{id}/plan',
  '/v1/runs/{id}/retry',
  '/v1/stacks',
  '/v1/stacks/{name}',
  '/v1/stacks/{name}/apply',
  '/v1/stacks/{name}/diff',
  '/v1/stacks/{name}/download',
  '/v1/stacks/{name}/icon',
  '/v1/stacks/{name}/revert',
  '/v1/stacks/{name}/versions',
  '/v1/statement-key',
];

const patternOf = (paths: readonly string[]): RegExp =>
  new RegExp(`^(?:${paths.map((path) => path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]+')).join('|')})$`);

const ofOrganization = patternOf(pathsOfOrganization);
const ofOthers = patternOf([...pathsOfPerson, ...pathsOfAll]);

/**
 * Adds the viewed organization to a path of the API, unless the path names an organization or all of them.
 * @throws Error for a path that is in no table
 */
export function pathFor(viewed: Viewed | null, path: string): string {
  if (viewed === null) return path;
  const { pathname, searchParams } = new URL(path, 'http://localhost');
  if (ofOthers.test(pathname)) return path;
  if (!ofOrganization.test(pathname)) throw new Error(`${pathname} is missing from the path tables of view-paths.ts`);
  if (searchParams.has('organization_id') || searchParams.has('org') || searchParams.has('all_organizations'))
    return path;
  searchParams.set('organization_id', viewed.id);
  return `${pathname}?${searchParams.toString()}`;
}
