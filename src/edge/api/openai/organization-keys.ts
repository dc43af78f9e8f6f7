import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatId } from '#base/id.ts';
import type { Accounts, Scope, ServiceAccount, User } from '#core/accounts/accounts.ts';
import { defaultKeyToggles, type KeyRecord, type Keys, keyStatus } from '#core/keys/keys.ts';
import { isConfined, type KeyAccounts, projectOf as projectOfNewKey, userOf } from '#edge/api/keys/keys.ts';
import {
  anotherSecret,
  type ApiApp,
  bearerSecurity,
  creationOrder,
  cursorListQuery,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  organizationQuery,
  readAfter,
  requireId,
  toCursorPage,
  toUnixSeconds,
  toUnixSecondsOrNull,
} from '#edge/api/shared/shared.ts';
import { idText, nameText } from '#edge/contract/fields.ts';
import { confinedField } from '#edge/contract/keys.ts';
import {
  type AdminKeyAnswer,
  adminKeyListSchema,
  adminKeySchema,
  createdAdminKeySchema,
  deletedKeySchema,
  type OwnerAnswer,
  type ProjectKeyAnswer,
  projectKeyListSchema,
  projectKeySchema,
} from '#edge/contract/organization-keys.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';

/** Keys in the form of OpenAI's organization API: project keys are inference keys, admin keys are management keys. */

export interface OrganizationKeyParts {
  readonly guards: Guards;
  readonly keys: Pick<Keys, 'create' | 'get' | 'list' | 'revoke'>;
  readonly accounts: KeyAccounts & Pick<Accounts, 'users'>;
  readonly clock: Clock;
}

const adminListQuery = z.strictObject({ ...cursorListQuery, order: creationOrder });
const projectListQuery = z.strictObject({
  ...cursorListQuery,
  owner_project_access: z
    .enum(['active', 'inactive', 'any'])
    .default('active')
    .openapi({ description: 'Owners of active keys always have access, so `inactive` returns an empty list' }),
});

const secondsMax = 315_360_000;
const createAdminKey = z
  .strictObject({
    name: nameText(),
    expires_in_seconds: z
      .int()
      .min(1, 'must be 1 or more')
      .max(secondsMax, `must be at most ${secondsMax}: ten years`)
      .optional()
      .openapi({ description: 'Lifetime of the key in seconds; it does not expire if absent' }),
    confined: confinedField.default(defaultKeyToggles.confined),
  })
  .openapi('CreateOrganizationAdminApiKey');
const query = z.strictObject(organizationQuery);

function fieldsOf(key: KeyRecord) {
  return {
    id: formatId('key', key.id),
    name: key.name,
    redacted_value: `${key.prefix}…${key.last4}`,
    created_at: toUnixSeconds(key.createdAtMs),
    expires_at: toUnixSecondsOrNull(key.expiresAtMs),
    last_used_at: toUnixSecondsOrNull(key.lastUsedAtMs),
    confined: isConfined(key),
  };
}

/** Users and service accounts that keys act for, by UUID. Deleted ones are missing. */
interface Owners {
  readonly users: ReadonlyMap<string, User>;
  readonly accounts: ReadonlyMap<string, ServiceAccount>;
}

/** Looks up each id once, and returns the results by id. */
async function findEach<T>(
  ids: readonly (string | null)[],
  find: (id: string) => Promise<T | null>,
): Promise<ReadonlyMap<string, T>> {
  const unique = [...new Set(ids)].filter((id) => id !== null);
  const found = await Promise.all(unique.map(async (id) => [id, await find(id)] as const));
  return new Map(found.flatMap(([id, one]) => (one === null ? [] : [[id, one] as const])));
}

