import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import {
  type Accounts,
  rolesGivenBy,
  type User,
  type UserEditor,
  userSorts,
  type UserView,
} from '#core/accounts/accounts.ts';
import { serviceAccountIdOf, userIdOf } from '#core/audit/audit.ts';
import type { Members } from '#core/keys/keys.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  organizationQuery,
  pageQuery,
  requireId,
  sortQuery,
  toPage,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { type OrganizationRole, userPageSchema, userSchema } from '#edge/contract/users.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';
import { createSchema, putSchema, toAnswer } from './user-schemas.ts';

/** Users in the shape of the generic API: numbered pages, ISO times, errors with details. */

export interface UserRoutesParts {
  readonly guards: Guards;
  readonly accounts: { readonly users: Pick<Accounts['users'], 'list' | 'find' | 'create' | 'change'> };
  readonly members: Members;
}

const query = z.strictObject(organizationQuery);
const idParams = z.object({ id: idText('user') });

/**
 * Returns the users that the caller sees: an inference key its own user, a management key all users of its
 * organization, a platform administrator's key all users.
 */
async function viewOf(guards: Guards, context: HttpContext): Promise<UserView> {
  const { actor } = context.get('caller');
  const seesAll = context.get('extent') === 'any' && context.req.query('organization_id') === undefined;
  if (seesAll) return { organizationId: null, userId: null };
  const organizationId = await guards.organizationOf(context);
  if (context.get('extent') !== 'own') return { organizationId, userId: null };
  // A caller for a service account sees nobody: no user has the account's id.
  const userId = userIdOf(actor) ?? serviceAccountIdOf(actor);
  if (userId === null) throw new AppError('insufficient_scope');
  return { organizationId, userId };
}

export async function editorOf(guards: Guards, context: HttpContext): Promise<UserEditor> {
  const caller = context.get('caller');
  return {
    ...(await viewOf(guards, context)),
    selfId: userIdOf(caller.actor),
    gives: rolesGivenBy(caller),
    isPlatform: context.get('extent') === 'any',
    ownOrganizationId: caller.organizationId,
    author: authorOf(context),
  };
}

/** @throws AppError insufficient_scope */
export function requireGiven(context: HttpContext, role: OrganizationRole): void {
  if (rolesGivenBy(context.get('caller')).includes(role)) return;
  const message = `Only an owner of the organization or a platform administrator can assign the role "${role}".`;
  throw new AppError('insufficient_scope', { message, param: 'role' });
}

function found(user: User | null): User {
  if (user === null) throw notFound('user');
  return user;
}

/** Registers the same routes at both prefixes. */
export function registerUserRoutes(app: ApiApp, parts: UserRoutesParts): void {
  for (const prefix of ['/v1', '/api/v1'] as const) {
    registerReading(app, parts, `${prefix}/users`);
    registerCreation(app, parts, `${prefix}/users`);
    registerChange(app, parts, `${prefix}/users`);
    registerRemoval(app, parts, `${prefix}/users`);
  }
}

function registerReading(app: ApiApp, { guards, accounts: { users } }: UserRoutesParts, path: string): void {
  const list = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('users', 'own')],
    request: { query: z.strictObject({ ...pageQuery, sort: sortQuery(userSorts), ...organizationQuery }) },
    responses: { 200: jsonAnswer(userPageSchema, 'A page of users') },
  });
  app.openapi(list, async (context) => {
    const asked = context.req.valid('query');
    const page = await users.list(await viewOf(guards, context), asked);
    return context.json(toPage(page.users.map(toAnswer), asked, page.total), 200);
  });
  const get = createRoute({
    method: 'get',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('users', 'own')],
    request: { params: idParams, query },
    responses: { 200: jsonAnswer(userSchema, 'The user') },
  });
  app.openapi(get, async (context) => {
    const view = await viewOf(guards, context);
    const user = await users.find(view, requireId('user', context.req.valid('param').id));
    return context.json(toAnswer(found(user)), 200);
  });
}

function registerCreation(app: ApiApp, { guards, accounts: { users } }: UserRoutesParts, path: string): void {
  const route = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [guards.may('users.manage'), guards.smallJsonBody, guards.once('user', { status: 201 })],
    request: { query, headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(userSchema, 'The user') },
  });
  app.openapi(route, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const body = context.req.valid('json');
    requireGiven(context, body.role);
    const user = await users.create({ organizationId, ...body }, authorOf(context));
    context.header('location', `${path}/${formatId('user', user.id)}`);
    return context.json(toAnswer(user), 201);
  });
}

function registerChange(app: ApiApp, { guards, accounts: { users } }: UserRoutesParts, path: string): void {
  const route = createRoute({
    method: 'put',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('users', 'own'), guards.smallJsonBody],
    request: { params: idParams, query, body: jsonRequest(putSchema) },
    responses: { 200: jsonAnswer(userSchema, 'The user') },
  });
  app.openapi(route, async (context) => {
    const editor = await editorOf(guards, context);
    const id = requireId('user', context.req.valid('param').id);
    const { name, email, password, role, current_password: currentPassword } = context.req.valid('json');
    const user = await users.change(id, { name, email, password, role, currentPassword }, editor);
    return context.json(toAnswer(found(user)), 200);
  });
}

function registerRemoval(app: ApiApp, { guards, members }: UserRoutesParts, path: string): void {
  const route = createRoute({
    method: 'delete',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('users.manage')],
    request: { params: idParams, query },
    responses: { 204: { description: 'The user was removed' } },
  });
  app.openapi(route, async (context) => {
    const editor = await editorOf(guards, context);
    const id = requireId('user', context.req.valid('param').id);
    if (!(await members.remove(id, editor))) throw notFound('user');
    return context.body(null, 204);
  });
}
