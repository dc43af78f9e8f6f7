import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatId, isUuid } from '#base/id.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import {
  type KeyExpiry,
  type KeyPatch,
  type KeyRecord,
  type KeyRef,
  type Keys,
  keyStatus,
  type NewKeyFields,
} from '#core/keys/keys.ts';
import {
  anotherSecret,
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  organizationQuery,
  readCursor,
  readModelList,
  requireId,
  toListPage,
  toUnixSeconds,
  toUnixSecondsOrNull,
} from '#edge/api/shared/shared.ts';
import { createdKeySchema, type KeyAnswer, keyListSchema, keyReportSchema, keySchema } from '#edge/contract/keys.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';
import {
  type CreateKey,
  createKeySchema,
  isConfined,
  keyQuery,
  type PatchKey,
  patchKeySchema,
  reportSchema,
  rotateKeySchema,
} from './key-schemas.ts';
import { type KeyAccounts, ownerOf } from './key-owner.ts';

export { type KeyAccounts, projectOf, userOf } from './key-owner.ts';
export { registerImportRoute } from './imports.ts';
export { isConfined, someLimits } from './key-schemas.ts';
export { type OwnKeyRouteParts, registerOwnKeyRoute } from './own-key.ts';

export interface KeyRoutesParts {
  readonly guards: Guards;
  readonly keys: Keys;
  readonly accounts: KeyAccounts & Pick<Accounts, 'readOrganization'>;
  readonly catalog: Pick<Catalog, 'find'>;
  readonly clock: Clock;
  /** True if the gateway reads end users from a header. */
  readonly readsEndUsers: boolean;
}

const dayMs = 86_400_000;
const lifeMs = { '7d': 7 * dayMs, '30d': 30 * dayMs, '90d': 90 * dayMs, '1y': 365 * dayMs };

const query = z.strictObject(organizationQuery);
const idParams = z.object({ id: z.string().openapi({ example: 'key_019ab1c2d3e47f008a1b2c3d4e5f6071' }) });

/** Returns a key in the form of the API. */
function toAnswer(key: KeyRecord, nowMs: number): KeyAnswer {
  return {
    id: formatId('key', key.id),
    object: 'api_key',
    name: key.name,
    prefix: key.prefix,
    last4: key.last4,
    scope: key.scope,
    held: key.held,
    project_id: formatId('proj', key.projectId),
    user_id: key.userId === null ? null : formatId('user', key.userId),
    service_account_id: key.serviceAccountId === null ? null : formatId('svc_acct', key.serviceAccountId),
    status: keyStatus(key, nowMs),
    created_at: toUnixSeconds(key.createdAtMs),
    expires_at: toUnixSecondsOrNull(key.expiresAtMs),
    last_used_at: toUnixSecondsOrNull(key.lastUsedAtMs),
    revoked_at: toUnixSecondsOrNull(key.revokedAtMs),
    rotated_at: toUnixSecondsOrNull(key.rotatedAtMs),
    former_secrets_end_at: toUnixSecondsOrNull(formerEndMs(key, nowMs)),
    requests_per_minute: key.requestsPerMinute,
    max_concurrency: key.maxConcurrency,
    tokens_per_minute: key.tokensPerMinute,
    monthly_token_limit: key.monthlyTokenLimit,
    store_requests: key.storeRequests,
    cache_responses: key.cacheResponses,
    unserved_tools: key.unservedTools,
    end_user_from_header: key.endUserFromHeader,
    confined: isConfined(key),
    models: key.models === null ? null : [...key.models],
  };
}

/** @throws ValidationError */
function requireConfinable(isOfServiceAccount: boolean, confined: boolean | null | undefined): void {
  if (!isOfServiceAccount || confined !== false) return;
  throw new ValidationError([
    { field: 'confined', message: 'cannot be false: a key of a service account works only in its own project' },
  ]);
}

/** Returns when the last former secret ends; null if none works any more. */
function formerEndMs({ formerSecretsEndAtMs: endMs }: KeyRecord, nowMs: number): number | null {
  return endMs !== null && endMs > nowMs ? endMs : null;
}

