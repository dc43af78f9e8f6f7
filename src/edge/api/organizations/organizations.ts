import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { isUuid } from '#base/id.ts';
import { type Accounts, extentOf, type Organization, type OrganizationPatch } from '#core/accounts/accounts.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import type { Organizations } from '#core/keys/keys.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  listQuery,
  notFound,
  onceHeaders,
  readCursor,
  readModelList,
  toListPage,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { createdOrganizationSchema, organizationListSchema, organizationSchema } from '#edge/contract/organizations.ts';
import { authorOf, type Caller } from '#edge/http/http.ts';
import { createSchema, limitsOf, type PatchOrganization, patchSchema, toAnswer } from './organization-schemas.ts';

export { registerAuditRoutes } from './audit.ts';
export { registerInvitationRoutes } from './invitations.ts';
export { registerOrganizationReportRoute } from './organization-report.ts';
export { registerProjectRoutes } from './projects.ts';
export { registerResetLinkRoutes } from './reset-links.ts';
export { registerUserIdentityRoutes } from './user-identities.ts';
export { registerUserRoutes } from './users.ts';

export interface OrganizationRoutesParts {
  readonly guards: Guards;
  readonly accounts: Pick<Accounts, 'listOrganizations' | 'readOrganization'>;
  readonly organizations: Organizations;
  readonly catalog: Pick<Catalog, 'find'>;
}

const anotherKey = { instead: 'Its management key was returned only once: "POST /v1/keys" creates a new one.' };
const idParams = z.object({ id: idText('org') });

function found(organization: Organization | null): Organization {
  if (organization === null) throw notFound('org');
  return organization;
}

export function registerOrganizationRoutes(app: ApiApp, parts: OrganizationRoutesParts): void {
  registerCreation(app, parts);
  registerReading(app, parts);
  registerChange(app, parts);
  registerClosing(app, parts);
}

function registerCreation(app: ApiApp, { guards, organizations }: OrganizationRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: '/v1/organizations',
    security: bearerSecurity,
    middleware: [guards.may('organizations'), guards.jsonBody, guards.once('org', anotherKey)],
    request: { headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(createdOrganizationSchema, 'The organization and the secret of its key') },
  });
  app.openapi(route, async (context) => {
    const opened = await organizations.open(context.req.valid('json').name, authorOf(context));
    return context.json({ ...toAnswer(opened.organization), management_key: opened.secret }, 201);
  });
}

function registerReading(app: ApiApp, { guards, accounts }: OrganizationRoutesParts): void {
  const list = createRoute({
    method: 'get',
    path: '/v1/organizations',
    security: bearerSecurity,
    middleware: [guards.may('organizations')],
    request: { query: z.strictObject(listQuery) },
    responses: { 200: jsonAnswer(organizationListSchema, 'Organizations') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const page = await accounts.listOrganizations(limit, before);
    const last = page.organizations.at(-1);
    const next = page.more && last !== undefined ? last.id : null;
    return context.json(toListPage(page.organizations.map(toAnswer), next), 200);
  });
  const get = createRoute({
    method: 'get',
    path: '/v1/organizations/{id}',
    security: bearerSecurity,
    middleware: [guards.may('organization.read')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(organizationSchema, 'The organization') },
  });
  app.openapi(get, async (context) => {
    const id = await guards.organizationOf(context, context.req.valid('param').id);
    return context.json(toAnswer(found(await accounts.readOrganization(id))), 200);
  });
}

/** Fields of an organization that only platform administrators may change. */
const operatorsFields = ['status', 'default_limits', 'max_active_keys', 'models'] as const;

/** @throws AppError insufficient_scope for a field that the caller may not change */
function requireFields(caller: Caller, body: PatchOrganization): void {
  if (extentOf(caller, 'organizations') === 'any') return;
  const field = operatorsFields.find((name) => body[name] !== undefined);
  if (field === undefined) return;
  const message = `${field}: requires a management key of a platform administrator.`;
  throw new AppError('insufficient_scope', { message, param: field });
}

async function patchOf(
  { accounts, catalog }: OrganizationRoutesParts,
  id: string,
  body: PatchOrganization,
): Promise<OrganizationPatch> {
  const { name, status, default_limits: limits, max_active_keys: maxActiveKeys, models: names } = body;
  const defaultLimits = limits === undefined || limits === null ? limits : limitsOf(limits);
  const { wallet_alert_below: lowBalance, alert_emails: kinds, members_may_apply: membersMayApply } = body;
  const alertEmails = kinds === undefined || kinds === null ? kinds : [...new Set(kinds)];
  const patch = { name, status, defaultLimits, maxActiveKeys, lowBalance, alertEmails, membersMayApply };
  if (names === undefined || names === null) return { ...patch, models: names };
  const kept = (await accounts.readOrganization(id))?.models ?? null;
  const models = readModelList(catalog, names, { within: null, kept });
  return { ...patch, models };
}

function registerChange(app: ApiApp, parts: OrganizationRoutesParts): void {
  const { guards, organizations } = parts;
  const route = createRoute({
    method: 'patch',
    path: '/v1/organizations/{id}',
    security: bearerSecurity,
    middleware: [guards.may('organization.rename'), guards.jsonBody],
    request: { params: idParams, body: jsonRequest(patchSchema) },
    responses: { 200: jsonAnswer(organizationSchema, 'The organization') },
  });
  app.openapi(route, async (context) => {
    const id = await guards.organizationOf(context, context.req.valid('param').id);
    const body = context.req.valid('json');
    requireFields(context.get('caller'), body);
    const patch = await patchOf(parts, id, body);
    return context.json(toAnswer(found(await organizations.change(id, patch, authorOf(context)))), 200);
  });
}

function registerClosing(app: ApiApp, { guards, organizations }: OrganizationRoutesParts): void {
  const route = createRoute({
    method: 'delete',
    path: '/v1/organizations/{id}',
    security: bearerSecurity,
    middleware: [guards.may('organizations')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(organizationSchema, 'The closed organization') },
  });
  app.openapi(route, async (context) => {
    const id = await guards.organizationOf(context, context.req.valid('param').id);
    return context.json(toAnswer(found(await organizations.close(id, authorOf(context)))), 200);
  });
}
