import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { UnusedItem, UnusedStorage } from '#core/fleet/fleet.ts';
import { type ApiApp, bearerSecurity, type Guards, jsonAnswer } from '#edge/api/shared/shared.ts';
import { type UnusedItemAnswer, unusedStorageSchema } from '#edge/contract/hosts.ts';
import { authorOf } from '#edge/http/http.ts';

const nameParams = z.object({
  name: z.string().openapi({
    description: 'Image or repository, URL-encoded, such as `acme%2Fchat`',
    example: 'acme/chat',
  }),
});

const toAnswer = ({ type, name, host, bytes }: UnusedItem): UnusedItemAnswer => ({
  object: 'unused_item',
  type,
  name,
  host,
  bytes,
});

/** Registers the routes for images and weights that no engine file names, only for platform administrators. */
export function registerUnusedStorage(
  app: ApiApp,
  { guards, storage }: { readonly guards: Guards; readonly storage: UnusedStorage },
): void {
  const listRoute = createRoute({
    method: 'get',
    path: '/v1/admin/unused-storage',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { query: z.strictObject({}) },
    responses: { 200: jsonAnswer(unusedStorageSchema, 'Unused images and weights') },
  });
  app.openapi(listRoute, async (context) => {
    const data = (await storage.list()).map(toAnswer);
    return context.json({ object: 'list' as const, data }, 200);
  });

  const deleteRoute = createRoute({
    method: 'delete',
    path: '/v1/admin/unused-storage/{name}',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: nameParams },
    responses: { 200: jsonAnswer(unusedStorageSchema, 'The deleted images and weights') },
  });
  app.openapi(deleteRoute, async (context) => {
    const { name } = context.req.valid('param');
    const by = { organizationId: context.get('caller').organizationId, author: authorOf(context) };
    const deleted = await storage.delete(name, by);
    if (deleted.length === 0) {
      throw new AppError('not_found', {
        message: 'No unused image and no unused weights have this name. What an engine file names is not unused.',
      });
    }
    return context.json({ object: 'list' as const, data: deleted.map(toAnswer) }, 200);
  });
}
