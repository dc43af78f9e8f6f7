import { createRoute, z } from '@hono/zod-openapi';
import type { Accounts, Letters } from '#core/accounts/accounts.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  notFound,
  organizationQuery,
  requireId,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { resetLinkSchema } from '#edge/contract/users.ts';
import { editorOf } from './users.ts';

export interface ResetLinkRoutesParts {
  readonly guards: Guards;
  readonly accounts: { readonly users: Pick<Accounts['users'], 'resetLinks'> };
  readonly letters: Letters;
}

/** Registers the same routes at both prefixes, as for users. */
export function registerResetLinkRoutes(app: ApiApp, { guards, accounts, letters }: ResetLinkRoutesParts): void {
  const { resetLinks } = accounts.users;
  for (const prefix of ['/v1', '/api/v1'] as const) {
    const route = createRoute({
      method: 'post',
      path: `${prefix}/users/{id}/reset-link`,
      security: bearerSecurity,
      middleware: [guards.may('users.manage')],
      request: { params: z.object({ id: idText('user') }), query: z.strictObject(organizationQuery) },
      responses: { 201: jsonAnswer(resetLinkSchema, 'Reset link') },
    });
    app.openapi(route, async (context) => {
      const editor = await editorOf(guards, context);
      const made = await resetLinks.make(requireId('user', context.req.valid('param').id), editor);
      if (made === null) throw notFound('user');
      const { id, email, expiresAtMs } = made;
      const link = await letters.sendReset(made).catch(async (error: unknown) => {
        await resetLinks.drop(id);
        throw error;
      });
      return context.json({ email, link, expires_at: new Date(expiresAtMs).toISOString() }, 201);
    });
  }
}
