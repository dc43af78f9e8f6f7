import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { formatId, type IdPrefix, isUuid, uuidTimeMs } from '#base/id.ts';
import { formatDecimal, formatUsd, MICRO_DIGITS } from '#base/money.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Catalog, PriceVersion } from '#core/catalog/catalog.ts';
import type { Keys } from '#core/keys/keys.ts';
import {
  type DetailedRecord,
  type History,
  type RecordFilter,
  type RecordPage,
  timelineOf,
  type UsageRecord,
} from '#core/metering/metering.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  listQuery,
  longText,
  organizationQuery,
  readCursor,
  timeBound,
  toListPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import {
  outcomes,
  type UsageRequestAnswer,
  type UsageRequestDetailAnswer,
  usageRequestDetailSchema,
  usageRequestListSchema,
} from '#edge/contract/requests.ts';
import { registerRejectedRoute } from './rejected.ts';
import { exportAnswer, exportContent, type ExportFormat, readExportFormat } from './usage-export.ts';
import { idFilter, requireOrder, searchOf, searchQuery } from './usage-filter.ts';
import { keysSeen, type OwnKeys, registerUsageSummaryRoute } from './usage-summary.ts';

export { registerQuarantineRoutes } from './quarantine.ts';
export { registerReconcileRoutes } from './reconcile.ts';
export { registerStatementRoutes } from './statements.ts';
export { registerUsageContentRoutes } from './usage-content.ts';
export { keysSeen, type OwnKeys } from './usage-summary.ts';

export interface UsageRoutesParts {
  readonly guards: Guards;
  readonly keys: OwnKeys & Pick<Keys, 'namesOf'>;
  readonly accounts: Pick<Accounts, 'projectNames'>;
  readonly catalog: Pick<Catalog, 'priceVersion'>;
  readonly history: History;
  readonly clock: Clock;
}

/**
 * Registers the routes for usage of the caller's organization. An inference key sees its own requests, a member the
 * requests of the member's keys: a filter by another key returns an empty list, and another key's request is not found.
 */
export function registerUsageRoutes(app: ApiApp, parts: UsageRoutesParts): void {
  registerRequestRoutes(app, parts);
  registerRejectedRoute(app, parts);
  registerUsageSummaryRoute(app, parts);
}

function priceOf(price: PriceVersion | null) {
  if (price === null) return null;
  const shown = (value: bigint): string => formatDecimal(value, MICRO_DIGITS);
  return {
    input_per_million: shown(price.inputPerMTokMicroUsd),
    cached_input_per_million: shown(price.cachedInputPerMTokMicroUsd),
    output_per_million: shown(price.outputPerMTokMicroUsd),
  };
}

function toDetail({ record, facts }: DetailedRecord, price: PriceVersion | null): UsageRequestDetailAnswer {
  const own = { ...toBody(record), price_version: record.priceVersionId, price: priceOf(price) };
  if (facts === null) return { ...own, timeline: null, limits_remaining: null, replica: null };
  const { remaining, replica } = facts;
  const timeline = timelineOf(record, facts);
  return {
    ...own,
    timeline: {
      admitted: timeline.admittedMs,
      queued: timeline.queuedMs,
      engine_cold_start: timeline.coldStartMs,
      first_byte: timeline.firstByteMs,
      last_byte: timeline.lastByteMs,
      committed: timeline.committedMs,
    },
    limits_remaining: {
      requests_per_minute: remaining.requests,
      tokens_per_minute: remaining.tokens,
      monthly_token_limit: remaining.monthTokens,
      max_concurrency: remaining.concurrency,
    },
    replica: replica === null ? null : { id: replica.id, age_seconds: replica.ageSeconds },
  };
}

function toBody(record: UsageRecord): UsageRequestAnswer {
  return {
    id: record.id,
    object: 'usage.request',
    created_at: toUnixSeconds(uuidTimeMs(record.id)),
    key_id: formatId('key', record.keyId),
    project_id: formatId('proj', record.projectId),
    model: record.model,
    fallback_for: record.fallbackFor ?? null,
    endpoint: record.endpoint,
    stream: record.stream,
    service_tier: record.serviceTier,
    status: record.status,
    outcome: record.outcome,
    reason: record.reason,
    cache_hit: record.cacheHit,
    input_tokens: record.usage.inputTokens,
    input_cached_tokens: record.usage.cachedTokens,
    input_cache_write_tokens: record.usage.cacheWriteTokens,
    output_tokens: record.usage.outputTokens,
    output_reasoning_tokens: record.usage.reasoningTokens,
    usage_source: record.usageSource,
    cost: formatUsd(record.costPicoUsd),
    written_off: formatUsd(record.writtenOffPicoUsd),
    currency: 'USD',
    timings_ms: { queued: record.queuedMs, first_byte: record.firstByteMs, total: record.totalMs },
    client_request_id: record.clientRequestId,
    end_user: record.namedUser ?? null,
  };
}

const csvHeading = [
  'id',
  'created_at',
  'key_id',
  'project_id',
  'model',
  'endpoint',
  'stream',
  'service_tier',
  'status',
  'outcome',
  'reason',
  'cache_hit',
  'input_tokens',
  'input_cached_tokens',
  'output_tokens',
  'output_reasoning_tokens',
  'usage_source',
  'cost',
  'written_off',
  'currency',
  'queued_ms',
  'first_byte_ms',
  'total_ms',
  'client_request_id',
  'fallback_for',
  'input_cache_write_tokens',
  'end_user',
  'time',
  'key_name',
  'project_name',
];

