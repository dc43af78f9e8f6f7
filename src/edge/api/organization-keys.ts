import { createRoute, z } from '@hono/zod-openapi';
import { formatId, isUuid, parseId } from '#base/id.ts';
import type { Accounts, Scope, User } from '#core/accounts/accounts.ts';
import { type KeyRecord, type Keys, keyStatus } from '#core/keys/keys.ts';
import type { Clock } from '#base/clock.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';
import type { ApiApp } from './app.ts';
import type { Guards } from './auth.ts';
import {
  bearerSecurity,
  idText,
  jsonAnswer,
  notFound,
  organizationQuery,
  requireId,
  toUnixSeconds,
  toUnixSecondsOrNull,
  unixSeconds,
  unixSecondsOrNull,
} from './schemas.ts';

/** Keys as OpenAI's organization API shows them: those of a project are inference keys, admin keys those of management. */

export interface OrganizationKeyParts {
  readonly guards: Guards;
  readonly keys: Pick<Keys, 'get' | 'list' | 'revoke'>;
  readonly accounts: Pick<Accounts, 'findProject' | 'users'>;
  readonly clock: Clock;
}

const tags = ['Organization'];

const listQuery = z.strictObject({
  ...organizationQuery,
  limit: z
    .string()
    .regex(/^[1-9]\d{0,2}$/, 'must be a whole number of 1 or more')
    .transform(Number)
    .refine((limit) => limit <= 100, 'must be at most 100')
    .default(20)
    .openapi({ type: 'integer', minimum: 1, maximum: 100, default: 20 }),
  after: z.string().optional().openapi({ description: '`last_id` of the page before' }),
});
const query = z.strictObject(organizationQuery);

const ownerSchema = z.object({
  type: z.literal('user'),
  user: z
    .object({ id: idText('user'), name: z.string(), email: z.string(), role: z.string(), created_at: unixSeconds })
    .optional(),
});

const keyFields = {
  id: idText('key'),
  name: z.string(),
  redacted_value: z.string().openapi({ example: 'sk-hg-8a1b2c3d4e5f…x7Qd' }),
  created_at: unixSeconds,
  expires_at: unixSecondsOrNull,
  last_used_at: unixSecondsOrNull,
};

const projectKeySchema = z
  .object({
    object: z.literal('organization.project.api_key'),
    ...keyFields,
    owner: ownerSchema,
    owner_project_access: z.literal('active'),
  })
  .openapi('OrganizationProjectApiKey');

const adminKeySchema = z
  .object({
    object: z.literal('organization.admin_api_key'),
    ...keyFields,
    owner: z.object({
      type: z.literal('user'),
      object: z.literal('organization.user'),
      id: idText('user'),
      name: z.string().optional(),
      role: z.string().optional(),
      created_at: unixSeconds.optional(),
    }),
  })
  .openapi('OrganizationAdminApiKey');

function cursorPageOf<T extends z.ZodType>(item: T, name: string) {
  const id = z.string().nullable();
  return z
    .object({ object: z.literal('list'), data: z.array(item), first_id: id, last_id: id, has_more: z.boolean() })
    .openapi(name);
}

function toCursorPage<T extends { readonly id: string }>(data: T[], more: boolean) {
  const [first, last] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return { object: 'list' as const, data, first_id: first, last_id: last, has_more: more };
}

function fieldsOf(key: KeyRecord) {
  return {
    id: formatId('key', key.id),
    name: key.name,
    redacted_value: `${key.prefix}…${key.last4}`,
    created_at: toUnixSeconds(key.createdAtMs),
    expires_at: toUnixSecondsOrNull(key.expiresAtMs),
    last_used_at: toUnixSecondsOrNull(key.lastUsedAtMs),
  };
}

type Owners = ReadonlyMap<string, User | null>;

/** Whom keys act for, by their UUIDs; null for who has left meanwhile. */
async function ownersOf({ accounts }: OrganizationKeyParts, keys: readonly KeyRecord[]): Promise<Owners> {
  const ids = new Map(keys.map(({ userId, organizationId }) => [userId, organizationId]));
  const read = [...ids].map(async ([userId, organizationId]) => {
    return [userId, await accounts.users.find({ organizationId, userId: null }, userId)] as const;
  });
  return new Map(await Promise.all(read));
}

