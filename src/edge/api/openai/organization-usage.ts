import { createRoute } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import type { Keys } from '#core/keys/keys.ts';
import type { History } from '#core/metering/metering.ts';
import { type ApiApp, bearerSecurity, type Guards, jsonAnswer } from '#edge/api/shared/shared.ts';
import { bucketPageOf, completionsResult, costsResult, embeddingsResult } from '#edge/contract/organization-usage.ts';
import { costsQuery, usageQuery } from './organization-usage-queries.ts';
import { type BucketsAsked, type BucketSums, endTimeOf, type GroupDimension, readBuckets } from './usage-buckets.ts';

export interface OrganizationUsageParts {
  readonly guards: Guards;
  readonly catalog: Pick<Catalog, 'find'>;
  readonly history: Pick<History, 'summarize'>;
  readonly keys: Pick<Keys, 'usersOf'>;
  readonly clock: Clock;
}

const usageLimits = { '1d': { byDefault: 7, most: 31 }, '1h': { byDefault: 24, most: 168 } };
const costLimits = { byDefault: 7, most: 180 };

/** Registers usage and costs of an organization in the form of OpenAI's organization API, for management keys. */
export function registerOrganizationUsageRoutes(app: ApiApp, parts: OrganizationUsageParts): void {
  registerCompletions(app, parts);
  registerEmbeddings(app, parts);
  registerCosts(app, parts);
}

interface SharedQuery {
  readonly start_time: number;
  readonly end_time?: number | undefined;
  readonly page?: string | undefined;
}

function spanOf(query: SharedQuery, clock: Clock) {
  return { startTime: query.start_time, endTime: endTimeOf(query, clock), page: query.page };
}

const dimensions = {
  project_id: 'project_id',
  user_id: 'user_id',
  api_key_id: 'key_id',
  model: 'model',
  line_item: 'model',
} as const;

function groupOf(names: readonly (keyof typeof dimensions)[] | undefined): readonly GroupDimension[] {
  return (names ?? []).map((name) => dimensions[name]);
}

function shown({ group }: BucketSums) {
  return { project_id: group.project_id, user_id: group.user_id, api_key_id: group.key_id, model: group.model };
}

interface GroupedQuery extends SharedQuery {
  readonly group_by?: readonly (keyof typeof dimensions)[] | undefined;
  readonly 'group_by[]'?: readonly (keyof typeof dimensions)[] | undefined;
  readonly api_key_ids?: readonly string[] | undefined;
  readonly 'api_key_ids[]'?: readonly string[] | undefined;
  readonly user_ids?: readonly string[] | undefined;
  readonly 'user_ids[]'?: readonly string[] | undefined;
}

/**
 * Returns the dimensions to group by, and the keys to include. With keys and users named, only named keys that act for
 * a named user are included.
 */
async function askedOfKeys({ keys }: OrganizationUsageParts, query: GroupedQuery, organizationId: string) {
  const groupBy = groupOf(query.group_by ?? query['group_by[]']);
  const keyIds = query.api_key_ids ?? query['api_key_ids[]'];
  const userIds = query.user_ids ?? query['user_ids[]'];
  if (userIds === undefined && !groupBy.includes('user_id')) return { groupBy, users: new Map(), keyIds };
  const users = await keys.usersOf(organizationId);
  if (userIds === undefined) return { groupBy, users, keyIds };
  const wanted = new Set(userIds);
  const ofUsers = [...users]
    .filter(([, user]) => wanted.has(formatId('user', user)))
    .map(([id]) => formatId('key', id));
  return { groupBy, users, keyIds: keyIds === undefined ? ofUsers : ofUsers.filter((id) => keyIds.includes(id)) };
}

type UsageQuery = ReturnType<typeof usageQuery.parse>;