/** @param keys of one organization */
async function ownersOf({ accounts }: OrganizationKeyParts, keys: readonly KeyRecord[]): Promise<Owners> {
  const { organizationId = '' } = keys[0] ?? {};
  return {
    users: await findEach(
      keys.map(({ userId }) => userId),
      (id) => accounts.users.find({ organizationId, userId: null }, id),
    ),
    accounts: await findEach(
      keys.map(({ serviceAccountId }) => serviceAccountId),
      (id) => accounts.serviceAccounts.find({ organizationId, projectId: null, id }),
    ),
  };
}

const userOfKey = ({ userId }: KeyRecord, { users }: Owners): User | undefined =>
  userId === null ? undefined : users.get(userId);

const roleOf = (user: User, organizationId: string): string =>
  user.memberships.find((membership) => membership.organizationId === organizationId)?.role ?? 'member';

function ownerOfKey(key: KeyRecord, owners: Owners): OwnerAnswer {
  if (key.serviceAccountId !== null) {
    const account = owners.accounts.get(key.serviceAccountId);
    return {
      type: 'service_account',
      ...(account !== undefined && {
        service_account: {
          id: formatId('svc_acct', account.id),
          name: account.name,
          role: 'member',
          created_at: toUnixSeconds(account.createdAtMs),
        },
      }),
    };
  }
  const user = userOfKey(key, owners);
  const shown = user !== undefined && {
    user: {
      id: formatId('user', user.id),
      name: user.name,
      email: user.email,
      role: roleOf(user, key.organizationId),
      created_at: toUnixSeconds(user.createdAtMs),
    },
  };
  return { type: 'user', ...shown };
}

function toProjectKey(key: KeyRecord, owners: Owners): ProjectKeyAnswer {
  const owner = ownerOfKey(key, owners);
  return { object: 'organization.project.api_key', ...fieldsOf(key), owner, owner_project_access: 'active' };
}

function toAdminKey(key: KeyRecord, owners: Owners): AdminKeyAnswer {
  const user = userOfKey(key, owners);
  const known = user !== undefined && {
    name: user.name,
    role: roleOf(user, key.organizationId),
    created_at: toUnixSeconds(user.createdAtMs),
  };
  // Only users have management keys.
  const owner = { type: 'user', object: 'organization.user', id: formatId('user', key.userId ?? '') } as const;
  return { object: 'organization.admin_api_key', ...fieldsOf(key), owner: { ...owner, ...known } };
}

export function registerOrganizationKeyRoutes(app: ApiApp, parts: OrganizationKeyParts): void {
  registerLists(app, parts);
  registerProjectKey(app, parts);
  registerAdminKey(app, parts);
  registerAdminKeyCreation(app, parts);
}

interface Where {
  readonly scope: Scope;
  /** UUID; null is any project. */
  readonly projectId: string | null;
}

async function readKeys(
  { guards, keys }: OrganizationKeyParts,
  context: HttpContext,
  { limit, after, order }: { readonly limit: number; readonly after?: string | undefined; readonly order?: string },
  where: Where,
) {
  const before = readAfter('key', after);
  const organizationId = await guards.organizationOf(context);
  return keys.list({
    organizationId,
    limit,
    before,
    status: 'active',
    userId: null,
    isAscending: order === 'asc',
    ...where,
  });
}

/** Returns the active key of a path. @throws AppError not_found for a missing key, or another scope or project */
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
    security: bearerSecurity,
    middleware,
    request: { params: projectParams, query: projectListQuery },
    responses: { 200: jsonAnswer(projectKeyListSchema, 'A page of keys') },
  });
  app.openapi(ofProject, async (context) => {
    const projectId = await projectOf(parts, context, context.req.valid('param').id);
    const { owner_project_access: access, ...asked } = context.req.valid('query');
    if (access === 'inactive') return context.json(toCursorPage<ProjectKeyAnswer>([], false), 200);
    const page = await readKeys(parts, context, asked, { scope: 'inference', projectId });
    const owners = await ownersOf(parts, page.keys);
    const data = page.keys.map((key) => toProjectKey(key, owners));
    return context.json(toCursorPage(data, page.more), 200);
  });
  const ofAdmins = createRoute({
    method: 'get',
    path: '/v1/organization/admin_api_keys',
    security: bearerSecurity,
    middleware,
    request: { query: adminListQuery },
    responses: { 200: jsonAnswer(adminKeyListSchema, 'A page of keys') },
  });
  app.openapi(ofAdmins, async (context) => {
    const page = await readKeys(parts, context, context.req.valid('query'), { scope: 'management', projectId: null });
    const owners = await ownersOf(parts, page.keys);
    const data = page.keys.map((key) => toAdminKey(key, owners));
    return context.json(toCursorPage(data, page.more), 200);
  });
}

