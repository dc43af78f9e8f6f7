import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { Accounts, Invitation, User } from '#core/accounts/accounts.ts';
import {
  type ApiApp,
  bearerSecurity,
  cursorListQuery,
  type Guards,
  jsonAnswer,
  notFound,
  numberedLimit,
  organizationQuery,
  readAfter,
  readNumbered,
  requireId,
  toCursorPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import {
  type OrganizationInviteAnswer,
  organizationInviteListSchema,
  type OrganizationUserAnswer,
  organizationUserListSchema,
  organizationUserSchema,
} from '#edge/contract/organization-people.ts';

/** Users and invitations of an organization, in the form of OpenAI's organization API. */

export interface OrganizationPeopleParts {
  readonly guards: Guards;
  readonly accounts: { readonly users: Pick<Accounts['users'], 'list' | 'find' | 'invitations'> };
}

const listQuery = z.strictObject(cursorListQuery);
const newest = { by: 'created_at', descending: true } as const;

function toUser(user: User, organizationId: string): OrganizationUserAnswer {
  const own = user.memberships.find((membership) => membership.organizationId === organizationId);
  return {
    object: 'organization.user',
    id: formatId('user', user.id),
    name: user.name,
    email: user.email,
    role: own?.role ?? 'member',
    added_at: toUnixSeconds(user.createdAtMs),
  };
}

function toInvite(invitation: Invitation): OrganizationInviteAnswer {
  return {
    object: 'organization.invite',
    id: formatId('inv', invitation.id),
    email: invitation.email,
    role: invitation.role === 'owner' ? 'owner' : 'reader',
    status: 'pending',
    created_at: toUnixSeconds(invitation.createdAtMs),
    expires_at: toUnixSeconds(invitation.expiresAtMs),
    accepted_at: null,
    projects: [],
  };
}

export function registerOrganizationPeopleRoutes(app: ApiApp, parts: OrganizationPeopleParts): void {
  registerUsers(app, parts);
  registerInvites(app, parts);
}

function registerUsers(app: ApiApp, { guards, accounts }: OrganizationPeopleParts): void {
  const shared = { security: bearerSecurity, middleware: [guards.may('users.manage')] };
  const list = createRoute({
    method: 'get',
    path: '/v1/organization/users',
    ...shared,
    request: { query: listQuery },
    responses: { 200: jsonAnswer(organizationUserListSchema, 'A page of users') },
  });
  app.openapi(list, async (context) => {
    const { limit, after } = context.req.valid('query');
    const organizationId = await guards.organizationOf(context);
    const page = await readNumbered(
      async (number) => {
        const paging = { page: number, limit: numberedLimit, sort: newest };
        const { users, total } = await accounts.users.list({ organizationId, userId: null }, paging);
        return { items: users, total };
      },
      { after: readAfter('user', after), limit, isWanted: () => true },
    );
    return context.json(
      toCursorPage(
        page.items.map((user) => toUser(user, organizationId)),
        page.more,
      ),
      200,
    );
  });
  const get = createRoute({
    method: 'get',
    path: '/v1/organization/users/{id}',
    ...shared,
    request: { params: z.object({ id: idText('user') }), query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(organizationUserSchema, 'The user') },
  });
  app.openapi(get, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const id = requireId('user', context.req.valid('param').id);
    const user = await accounts.users.find({ organizationId, userId: null }, id);
    if (user === null) throw notFound('user');
    return context.json(toUser(user, organizationId), 200);
  });
}

function registerInvites(app: ApiApp, { guards, accounts }: OrganizationPeopleParts): void {
  const list = createRoute({
    method: 'get',
    path: '/v1/organization/invites',
    security: bearerSecurity,
    middleware: [guards.may('users.manage')],
    request: { query: listQuery },
    responses: {
      200: jsonAnswer(organizationInviteListSchema, 'A page of invitations'),
    },
  });
  app.openapi(list, async (context) => {
    const { limit, after } = context.req.valid('query');
    const organizationId = await guards.organizationOf(context);
    const page = await accounts.users.invitations.list(organizationId, limit, readAfter('inv', after));
    return context.json(toCursorPage(page.invitations.map(toInvite), page.more), 200);
  });
}