const roleOf = (user: User, organizationId: string): string =>
  user.memberships.find((membership) => membership.organizationId === organizationId)?.role ?? 'member';

function toProjectKey(key: KeyRecord, owners: Owners): z.infer<typeof projectKeySchema> {
  const user = owners.get(key.userId) ?? null;
  const shown = user !== null && {
    user: {
      id: formatId('user', user.id),
      name: user.name,
      email: user.email,
      role: roleOf(user, key.organizationId),
      created_at: toUnixSeconds(user.createdAtMs),
    },
  };
  const owner = { type: 'user' as const, ...shown };
  return { object: 'organization.project.api_key', ...fieldsOf(key), owner, owner_project_access: 'active' };
}

function toAdminKey(key: KeyRecord, owners: Owners): z.infer<typeof adminKeySchema> {
  const user = owners.get(key.userId) ?? null;
  const known = user !== null && {
    name: user.name,
    role: roleOf(user, key.organizationId),
    created_at: toUnixSeconds(user.createdAtMs),
  };
  const id = formatId('user', key.userId);
  return {
    object: 'organization.admin_api_key',
    ...fieldsOf(key),
    owner: { type: 'user', object: 'organization.user', id, ...known },
  };
}

export function registerOrganizationKeyRoutes(app: ApiApp, parts: OrganizationKeyParts): void {
  registerLists(app, parts);
  registerProjectKey(app, parts);
  registerAdminKey(app, parts);
}

interface Where {
  readonly scope: Scope;
  /** UUID; null: of any. */
  readonly projectId: string | null;
}

async function readKeys(
  { guards, keys }: OrganizationKeyParts,
  context: HttpContext,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  where: Where,
) {
  const before = after === undefined ? null : parseId('key', after);
  if (after !== undefined && (before === null || !isUuid(before))) {
    throw new ValidationError([{ field: 'after', message: 'must be the last_id of the page before' }]);
  }
  const organizationId = await guards.organizationOf(context);
  return keys.list({ organizationId, limit, before, status: 'active', userId: null, ...where });
}

/** The active key of a path. @throws AppError not_found for another scope or project, as for no key */
async function readKey({ guards, keys, clock }: OrganizationKeyParts, context: HttpContext, id: string, where: Where) {
  const ref = { organizationId: await guards.organizationOf(context), keyId: requireId('key', id) };
  const key = await keys.get(ref);
  const isThere =
    key !== null &&
    key.scope === where.scope &&
    (where.projectId === null || key.projectId === where.projectId) &&
    keyStatus(key, clock.now()) === 'active';
  if (!isThere) throw notFound('key');
  return { ref, key };
}

/** @throws AppError not_found */
async function projectOf({ guards, accounts }: OrganizationKeyParts, context: HttpContext, id: string) {
  const projectId = requireId('proj', id);
  if ((await accounts.findProject(await guards.organizationOf(context), projectId)) === null) throw notFound('proj');
  return projectId;
}

const projectParams = z.object({ id: idText('proj') });
const projectKeyParams = z.object({ id: idText('proj'), key: idText('key') });
const adminKeyParams = z.object({ id: idText('key') });