function expiryOf(body: CreateKey, nowMs: number): KeyExpiry | null {
  if (body.expires_at !== undefined && body.expires_at !== null) {
    if (body.expiry !== undefined) {
      throw new ValidationError([
        { field: 'expires_at', message: 'cannot be combined with "expiry": send only one of them' },
      ]);
    }
    const atMs = body.expires_at * 1000;
    if (atMs > nowMs) return { atMs };
    throw new ValidationError([{ field: 'expires_at', message: 'must be in the future' }]);
  }
  const expiry = body.expiry ?? 'never';
  return expiry === 'never' ? null : { afterMs: lifeMs[expiry] };
}

/** Rejects a setting without effect: budgets of end users would limit nobody. @throws ValidationError */
function requireReadable({ readsEndUsers }: KeyRoutesParts, fromHeader: boolean | undefined): void {
  if (readsEndUsers || fromHeader !== true) return;
  const message = "needs HEADGATE_END_USER_HEADER in the gateway's settings, which names the header";
  throw new ValidationError([{ field: 'end_user_from_header', message }]);
}

function newKeyOf(body: CreateKey, nowMs: number): Omit<NewKeyFields, 'organizationId' | 'projectId' | 'models'> {
  return {
    name: body.name,
    scope: body.scope,
    expires: expiryOf(body, nowMs),
    limits: {
      requestsPerMinute: body.requests_per_minute,
      maxConcurrency: body.max_concurrency,
      tokensPerMinute: body.tokens_per_minute,
      monthlyTokenLimit: body.monthly_token_limit,
    },
    toggles: {
      storeRequests: body.store_requests,
      cacheResponses: body.cache_responses,
      unservedTools: body.unserved_tools,
      endUserFromHeader: body.end_user_from_header,
      confined: body.confined,
    },
  };
}

function patchOf(body: PatchKey): Omit<KeyPatch, 'models'> {
  return {
    name: body.name,
    requestsPerMinute: body.requests_per_minute,
    maxConcurrency: body.max_concurrency,
    tokensPerMinute: body.tokens_per_minute,
    monthlyTokenLimit: body.monthly_token_limit,
    storeRequests: body.store_requests,
    cacheResponses: body.cache_responses,
    unservedTools: body.unserved_tools,
    endUserFromHeader: body.end_user_from_header,
    confined: body.confined,
  };
}

async function refOf({ guards }: KeyRoutesParts, context: HttpContext, id: string): Promise<KeyRef> {
  return { organizationId: await guards.organizationOf(context), keyId: requireId('key', id) };
}

/** Returns the ids of a list of models, within the models that the organization may use. */
async function modelsOf(
  { accounts, catalog }: KeyRoutesParts,
  names: readonly string[],
  organizationId: string,
  kept: readonly string[] | null,
): Promise<readonly string[]> {
  const organization = await accounts.readOrganization(organizationId);
  return readModelList(catalog, names, { within: organization?.models ?? null, kept });
}

function found(key: KeyRecord | null): KeyRecord {
  if (key === null) throw notFound('key');
  return key;
}

export function registerKeyRoutes(app: ApiApp, parts: KeyRoutesParts): void {
  // Registered first: `/v1/keys/report` would otherwise be read as the key `report`.
  registerReport(app, parts);
  registerCreation(app, parts);
  registerReading(app, parts);
  registerChanges(app, parts);
  registerRotation(app, parts);
}

function registerCreation(app: ApiApp, parts: KeyRoutesParts): void {
  const { guards, keys, accounts, clock } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/keys',
    security: bearerSecurity,
    middleware: [guards.may('keys'), guards.jsonBody, guards.once('key', anotherSecret)],
    request: { query, headers: onceHeaders, body: jsonRequest(createKeySchema) },
    responses: { 201: jsonAnswer(createdKeySchema, 'The key and its secret') },
  });
  app.openapi(route, async (context) => {
    const body = context.req.valid('json');
    const caller = context.get('caller');
    const nowMs = clock.now();
    const organizationId = await guards.organizationOf(context, body.organization_id);
    requireConfinable(body.service_account_id !== undefined, body.confined);
    requireReadable(parts, body.end_user_from_header);
    const owner = await ownerOf(body, caller, accounts, organizationId);
    const models = body.models === null ? null : await modelsOf(parts, body.models, organizationId, null);
    const input = { ...newKeyOf(body, nowMs), ...owner, organizationId, models };
    const created = await keys.create(input, authorOf(context));
    return context.json({ ...toAnswer(created.key, nowMs), secret: created.secret }, 201);
  });
}