async function usageAsked(
  parts: OrganizationUsageParts,
  query: UsageQuery,
  organizationId: string,
): Promise<Omit<BucketsAsked, 'counts'>> {
  const { groupBy, users, keyIds } = await askedOfKeys(parts, query, organizationId);
  return {
    organizationId,
    ...spanOf(query, parts.clock),
    width: query.bucket_width,
    limit: { asked: query.limit, ...usageLimits[query.bucket_width] },
    groupBy,
    users,
    only: {
      project_id: query.project_ids ?? query['project_ids[]'],
      key_id: keyIds,
      model: query.models ?? query['models[]'],
    },
  };
}

/** True if a model returns vectors or scores, and so counts as embeddings. A removed model counts as completions. */
function isPooling(catalog: OrganizationUsageParts['catalog'], model: string): boolean {
  const task = catalog.find(model)?.taskType;
  return task === 'embedding' || task === 'rerank';
}

function registerCompletions(app: ApiApp, parts: OrganizationUsageParts): void {
  const { guards, catalog, history } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/organization/usage/completions',
    security: bearerSecurity,
    middleware: guards.may('usage.read'),
    request: { query: usageQuery },
    responses: {
      200: jsonAnswer(bucketPageOf(completionsResult, 'OrganizationUsageCompletions'), 'A page of buckets'),
    },
  });
  app.openapi(route, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const asked = await usageAsked(parts, context.req.valid('query'), organizationId);
    const page = await readBuckets(history, { ...asked, counts: (model) => !isPooling(catalog, model) }, (sums) => ({
      object: 'organization.usage.completions.result' as const,
      input_tokens: sums.inputTokens,
      num_model_requests: sums.requests,
      output_tokens: sums.outputTokens,
      input_cached_tokens: sums.inputCachedTokens,
      ...shown(sums),
      batch: null,
      service_tier: null,
    }));
    return context.json(page, 200);
  });
}

function registerEmbeddings(app: ApiApp, parts: OrganizationUsageParts): void {
  const { guards, catalog, history } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/organization/usage/embeddings',
    security: bearerSecurity,
    middleware: guards.may('usage.read'),
    request: { query: usageQuery },
    responses: { 200: jsonAnswer(bucketPageOf(embeddingsResult, 'OrganizationUsageEmbeddings'), 'A page of buckets') },
  });
  app.openapi(route, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const asked = await usageAsked(parts, context.req.valid('query'), organizationId);
    const page = await readBuckets(history, { ...asked, counts: (model) => isPooling(catalog, model) }, (sums) => ({
      object: 'organization.usage.embeddings.result' as const,
      input_tokens: sums.inputTokens,
      num_model_requests: sums.requests,
      ...shown(sums),
    }));
    return context.json(page, 200);
  });
}

function registerCosts(app: ApiApp, parts: OrganizationUsageParts): void {
  const { guards, history, clock } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/organization/costs',
    security: bearerSecurity,
    middleware: guards.may('usage.read'),
    request: { query: costsQuery },
    responses: { 200: jsonAnswer(bucketPageOf(costsResult, 'OrganizationCosts'), 'A page of buckets') },
  });
  app.openapi(route, async (context) => {
    const query = context.req.valid('query');
    const organizationId = await guards.organizationOf(context);
    const { groupBy, users, keyIds } = await askedOfKeys(parts, query, organizationId);
    const asked: BucketsAsked = {
      organizationId,
      ...spanOf(query, clock),
      width: query.bucket_width,
      limit: { asked: query.limit, ...costLimits },
      groupBy,
      users,
      only: {
        project_id: query.project_ids ?? query['project_ids[]'],
        key_id: keyIds,
        model: query.line_items ?? query['line_items[]'],
      },
      counts: null,
    };
    const page = await readBuckets(history, asked, (sums) => ({
      object: 'organization.costs.result' as const,
      amount: { value: Number(formatUsd(sums.costPicoUsd)), currency: 'usd' as const },
      line_item: sums.group.model,
      project_id: sums.group.project_id,
      user_id: sums.group.user_id,
      api_key_id: sums.group.key_id,
      quantity: null,
    }));
    return context.json(page, 200);
  });
}