/** Names by id, for readers of CSV. */
interface Names {
  readonly keys: ReadonlyMap<string, string>;
  readonly projects: ReadonlyMap<string, string>;
}

/** Returns how a request becomes a line of CSV. */
function toLineWith({ keys, projects }: Names) {
  return ({ timings_ms: { queued, first_byte, total }, ...request }: UsageRequestAnswer) => ({
    ...request,
    queued_ms: queued,
    first_byte_ms: first_byte,
    total_ms: total,
    time: new Date(request.created_at * 1000).toISOString(),
    key_name: keys.get(request.key_id) ?? null,
    project_name: projects.get(request.project_id) ?? null,
  });
}

const shownIds = (prefix: IdPrefix, names: ReadonlyMap<string, string>): ReadonlyMap<string, string> =>
  new Map([...names].map(([id, name]) => [formatId(prefix, id), name]));

/** Reads the names that CSV shows; other formats show none. */
async function namesFor(format: ExportFormat, organizationId: string, parts: UsageRoutesParts): Promise<Names> {
  if (format !== 'csv') return { keys: new Map(), projects: new Map() };
  const [keys, projects] = await Promise.all([
    parts.keys.namesOf(organizationId),
    parts.accounts.projectNames(organizationId),
  ]);
  return { keys: shownIds('key', keys), projects: shownIds('proj', projects) };
}

async function* exportPages(history: History, filter: RecordFilter): AsyncGenerator<UsageRequestAnswer[]> {
  for await (const records of history.readAllRecords(filter)) yield records.map(toBody);
}

async function* noPages(): AsyncGenerator<UsageRequestAnswer[]> {}

const listRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/usage/requests',
    security: bearerSecurity,
    middleware: guards.may('usage.read', 'own'),
    request: {
      query: z.strictObject({
        from: timeBound('Admitted at or after this date (midnight UTC) or RFC 3339 time'),
        to: timeBound('Admitted before this date or time'),
        key_id: idFilter('key', 'an API key'),
        model: longText(512).optional().openapi({ description: 'Only requests of this model, by catalog id' }),
        project_id: idFilter('proj', 'a project'),
        outcome: z.enum(outcomes).optional().openapi({ description: 'Only requests with this outcome' }),
        ...searchQuery,
        ...organizationQuery,
        ...listQuery,
      }),
    },
    responses: {
      200: {
        description: 'One page, or the whole export',
        content: { ...jsonAnswer(usageRequestListSchema, '').content, ...exportContent },
      },
    },
  });

const requestParams = z.object({ id: z.string().openapi({ description: 'Id of the request, its `x-request-id`' }) });

const readRoute = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/usage/requests/{id}',
    security: bearerSecurity,
    middleware: guards.may('usage.read', 'own'),
    request: { params: requestParams, query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(usageRequestDetailSchema, 'The request') },
  });

const noRecords: RecordPage = { records: [], more: false };

type ListQuery = z.infer<ReturnType<typeof listRoute>['request']['query']>;

/**
 * Returns null if the caller filters by a key that it does not see: the list is empty, as for a key that does not
 * exist.
 */
function toFilter(query: ListQuery, organizationId: string, own: readonly string[] | null): RecordFilter | null {
  requireOrder(query);
  const before = readCursor(query.cursor, (position) => (isUuid(position) ? position : null));
  const asked = query.key_id ?? null;
  if (own !== null && asked !== null && !own.includes(asked)) return null;
  return {
    organizationId,
    keyId: asked,
    ...(own !== null && asked === null && { ofKeys: own }),
    projectId: query.project_id ?? null,
    model: query.model ?? null,
    outcome: query.outcome ?? null,
    ...searchOf(query),
    fromMs: query.from ?? null,
    toMs: query.to ?? null,
    before,
    limit: query.limit,
  };
}

function registerRequestRoutes(app: ApiApp, parts: UsageRoutesParts): void {
  const { guards, keys, catalog, history } = parts;
  app.openapi(listRoute(guards), async (context) => {
    const format = readExportFormat(context);
    const organizationId = await guards.organizationOf(context);
    const filter = toFilter(context.req.valid('query'), organizationId, await keysSeen(keys, context));
    if (format !== null) {
      const pages = filter === null ? noPages() : exportPages(history, filter);
      const toLine = toLineWith(await namesFor(format, organizationId, parts));
      const exported = await exportAnswer({ pages, toLine, heading: csvHeading }, format);
      return context.newResponse(exported.body, 200, Object.fromEntries(exported.headers));
    }
    const { records, more } = filter === null ? noRecords : await history.listRecords(filter);
    return context.json(toListPage(records.map(toBody), more ? (records.at(-1)?.id ?? null) : null), 200);
  });

  app.openapi(readRoute(guards), async (context) => {
    const organizationId = await guards.organizationOf(context);
    const id = context.req.valid('param').id.toLowerCase();
    const own = await keysSeen(keys, context);
    const found = isUuid(id) ? await history.readRecord({ organizationId, keyId: null, id }) : null;
    if (found === null || own?.includes(found.record.keyId) === false)
      throw new AppError('not_found', { message: 'There is no record of this request.' });
    return context.json(toDetail(found, await catalog.priceVersion(found.record.priceVersionId)), 200);
  });
}
