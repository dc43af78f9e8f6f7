import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { isUuid } from '#base/id.ts';
import type { Content, ContentRef, Contents } from '#core/stored-requests/stored-requests.ts';
import { type ApiApp, bearerSecurity, type Guards, jsonAnswer, organizationQuery } from '#edge/api/shared/shared.ts';
import { deletedUsageContentSchema, type UsageContentAnswer, usageContentSchema } from '#edge/contract/requests.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';
import { keysSeen, type OwnKeys } from './usage-summary.ts';

export interface UsageContentParts {
  readonly guards: Guards;
  readonly contents: Contents;
  readonly keys: OwnKeys;
}

const shared = (guards: Guards) => ({
  path: '/v1/usage/requests/{id}/content' as const,
  security: bearerSecurity,
  middleware: guards.may('usage.contents', 'own'),
  request: {
    params: z.object({ id: z.string().openapi({ description: 'Id of the request, its `x-request-id`' }) }),
    query: z.strictObject(organizationQuery),
  },
});

const readRoute = (guards: Guards) =>
  createRoute({
    ...shared(guards),
    method: 'get',
    responses: { 200: jsonAnswer(usageContentSchema, 'Stored request and response') },
  });

const deleteRoute = (guards: Guards) =>
  createRoute({
    ...shared(guards),
    method: 'delete',
    responses: { 200: jsonAnswer(deletedUsageContentSchema, 'Confirmation') },
  });

const nothingKept = (): AppError =>
  new AppError('not_found', { message: 'There is no stored content of this request.' });

async function refOf({ guards, keys }: UsageContentParts, context: HttpContext, text: string): Promise<ContentRef> {
  const requestId = text.toLowerCase();
  if (!isUuid(requestId)) throw nothingKept();
  return { organizationId: await guards.organizationOf(context), keyIds: await keysSeen(keys, context), requestId };
}

/** Returns complete JSON as JSON, and any other body as text. */
function shown(text: string, isTruncated: boolean): unknown {
  if (text === '') return null;
  if (isTruncated) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function toBody({ request, response, requestTruncated, responseTruncated }: Content): UsageContentAnswer {
  return {
    object: 'usage.content',
    request: shown(request, requestTruncated),
    response: shown(response, responseTruncated),
    truncated: requestTruncated || responseTruncated,
  };
}

export function registerUsageContentRoutes(app: ApiApp, parts: UsageContentParts): void {
  const { guards, contents } = parts;
  app.openapi(readRoute(guards), async (context) => {
    const content = await contents.read(await refOf(parts, context, context.req.valid('param').id));
    if (content === null) throw nothingKept();
    return context.json(toBody(content), 200);
  });

  app.openapi(deleteRoute(guards), async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param').id);
    if (!(await contents.remove(ref, authorOf(context)))) throw nothingKept();
    return context.json({ id: ref.requestId, object: 'usage.content' as const, deleted: true as const }, 200);
  });
}
