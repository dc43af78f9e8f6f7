import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import {
  type Accounts,
  isProjectSeen,
  type Project,
  type ProjectPatch,
  type ProjectRef,
  projectSorts,
  type ProjectView,
} from '#core/accounts/accounts.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  longText,
  noFields,
  notFound,
  onceHeaders,
  organizationQuery,
  pageQuery,
  requireId,
  someFields,
  sortQuery,
  toPage,
} from '#edge/api/shared/shared.ts';
import { idText, nameText } from '#edge/contract/fields.ts';
import { type ProjectAnswer, projectPageSchema, projectSchema } from '#edge/contract/projects.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';

/** Projects in the shape of the generic API: numbered pages, ISO times, errors with details. */

export interface ProjectRoutesParts {
  readonly guards: Guards;
  readonly accounts: Accounts;
}

const { visibility } = projectSchema.shape;

const createSchema = z
  .strictObject({
    name: nameText(100),
    description: longText(1000).default(''),
    visibility: visibility.default('private'),
  })
  .openapi('CreateProject');

const patchFields = {
  name: nameText(100).optional(),
  description: longText(1000).optional(),
  visibility: visibility.optional(),
  archived: z.boolean().optional().openapi({ description: 'true archives the project, false unarchives it' }),
};

const patchSchema = z.strictObject(patchFields).openapi('PatchProject');

const putSchema = z.looseObject(patchFields).refine(someFields, noFields).openapi('PutProject');

const query = z.strictObject(organizationQuery);

const idParams = z.object({ id: idText('proj') });

function toAnswer(project: Project): ProjectAnswer {
  return {
    id: formatId('proj', project.id),
    name: project.name,
    description: project.description,
    visibility: project.visibility,
    archived: project.archived,
    created_at: new Date(project.createdAtMs).toISOString(),
  };
}

async function refOf(guards: Guards, context: HttpContext, id: string): Promise<ProjectRef> {
  return { organizationId: await guards.organizationOf(context), projectId: requireId('proj', id) };
}

/** Returns which projects of an organization the caller sees. */
async function viewOf(guards: Guards, context: HttpContext): Promise<ProjectView> {
  const organizationId = await guards.organizationOf(context);
  return { organizationId, ownId: context.get('extent') === 'own' ? context.get('caller').project.id : null };
}

function found(project: Project | null): Project {
  if (project === null) throw notFound('proj');
  return project;
}

/** Registers the same routes at both prefixes, both of which the generic API has had from its beginning. */
export function registerProjectRoutes(app: ApiApp, parts: ProjectRoutesParts): void {
  for (const prefix of ['/v1', '/api/v1'] as const) {
    registerCollection(app, parts, `${prefix}/projects`);
    registerReading(app, parts, `${prefix}/projects`);
    registerChanges(app, parts, `${prefix}/projects`);
  }
}

function registerCollection(app: ApiApp, { guards, accounts }: ProjectRoutesParts, path: string): void {
  const list = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('projects.read', 'own')],
    request: { query: z.strictObject({ ...pageQuery, sort: sortQuery(projectSorts), ...organizationQuery }) },
    responses: { 200: jsonAnswer(projectPageSchema, 'A page of projects') },
  });
  app.openapi(list, async (context) => {
    const asked = context.req.valid('query');
    const found = await accounts.listProjects(await viewOf(guards, context), asked);
    return context.json(toPage(found.projects.map(toAnswer), asked, found.total), 200);
  });
  const create = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [guards.may('projects'), guards.smallJsonBody, guards.once('proj', { status: 201 })],
    request: { query, headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(projectSchema, 'The project') },
  });
  app.openapi(create, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const project = await accounts.createProject({ organizationId, ...context.req.valid('json') }, authorOf(context));
    context.header('location', `${path}/${formatId('proj', project.id)}`);
    return context.json(toAnswer(project), 201);
  });
}

function registerReading(app: ApiApp, { guards, accounts }: ProjectRoutesParts, path: string): void {
  const get = createRoute({
    method: 'get',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('projects.read', 'own')],
    request: { params: idParams, query },
    responses: { 200: jsonAnswer(projectSchema, 'The project') },
  });
  app.openapi(get, async (context) => {
    const view = await viewOf(guards, context);
    const project = await accounts.findProject(view.organizationId, requireId('proj', context.req.valid('param').id));
    return context.json(toAnswer(found(project !== null && isProjectSeen(project, view) ? project : null)), 200);
  });
}

function registerChanges(app: ApiApp, { guards, accounts }: ProjectRoutesParts, path: string): void {
  const patch = createRoute({
    method: 'patch',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('projects'), guards.smallJsonBody],
    request: { params: idParams, query, body: jsonRequest(patchSchema) },
    responses: { 200: jsonAnswer(projectSchema, 'The project') },
  });
  app.openapi(patch, async (context) => {
    const ref = await refOf(guards, context, context.req.valid('param').id);
    const project = await accounts.patchProject(ref, context.req.valid('json'), authorOf(context));
    return context.json(toAnswer(found(project)), 200);
  });
  const put = createRoute({
    method: 'put',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('projects'), guards.smallJsonBody],
    request: { params: idParams, query, body: jsonRequest(putSchema) },
    responses: { 200: jsonAnswer(projectSchema, 'The project') },
  });
  app.openapi(put, async (context) => {
    const ref = await refOf(guards, context, context.req.valid('param').id);
    const { name, description, visibility: seenBy, archived } = context.req.valid('json');
    const patch: ProjectPatch = { name, description, visibility: seenBy, archived };
    return context.json(toAnswer(found(await accounts.patchProject(ref, patch, authorOf(context)))), 200);
  });
  const archive = createRoute({
    method: 'post',
    path: `${path}/{id}/archive`,
    security: bearerSecurity,
    middleware: [guards.may('projects')],
    request: { params: idParams, query },
    responses: { 200: jsonAnswer(projectSchema, 'The archived project') },
  });
  app.openapi(archive, async (context) => {
    const ref = await refOf(guards, context, context.req.valid('param').id);
    const project = await accounts.patchProject(ref, { archived: true }, authorOf(context));
    return context.json(toAnswer(found(project)), 200);
  });
}
