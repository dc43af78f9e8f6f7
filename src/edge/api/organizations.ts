import { createRoute, z } from '@hono/zod-openapi';
import { formatId, isUuid } from '#base/id.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import type { Organizations } from '#core/keys/keys.ts';
import { authorOf } from '#edge/http/http.ts';
import type { ApiApp } from './app.ts';
import type { Guards } from './auth.ts';
import { listOf, listQuery, readCursor, toListPage } from './list.ts';
import { bearerSecurity, idText, jsonAnswer, jsonRequest, nameText, toUnixSeconds, unixSeconds } from './schemas.ts';

export interface OrganizationRoutesParts {
  readonly guards: Guards;
  readonly accounts: Pick<Accounts, 'listOrganizations'>;
  readonly organizations: Pick<Organizations, 'open'>;
}

const tags = ['Organizations'];

const organizationFields = {
  id: idText('org'),
  object: z.literal('organization'),
  name: z.string(),
  created_at: unixSeconds,
};

const organizationSchema = z.object(organizationFields).openapi('Organization');

const createdSchema = z
  .object({
    ...organizationFields,
    management_key: z.string().openapi({ description: 'The secret of its management key, shown this once' }),
  })
  .openapi('CreatedOrganization');

const createSchema = z.strictObject({ name: nameText() }).openapi('CreateOrganization');

function toAnswer(organization: Organization): z.infer<typeof organizationSchema> {
  return {
    id: formatId('org', organization.id),
    object: 'organization',
    name: organization.name,
    created_at: toUnixSeconds(organization.createdAtMs),
  };
}

export function registerOrganizationRoutes(app: ApiApp, parts: OrganizationRoutesParts): void {
  registerCreation(app, parts);
  registerList(app, parts);
}

function registerCreation(app: ApiApp, { guards, organizations }: OrganizationRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: '/v1/organizations',
    tags,
    summary: 'Make an organization with a project, a wallet and a management key of its own',
    security: bearerSecurity,
    middleware: [guards.platformAdmin, guards.jsonBody],
    request: { body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(createdSchema, 'The organization and the secret of its key') },
  });
  app.openapi(route, async (context) => {
    const opened = await organizations.open(context.req.valid('json').name, authorOf(context));
    return context.json({ ...toAnswer(opened.organization), management_key: opened.secret }, 201);
  });
}

function registerList(app: ApiApp, { guards, accounts }: OrganizationRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/organizations',
    tags,
    summary: 'List the organizations, newest first',
    security: bearerSecurity,
    middleware: [guards.platformAdmin],
    request: { query: z.strictObject(listQuery) },
    responses: { 200: jsonAnswer(listOf(organizationSchema, 'OrganizationList'), 'Organizations') },
  });
  app.openapi(route, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const page = await accounts.listOrganizations(limit, before);
    const last = page.organizations.at(-1);
    const next = page.more && last !== undefined ? last.id : null;
    return context.json(toListPage(page.organizations.map(toAnswer), next), 200);
  });
}
