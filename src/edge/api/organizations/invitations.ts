import { createRoute, z } from '@hono/zod-openapi';
import { formatId, isUuid } from '#base/id.ts';
import { type Accounts, type Invitation, type Letters, rolesGivenBy } from '#core/accounts/accounts.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  listQuery,
  notFound,
  onceHeaders,
  organizationQuery,
  readCursor,
  requireId,
  toListPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import {
  createdInvitationSchema,
  type InvitationAnswer,
  invitationListSchema,
  invitationSchema,
  roles,
} from '#edge/contract/users.ts';
import { authorOf } from '#edge/http/http.ts';
import { email } from './user-schemas.ts';
import { requireGiven } from './users.ts';

export interface InvitationRoutesParts {
  readonly guards: Guards;
  readonly accounts: { readonly users: Pick<Accounts['users'], 'invitations'> };
  readonly letters: Letters;
}

const path = '/v1/invitations';

const anotherLink = {
  instead: 'Its link was returned or mailed only once: invite the address again to create a new one.',
};

const createSchema = z
  .strictObject({
    email,
    role: z
      .enum(roles)
      .default('member')
      .openapi({ description: 'Role in the organization; only owners and platform administrators invite owners' }),
  })
  .openapi('CreateInvitation');

function toAnswer(invitation: Invitation): InvitationAnswer {
  return {
    id: formatId('inv', invitation.id),
    organization_id: formatId('org', invitation.organizationId),
    email: invitation.email,
    role: invitation.role,
    invited_by: invitation.invitedBy === null ? null : formatId('user', invitation.invitedBy),
    created_at: toUnixSeconds(invitation.createdAtMs),
    expires_at: toUnixSeconds(invitation.expiresAtMs),
  };
}

export function registerInvitationRoutes(app: ApiApp, parts: InvitationRoutesParts): void {
  registerReading(app, parts);
  registerCreation(app, parts);
  registerRevocation(app, parts);
}

function registerReading(app: ApiApp, { guards, accounts }: InvitationRoutesParts): void {
  const list = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('users.manage')],
    request: { query: z.strictObject({ ...listQuery, ...organizationQuery }) },
    responses: { 200: jsonAnswer(invitationListSchema, 'Invitations') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const organizationId = await guards.organizationOf(context);
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const page = await accounts.users.invitations.list(organizationId, limit, before);
    const next = page.more ? (page.invitations.at(-1)?.id ?? null) : null;
    return context.json(toListPage(page.invitations.map(toAnswer), next), 200);
  });
}

function registerCreation(app: ApiApp, { guards, accounts, letters }: InvitationRoutesParts): void {
  const { invitations } = accounts.users;
  const create = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [guards.may('users.manage'), guards.smallJsonBody, guards.once('inv', anotherLink)],
    request: { query: z.strictObject(organizationQuery), headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(createdInvitationSchema, 'The invitation') },
  });
  app.openapi(create, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const body = context.req.valid('json');
    requireGiven(context, body.role);
    const made = await invitations.make({ organizationId, ...body }, authorOf(context));
    const link = await letters.sendInvitation(made).catch(async (error: unknown) => {
      await invitations.drop(made.invitation.id);
      throw error;
    });
    return context.json({ ...toAnswer(made.invitation), link }, 201);
  });
}

function registerRevocation(app: ApiApp, { guards, accounts }: InvitationRoutesParts): void {
  const revoke = createRoute({
    method: 'delete',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('users.manage')],
    request: { params: z.object({ id: idText('inv') }), query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(invitationSchema, 'The invitation that was revoked') },
  });
  app.openapi(revoke, async (context) => {
    const id = requireId('inv', context.req.valid('param').id);
    const organizationId = await guards.organizationOf(context);
    const gives = rolesGivenBy(context.get('caller'));
    const revoked = await accounts.users.invitations.revoke({ id, organizationId, gives }, authorOf(context));
    if (revoked === null) throw notFound('inv');
    return context.json(toAnswer(revoked), 200);
  });
}
