import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { type ApiApp, bearerSecurity, cursorListQuery, type Guards, jsonAnswer } from '#edge/api/shared/shared.ts';
import { emptyBuckets, emptyList } from '#edge/contract/organization-usage.ts';
import { absentUsageQuery } from './organization-usage-queries.ts';
import { endTimeOf, readBuckets } from './usage-buckets.ts';

/**
 * Routes of OpenAI's organization API for features that Headgate does not have: their lists are empty, in the same
 * shape.
 */

export interface OrganizationAbsentParts {
  readonly guards: Guards;
  readonly clock: Clock;
}

const root = '/v1/organization';
const ofProject = `${root}/projects/{id}`;

/** Paths of empty lists. */
export const absentLists: readonly string[] = [
  `${root}/certificates`,
  `${root}/external_keys`,
  `${root}/external_storage`,
  `${root}/groups`,
  `${root}/groups/{group}/roles`,
  `${root}/groups/{group}/users`,
  `${root}/roles`,
  `${root}/spend_alerts`,
  `${root}/users/{user}/roles`,
  `${root}/workload_identity_providers`,
  `${root}/workload_identity_providers/{provider}/federation_rules`,
  `${ofProject}/certificates`,
  `${ofProject}/groups`,
  `${ofProject}/spend_alerts`,
  `${ofProject}/users`,
  // OpenAI puts the roles of a project beside its organization API.
  '/v1/projects/{id}/groups/{group}/roles',
  '/v1/projects/{id}/roles',
  '/v1/projects/{id}/users/{user}/roles',
];

/** Paths of usage that is always zero. */
export const absentUsage: readonly string[] = [
  'audio_speeches',
  'audio_transcriptions',
  'code_interpreter_sessions',
  'decisions',
  'file_search_calls',
  'images',
  'moderations',
  'vector_stores',
  'web_search_calls',
].map((name) => `${root}/usage/${name}`);

const listQuery = z.strictObject({
  ...cursorListQuery,
  before: z.string().optional().openapi({ description: 'Accepted and ignored' }),
  order: z.enum(['asc', 'desc']).optional().openapi({ description: 'Accepted and ignored' }),
});

export function registerOrganizationAbsentRoutes(app: ApiApp, parts: OrganizationAbsentParts): void {
  for (const path of absentLists) registerList(app, parts, path);
  for (const path of absentUsage) registerUsage(app, parts, path);
}

function registerList(app: ApiApp, { guards }: OrganizationAbsentParts, path: string): void {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
  const route = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('organization.read')],
    request: { params: z.object(Object.fromEntries(names.map((name) => [name, z.string()]))), query: listQuery },
    responses: { 200: jsonAnswer(emptyList, 'An empty list') },
  });
  app.openapi(route, async (context) => {
    await guards.organizationOf(context);
    const none = { object: 'list' as const, data: [], first_id: null, last_id: null, has_more: false, next: null };
    return context.json(none, 200);
  });
}

const limits = { '1d': { byDefault: 7, most: 31 }, '1h': { byDefault: 24, most: 168 } };
const nothing = { summarize: () => Promise.resolve({ kind: 'sums' as const, rows: [], totals: noSums }) };
const noSums = {
  requests: 0,
  completed: 0,
  aborted: 0,
  ended: 0,
  failed: 0,
  inputTokens: 0,
  inputCachedTokens: 0,
  outputTokens: 0,
  outputReasoningTokens: 0,
  costPicoUsd: 0n,
  refusals: {},
};

function registerUsage(app: ApiApp, { guards, clock }: OrganizationAbsentParts, path: string): void {
  const route = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('usage.read')],
    request: { query: absentUsageQuery },
    responses: { 200: jsonAnswer(emptyBuckets, 'A page of buckets') },
  });
  app.openapi(route, async (context) => {
    const query = context.req.valid('query');
    const { start_time: startTime, page, limit, bucket_width: width } = query;
    const asked = {
      organizationId: await guards.organizationOf(context),
      startTime,
      endTime: endTimeOf(query, clock),
      page,
      width,
      limit: { asked: limit, ...limits[width] },
      groupBy: [],
      users: new Map<string, string>(),
      only: {},
      counts: () => true,
    };
    return context.json(await readBuckets(nothing, asked, () => ({})), 200);
  });
}

const people = 'Each user is a member, admin or owner of the organization: /v1/users.';
const noRoles = `Headgate has no groups and no custom roles. ${people}`;
const projectRoles = /^\/v1\/projects\/[^/]+\/(?:(?:users|groups)\/[^/]+\/)?roles(?:\/|$)/;

/** Alternatives to paths that are not served, by the path after the root. */
const instead: readonly (readonly [path: RegExp, sentence: string])[] = [
  [/^audit_logs$/, 'Use GET /v1/audit to read the audit log.'],
  [/^users\/[^/]+$/, 'Use /v1/users/{id} to change and remove users.'],
  [/^invites(?:\/[^/]+)?$/, 'Use /v1/invitations to create, read and revoke invitations.'],
  [/^(?:groups|roles)(?:\/|$)|\/(?:groups|roles)(?:\/|$)/, noRoles],
  [/^projects\/[^/]+\/users(?:\/|$)/, `Projects have no members of their own. ${people}`],
  [
    /^projects\/[^/]+\/rate_limits(?:\/|$)/,
    'Use GET …/rate_limits to list the limits of a project, and POST …/rate_limits/{id} to set those of one model.',
  ],
  [/^projects\/[^/]+\/api_keys\/[^/]+$/, 'Use PATCH /v1/keys/{id} to change a key.'],
  [
    /(?:^|\/)spend_(?:alerts|limit)(?:\/|$)/,
    'The wallet balance and the budgets of projects and keys limit spending: /v1/budgets. Use PATCH ' +
      '/v1/organizations/{id} {"wallet_alert_below": "5"} for an alert when the balance is low.',
  ],
  [
    /(?:^|\/)(?:model_permissions|hosted_tool_permissions|service_tier_settings)$/,
    'Use "models" of a key (PATCH /v1/keys/{id}) or of an organization to set the allowed models. Headgate has no ' +
      'other permissions of this kind.',
  ],
  [
    /(?:^|\/)data_retention$/,
    'Headgate stores contents only for keys with "store_requests", for as long as the operator has set.',
  ],
  [
    /(?:^|\/)(?:certificates|external_keys|external_storage|workload_identity_providers)(?:\/|$)/,
    'Headgate does not have this feature.',
  ],
];

/** Returns why a path of OpenAI's organization API is not served, with the alternative; null for other paths. */
export function absentOf(path: string): AppError | null {
  if (projectRoles.test(path)) return new AppError('not_implemented', { message: noRoles });
  if (!path.startsWith(`${root}/`)) return null;
  const rest = path.slice(root.length + 1);
  const message = instead.find(([pattern]) => pattern.test(rest))?.[1];
  return message === undefined ? null : new AppError('not_implemented', { message });
}