function registerReading(app: ApiApp, parts: KeyRoutesParts): void {
  const { guards, keys, clock } = parts;
  const list = createRoute({
    method: 'get',
    path: '/v1/keys',
    security: bearerSecurity,
    middleware: [guards.may('keys')],
    request: { query: keyQuery },
    responses: { 200: jsonAnswer(keyListSchema, 'Keys') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor, status, project_id: projectId, user_id: userId, ...of } = context.req.valid('query');
    const { service_account_id: accountId } = of;
    const page = await keys.list({
      organizationId: await guards.organizationOf(context),
      limit,
      before: readCursor(cursor, (position) => (isUuid(position) ? position : null)),
      status: status ?? null,
      projectId: projectId === undefined ? null : requireId('proj', projectId),
      userId: userId === undefined ? null : requireId('user', userId),
      serviceAccountId: accountId === undefined ? null : requireId('svc_acct', accountId),
    });
    const nowMs = clock.now();
    const data = page.keys.map((key) => toAnswer(key, nowMs));
    return context.json(toListPage(data, page.more ? (page.keys.at(-1)?.id ?? null) : null), 200);
  });
  const get = createRoute({
    method: 'get',
    path: '/v1/keys/{id}',
    security: bearerSecurity,
    middleware: [guards.may('keys')],
    request: { params: idParams, query },
    responses: { 200: jsonAnswer(keySchema, 'The key') },
  });
  app.openapi(get, async (context) => {
    const key = found(await keys.get(await refOf(parts, context, context.req.valid('param').id)));
    return context.json(toAnswer(key, clock.now()), 200);
  });
}

function registerChanges(app: ApiApp, parts: KeyRoutesParts): void {
  const { guards, keys, clock } = parts;
  const patch = createRoute({
    method: 'patch',
    path: '/v1/keys/{id}',
    security: bearerSecurity,
    middleware: [guards.may('keys'), guards.jsonBody],
    request: { params: idParams, query, body: jsonRequest(patchKeySchema) },
    responses: { 200: jsonAnswer(keySchema, 'The key') },
  });
  app.openapi(patch, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param').id);
    const body = context.req.valid('json');
    const before = found(await keys.get(ref));
    requireConfinable(before.serviceAccountId !== null, body.confined);
    if (!before.endUserFromHeader) requireReadable(parts, body.end_user_from_header);
    const { models: names } = body;
    const models =
      names === undefined || names === null ? names : await modelsOf(parts, names, ref.organizationId, before.models);
    const key = found(await keys.patch(ref, { ...patchOf(body), models }, authorOf(context)));
    return context.json(toAnswer(key, clock.now()), 200);
  });
  const revoke = createRoute({
    method: 'delete',
    path: '/v1/keys/{id}',
    security: bearerSecurity,
    middleware: [guards.may('keys')],
    request: { params: idParams, query },
    responses: { 200: jsonAnswer(keySchema, 'The revoked key') },
  });
  app.openapi(revoke, async (context) => {
    const key = found(await keys.revoke(await refOf(parts, context, context.req.valid('param').id), authorOf(context)));
    return context.json(toAnswer(key, clock.now()), 200);
  });
}

function registerRotation(app: ApiApp, parts: KeyRoutesParts): void {
  const { guards, keys, clock } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/keys/{id}/rotate',
    security: bearerSecurity,
    middleware: [guards.may('keys'), guards.jsonBody],
    request: { params: idParams, query, body: jsonRequest(rotateKeySchema) },
    responses: { 200: jsonAnswer(createdKeySchema, 'The key and its new secret') },
  });
  app.openapi(route, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param').id);
    const { grace_seconds: graceSeconds, last4 } = context.req.valid('json');
    const rotated = await keys.rotate(ref, { graceMs: graceSeconds * 1000, last4 }, authorOf(context));
    if (rotated === null) throw notFound('key');
    return context.json({ ...toAnswer(rotated.key, clock.now()), secret: rotated.secret }, 200);
  });
}

function registerReport(app: ApiApp, { guards, keys }: KeyRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: '/v1/keys/report',
    middleware: [guards.jsonBody],
    request: { body: jsonRequest(reportSchema) },
    responses: { 200: jsonAnswer(keyReportSchema, 'Result of the report') },
  });
  app.openapi(route, async (context) => {
    const revoked = await keys.report(context.req.valid('json').secret, context.get('requestId'));
    return context.json({ object: 'key_report' as const, revoked }, 200);
  });
  app.all('/v1/keys/report', (context) => context.notFound());
}
