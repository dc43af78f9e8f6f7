import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  longText,
  notFound,
  organizationQuery,
  requireId,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { userIdentityListSchema } from '#edge/contract/users.ts';
import { editorOf } from './users.ts';

export interface UserIdentityRoutesParts {
  readonly guards: Guards;
  readonly accounts: { readonly users: Pick<Accounts['users'], 'find' | 'identities'> };
}

const params = z.object({ id: idText('user') });
const named = longText(1024).min(1, 'must not be empty');
const identityQuery = z.strictObject({
  issuer: named.openapi({ description: 'Issuer URL of the OpenID provider' }),
  subject: named.openapi({ description: 'Id of the person at the provider' }),
  ...organizationQuery,
});
const path = '/v1/users/{id}/identities';

/** Registers the routes for identities at OpenID providers with which a user signs in. */
export function registerUserIdentityRoutes(
  app: ApiApp,
  { guards, accounts: { users } }: UserIdentityRoutesParts,
): void {
  const list = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('users', 'own')],
    request: { params, query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(userIdentityListSchema, 'Linked identities') },
  });
  app.openapi(list, async (context) => {
    const id = requireId('user', context.req.valid('param').id);
    if ((await users.find(await editorOf(guards, context), id)) === null) throw notFound('user');
    const found = await users.identities.list(id);
    const data = found.map(({ issuer, subject, linkedAtMs }) => ({
      issuer,
      subject,
      linked_at: new Date(linkedAtMs).toISOString(),
    }));
    return context.json({ data }, 200);
  });
  const remove = createRoute({
    method: 'delete',
    path,
    security: bearerSecurity,
    middleware: [guards.may('users', 'own')],
    request: { params, query: identityQuery },
    responses: { 204: { description: 'The identity was unlinked' } },
  });
  app.openapi(remove, async (context) => {
    const id = requireId('user', context.req.valid('param').id);
    const { issuer, subject } = context.req.valid('query');
    const removed = await users.identities.remove(id, { issuer, subject }, await editorOf(guards, context));
    if (!removed) throw new AppError('not_found', { message: 'This user has no such identity.' });
    return context.body(null, 204);
  });
}
