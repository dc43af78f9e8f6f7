import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { Accounts, ServiceAccount } from '#core/accounts/accounts.ts';
import { type CreatedKey, type KeyExpiry, keyOfAccount, type Keys, type ServiceAccountSetup } from '#core/keys/keys.ts';
import {
  anotherSecret,
  type ApiApp,
  bearerSecurity,
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
import {
  createdServiceAccountSchema,
  deletedObject,
  deletedServiceAccountSchema,
  type ServiceAccountAnswer,
  serviceAccountKeySchema,
  serviceAccountListSchema,
  serviceAccountSchema,
} from '#edge/contract/service-accounts.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';

/** Service accounts of a project, in the form of OpenAI's organization API. */

export interface ServiceAccountParts {
  readonly guards: Guards;
  readonly accounts: Pick<Accounts, 'findProject' | 'serviceAccounts'>;
  readonly serviceAccountSetup: ServiceAccountSetup;
  readonly keys: Pick<Keys, 'create'>;
}

const anotherAccountKey = {
  instead: 'The secret of its key was returned only once: "POST …/{service_account_id}/api_keys" creates another key.',
};
const collection = '/v1/organization/projects/{id}/service_accounts';
const one = `${collection}/{account}`;
const query = z.strictObject(organizationQuery);
const projectParams = z.object({ id: idText('proj') });
const params = z.object({ id: idText('proj'), account: idText('svc_acct') });

const secondsMax = 315_360_000;
const expiresInSeconds = z
  .int()
  .min(1, 'must be 1 or more')
  .max(secondsMax, `must be at most ${secondsMax}: ten years`)
  .nullable()
  .optional()
  .openapi({ description: 'Lifetime of the key in seconds; it does not expire if absent' });

const createSchema = z
  .strictObject({
    name: nameText(100),
    create_service_account_only: z.boolean().nullable().optional().openapi({ description: 'true: no key is created' }),
    expires_in_seconds: expiresInSeconds,
  })
  .openapi('CreateServiceAccount');

const updateSchema = z
  .strictObject({
    name: nameText(100).optional(),
    role: z.literal('member', 'must be member: a service account has no other role').optional(),
  })
  .openapi('UpdateServiceAccount');

const createKeySchema = z
  .strictObject({
    name: nameText().optional().openapi({ description: 'Default is the name of the service account' }),
    expires_in_seconds: expiresInSeconds,
    scopes: z
      .array(z.string())
      .max(0, 'must be empty: a key has the rights of its service account')
      .optional()
      .openapi({ description: 'Only [] is accepted: a key has the rights of its service account' }),
  })
  .openapi('CreateServiceAccountApiKey');

function toAnswer({ id, name, createdAtMs }: ServiceAccount): ServiceAccountAnswer {
  return {
    object: 'organization.project.service_account',
    id: formatId('svc_acct', id),
    name,
    role: 'member',
    created_at: toUnixSeconds(createdAtMs),
  };
}

function toKeyAnswer({ key, secret }: CreatedKey): z.infer<typeof serviceAccountKeySchema> {
  return {
    object: 'organization.project.service_account.api_key',
    id: formatId('key', key.id),
    name: key.name,
    value: secret,
    created_at: toUnixSeconds(key.createdAtMs),
    expires_at: toUnixSecondsOrNull(key.expiresAtMs),
  };
}

function expiryOf(seconds: number | null | undefined): KeyExpiry | null {
  return seconds === null || seconds === undefined ? null : { afterMs: seconds * 1000 };
}

function found(account: ServiceAccount | null): ServiceAccount {
  if (account === null) throw notFound('svc_acct');
  return account;
}

/** @throws AppError not_found */
async function placeOf({ guards, accounts }: ServiceAccountParts, context: HttpContext, id: string) {
  const organizationId = await guards.organizationOf(context);
  const projectId = requireId('proj', id);
  if ((await accounts.findProject(organizationId, projectId)) === null) throw notFound('proj');
  return { organizationId, projectId };
}

async function refOf(parts: ServiceAccountParts, context: HttpContext, { id, account }: z.infer<typeof params>) {
  return { ...(await placeOf(parts, context, id)), id: requireId('svc_acct', account) };
}

export function registerServiceAccountRoutes(app: ApiApp, parts: ServiceAccountParts): void {
  registerList(app, parts);
  registerCreation(app, parts);
  registerOne(app, parts);
  registerKeys(app, parts);
}

function registerList(app: ApiApp, parts: ServiceAccountParts): void {
  const list = createRoute({
    method: 'get',
    path: collection,
    security: bearerSecurity,
    middleware: [parts.guards.may('service_accounts')],
    request: { params: projectParams, query: z.strictObject(cursorListQuery) },
    responses: {
      200: jsonAnswer(serviceAccountListSchema, 'A page of service accounts'),
    },
  });
  app.openapi(list, async (context) => {
    const { limit, after } = context.req.valid('query');
    const place = await placeOf(parts, context, context.req.valid('param').id);
    const before = readAfter('svc_acct', after);
    const page = await parts.accounts.serviceAccounts.list({ ...place, limit, before });
    return context.json(toCursorPage(page.accounts.map(toAnswer), page.more), 200);
  });
}

function registerCreation(app: ApiApp, parts: ServiceAccountParts): void {
  const { guards, serviceAccountSetup } = parts;
  const create = createRoute({
    method: 'post',
    path: collection,
    security: bearerSecurity,
    middleware: [guards.may('service_accounts'), guards.smallJsonBody, guards.once('svc_acct', anotherAccountKey)],
    request: { params: projectParams, query, headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: {
      200: jsonAnswer(createdServiceAccountSchema, 'The service account, with the secret of its key as `value`'),
    },
  });
  app.openapi(create, async (context) => {
    const body = context.req.valid('json');
    const expires = expiryOf(body.expires_in_seconds);
    const isAlone = body.create_service_account_only === true;
    if (isAlone && expires !== null) {
      const message = 'cannot be combined with create_service_account_only, which creates no key';
      throw new ValidationError([{ field: 'expires_in_seconds', message }]);
    }
    const place = await placeOf(parts, context, context.req.valid('param').id);
    const input = { ...place, name: body.name, firstKey: isAlone ? null : { expires } };
    const made = await serviceAccountSetup.create(input, authorOf(context));
    if (made === null) throw notFound('proj');
    return context.json({ ...toAnswer(made.account), api_key: made.key === null ? null : toKeyAnswer(made.key) }, 200);
  });
}

function registerOne(app: ApiApp, parts: ServiceAccountParts): void {
  const { guards } = parts;
  const { serviceAccounts } = parts.accounts;
  const shared = { path: one, security: bearerSecurity };
  const middleware = [guards.may('service_accounts')];
  const get = createRoute({
    method: 'get',
    ...shared,
    middleware,
    request: { params, query },
    responses: { 200: jsonAnswer(serviceAccountSchema, 'The service account') },
  });
  app.openapi(get, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param'));
    return context.json(toAnswer(found(await serviceAccounts.find(ref))), 200);
  });
  const update = createRoute({
    method: 'post',
    ...shared,
    middleware: [guards.may('service_accounts'), guards.smallJsonBody],
    request: { params, query, body: jsonRequest(updateSchema) },
    responses: { 200: jsonAnswer(serviceAccountSchema, 'The service account') },
  });
  app.openapi(update, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param'));
    const { name } = context.req.valid('json');
    const account =
      name === undefined ? serviceAccounts.find(ref) : serviceAccounts.rename(ref, name, authorOf(context));
    return context.json(toAnswer(found(await account)), 200);
  });
  const remove = createRoute({
    method: 'delete',
    ...shared,
    middleware,
    request: { params, query },
    responses: {
      200: jsonAnswer(deletedServiceAccountSchema, 'Confirmation; the keys of the service account are revoked'),
    },
  });
  app.openapi(remove, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param'));
    if (!(await serviceAccounts.remove(ref, authorOf(context)))) throw notFound('svc_acct');
    return context.json({ object: deletedObject, id: formatId('svc_acct', ref.id), deleted: true as const }, 200);
  });
}

function registerKeys(app: ApiApp, parts: ServiceAccountParts): void {
  const create = createRoute({
    method: 'post',
    path: `${one}/api_keys`,
    security: bearerSecurity,
    middleware: [
      parts.guards.may('service_accounts'),
      parts.guards.smallJsonBody,
      parts.guards.once('key', anotherSecret),
    ],
    request: { params, query, headers: onceHeaders, body: jsonRequest(createKeySchema) },
    responses: { 200: jsonAnswer(serviceAccountKeySchema, 'The key, with its secret as `value`') },
  });
  app.openapi(create, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param'));
    const account = found(await parts.accounts.serviceAccounts.find(ref));
    const { name = account.name, expires_in_seconds: seconds } = context.req.valid('json');
    const made = await parts.keys.create(keyOfAccount(account, name, expiryOf(seconds)), authorOf(context));
    return context.json(toKeyAnswer(made), 200);
  });
}