function registerProjectKey(app: ApiApp, parts: OrganizationKeyParts): void {
  const path = '/v1/organization/projects/{id}/api_keys/{key}';
  const shared = { path, security: bearerSecurity, middleware: [parts.guards.may('keys')] };
  const request = { params: projectKeyParams, query };
  const read = async (context: HttpContext, { id, key }: z.infer<typeof projectKeyParams>) =>
    readKey(parts, context, key, { scope: 'inference', projectId: await projectOf(parts, context, id) });
  const get = createRoute({
    method: 'get',
    ...shared,
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
    request,
    responses: { 200: jsonAnswer(deletedKeySchema(object, 'OrganizationProjectApiKeyDeleted'), 'Confirmation') },
  });
  app.openapi(remove, async (context) => {
    const { ref, key } = await read(context, context.req.valid('param'));
    await parts.keys.revoke(ref, authorOf(context));
    return context.json({ object, id: formatId('key', key.id), deleted: true as const }, 200);
  });
}

function registerAdminKeyCreation(app: ApiApp, parts: OrganizationKeyParts): void {
  const { guards, keys, accounts } = parts;
  const create = createRoute({
    method: 'post',
    path: '/v1/organization/admin_api_keys',
    security: bearerSecurity,
    middleware: [guards.may('keys'), guards.smallJsonBody, guards.once('key', anotherSecret)],
    request: { query, headers: onceHeaders, body: jsonRequest(createAdminKey) },
    responses: { 200: jsonAnswer(createdAdminKeySchema, 'The key, with its secret as `value`') },
  });
  app.openapi(create, async (context) => {
    const { name, expires_in_seconds: seconds, confined } = context.req.valid('json');
    const caller = context.get('caller');
    const organizationId = await guards.organizationOf(context);
    const project = await projectOfNewKey({}, caller, accounts, organizationId);
    const made = await keys.create(
      {
        organizationId,
        projectId: project.id,
        userId: await userOf(caller, accounts, organizationId),
        name,
        scope: 'management',
        expires: seconds === undefined ? null : { afterMs: seconds * 1000 },
        limits: {},
        toggles: { ...defaultKeyToggles, confined },
        models: null,
      },
      authorOf(context),
    );
    const shown = toAdminKey(made.key, await ownersOf(parts, [made.key]));
    return context.json({ ...shown, value: made.secret }, 200);
  });
}

function registerAdminKey(app: ApiApp, parts: OrganizationKeyParts): void {
  const path = '/v1/organization/admin_api_keys/{id}';
  const shared = { path, security: bearerSecurity, middleware: [parts.guards.may('keys')] };
  const request = { params: adminKeyParams, query };
  const where = { scope: 'management', projectId: null } as const;
  const get = createRoute({
    method: 'get',
    ...shared,
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
    request,
    responses: { 200: jsonAnswer(deletedKeySchema(object, 'OrganizationAdminApiKeyDeleted'), 'Confirmation') },
  });
  app.openapi(remove, async (context) => {
    const { ref, key } = await readKey(parts, context, context.req.valid('param').id, where);
    await parts.keys.revoke(ref, authorOf(context));
    return context.json({ object, id: formatId('key', key.id), deleted: true as const }, 200);
  });
}
