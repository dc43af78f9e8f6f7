import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { Accounts, Project } from '#core/accounts/accounts.ts';
import {
  type ApiApp,
  bearerSecurity,
  cursorListQuery,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  numberedLimit,
  onceHeaders,
  organizationQuery,
  readAfter,
  readNumbered,
  requireId,
  toCursorPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { idText, nameText } from '#edge/contract/fields.ts';
import {
  type OrganizationProjectAnswer,
  organizationProjectListSchema,
  organizationProjectSchema,
} from '#edge/contract/organization-projects.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';

/** Projects in the form of OpenAI's organization API. */

export interface OrganizationProjectParts {
  readonly guards: Guards;
  readonly accounts: Pick<Accounts, 'findProject' | 'listProjects' | 'createProject' | 'patchProject'>;
}

const path = '/v1/organization/projects';
const query = z.strictObject(organizationQuery);
const params = z.object({ id: idText('proj') });
const newest = { by: 'created_at', descending: true } as const;

const listQuery = z.strictObject({
  ...cursorListQuery,
  include_archived: z
    .enum(['true', 'false'])
    .default('false')
    .openapi({ description: 'true: archived projects are listed, too' }),
});

const createSchema = z.strictObject({ name: nameText(100) }).openapi('CreateOrganizationProject');
const updateSchema = z.strictObject({ name: nameText(100).optional() }).openapi('UpdateOrganizationProject');

function toAnswer(project: Project): OrganizationProjectAnswer {
  return {
    object: 'organization.project',
    id: formatId('proj', project.id),
    name: project.name,
    status: project.archived ? 'archived' : 'active',
    created_at: toUnixSeconds(project.createdAtMs),
    archived_at: null,
  };
}

function found(project: Project | null): Project {
  if (project === null) throw notFound('proj');
  return project;
}

export function registerOrganizationProjectRoutes(app: ApiApp, parts: OrganizationProjectParts): void {
  registerCollection(app, parts);
  registerOne(app, parts);
}

function registerCollection(app: ApiApp, { guards, accounts }: OrganizationProjectParts): void {
  const list = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('projects')],
    request: { query: listQuery },
    responses: {
      200: jsonAnswer(organizationProjectListSchema, 'A page of projects'),
    },
  });
  app.openapi(list, async (context) => {
    const { limit, after, include_archived: all } = context.req.valid('query');
    const organizationId = await guards.organizationOf(context);
    const page = await readNumbered(
      async (number) => {
        const paging = { page: number, limit: numberedLimit, sort: newest };
        const { projects, total } = await accounts.listProjects({ organizationId, ownId: null }, paging);
        return { items: projects, total };
      },
      { after: readAfter('proj', after), limit, isWanted: ({ archived }) => all === 'true' || !archived },
    );
    return context.json(toCursorPage(page.items.map(toAnswer), page.more), 200);
  });
  const create = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [guards.may('projects'), guards.smallJsonBody, guards.once('proj', { status: 200 })],
    request: { query, headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: { 200: jsonAnswer(organizationProjectSchema, 'The project') },
  });
  app.openapi(create, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const { name } = context.req.valid('json');
    const input = { organizationId, name, description: '', visibility: 'private' } as const;
    return context.json(toAnswer(await accounts.createProject(input, authorOf(context))), 200);
  });
}

function registerOne(app: ApiApp, { guards, accounts }: OrganizationProjectParts): void {
  const shared = { security: bearerSecurity };
  const refOf = async (context: HttpContext, id: string) => ({
    organizationId: await guards.organizationOf(context),
    projectId: requireId('proj', id),
  });
  const get = createRoute({
    method: 'get',
    path: `${path}/{id}`,
    ...shared,
    middleware: [guards.may('projects')],
    request: { params, query },
    responses: { 200: jsonAnswer(organizationProjectSchema, 'The project') },
  });
  app.openapi(get, async (context) => {
    const { organizationId, projectId } = await refOf(context, context.req.valid('param').id);
    return context.json(toAnswer(found(await accounts.findProject(organizationId, projectId))), 200);
  });
  const update = createRoute({
    method: 'post',
    path: `${path}/{id}`,
    ...shared,
    middleware: [guards.may('projects'), guards.smallJsonBody],
    request: { params, query, body: jsonRequest(updateSchema) },
    responses: { 200: jsonAnswer(organizationProjectSchema, 'The project') },
  });
  app.openapi(update, async (context) => {
    const ref = await refOf(context, context.req.valid('param').id);
    const { name } = context.req.valid('json');
    return context.json(toAnswer(found(await accounts.patchProject(ref, { name }, authorOf(context)))), 200);
  });
  const archive = createRoute({
    method: 'post',
    path: `${path}/{id}/archive`,
    ...shared,
    middleware: [guards.may('projects')],
    request: { params, query },
    responses: { 200: jsonAnswer(organizationProjectSchema, 'The archived project') },
  });
  app.openapi(archive, async (context) => {
    const ref = await refOf(context, context.req.valid('param').id);
    return context.json(toAnswer(found(await accounts.patchProject(ref, { archived: true }, authorOf(context)))), 200);
  });
}