function registerLists(app: ApiApp, parts: OrganizationKeyParts): void {
  const middleware = [parts.guards.may('keys')];
  const ofProject = createRoute({
    method: 'get',
    path: '/v1/organization/projects/{id}/api_keys',
    tags,
    summary: 'List the active inference keys of a project, newest first',
    security: bearerSecurity,
    middleware,
    request: { params: projectParams, query: listQuery },
    responses: { 200: jsonAnswer(cursorPageOf(projectKeySchema, 'OrganizationProjectApiKeyList'), 'A page of keys') },
  });
  app.openapi(ofProject, async (context) => {
    const projectId = await projectOf(parts, context, context.req.valid('param').id);
    const page = await readKeys(parts, context, context.req.valid('query'), { scope: 'inference', projectId });
    const owners = await ownersOf(parts, page.keys);
    const data = page.keys.map((key) => toProjectKey(key, owners));
    return context.json(toCursorPage(data, page.more), 200);
  });
  const ofAdmins = createRoute({
    method: 'get',
    path: '/v1/organization/admin_api_keys',
    tags,
    summary: 'List the active management keys of the organization, newest first',
    security: bearerSecurity,
    middleware,
    request: { query: listQuery },
    responses: { 200: jsonAnswer(cursorPageOf(adminKeySchema, 'OrganizationAdminApiKeyList'), 'A page of keys') },
  });
  app.openapi(ofAdmins, async (context) => {
    const page = await readKeys(parts, context, context.req.valid('query'), { scope: 'management', projectId: null });
    const owners = await ownersOf(parts, page.keys);
    const data = page.keys.map((key) => toAdminKey(key, owners));
    return context.json(toCursorPage(data, page.more), 200);
  });
}

function deletedSchema<Name extends string>(object: Name, name: string) {
  return z.object({ object: z.literal(object), id: idText('key'), deleted: z.literal(true) }).openapi(name);
}

function registerProjectKey(app: ApiApp, parts: OrganizationKeyParts): void {
  const path = '/v1/organization/projects/{id}/api_keys/{key}';
  const shared = { path, tags, security: bearerSecurity, middleware: [parts.guards.may('keys')] };
  const request = { params: projectKeyParams, query };
  const read = async (context: HttpContext, { id, key }: z.infer<typeof projectKeyParams>) =>
    readKey(parts, context, key, { scope: 'inference', projectId: await projectOf(parts, context, id) });
  const get = createRoute({
    method: 'get',
    ...shared,
    summary: 'Read an inference key of a project',
    request,
    responses: { 200: jsonAnswer(projectKeySchema, 'The key') },
  });
  app.openapi(get, async (context) => {
    const { key } = await read(context, context.req.valid('param'));
    return context.json(toProjectKey(key, await ownersOf(parts, [key])), 200);
  });
  const object = 'organization.project.api_key.deleted';
  const remove = createRoute({
    method: 'delete',
    ...shared,
    summary: 'Revoke an inference key of a project',
    request,
    responses: { 200: jsonAnswer(deletedSchema(object, 'OrganizationProjectApiKeyDeleted'), 'It is revoked') },
  });
  app.openapi(remove, async (context) => {
    const { ref, key } = await read(context, context.req.valid('param'));
    await parts.keys.revoke(ref, authorOf(context));
    return context.json({ object, id: formatId('key', key.id), deleted: true as const }, 200);
  });
}

function registerAdminKey(app: ApiApp, parts: OrganizationKeyParts): void {
  const path = '/v1/organization/admin_api_keys/{id}';
  const shared = { path, tags, security: bearerSecurity, middleware: [parts.guards.may('keys')] };
  const request = { params: adminKeyParams, query };
  const where = { scope: 'management', projectId: null } as const;
  const get = createRoute({
    method: 'get',
    ...shared,
    summary: 'Read a management key',
    request,
    responses: { 200: jsonAnswer(adminKeySchema, 'The key') },
  });
  app.openapi(get, async (context) => {
    const { key } = await readKey(parts, context, context.req.valid('param').id, where);
    return context.json(toAdminKey(key, await ownersOf(parts, [key])), 200);
  });
  const object = 'organization.admin_api_key.deleted';
  const remove = createRoute({
    method: 'delete',
    ...shared,
    summary: 'Revoke a management key',
    request,
    responses: { 200: jsonAnswer(deletedSchema(object, 'OrganizationAdminApiKeyDeleted'), 'It is revoked') },
  });
  app.openapi(remove, async (context) => {
    const { ref, key } = await readKey(parts, context, context.req.valid('param').id, where);
    await parts.keys.revoke(ref, authorOf(context));
    return context.json({ object, id: formatId('key', key.id), deleted: true as const }, 200);
  });
}
