import { createRoute, z } from '@hono/zod-openapi';
import { formatId, isUuid, uuidTimeMs } from '#base/id.ts';
import type { History, RejectedFilter, RejectedPage } from '#core/metering/metering.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  listQuery,
  longText,
  organizationQuery,
  readCursor,
  timeBound,
  toListPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { type RejectedRequestAnswer, rejectedRequestListSchema } from '#edge/contract/requests.ts';
import { idFilter, requireOrder, searchOf, searchQuery } from './usage-filter.ts';
import { keysSeen, type OwnKeys } from './usage-summary.ts';

const none: RejectedPage = { requests: [], more: false };

const query = z.strictObject({
  from: timeBound('Rejected at or after this date (midnight UTC) or RFC 3339 time'),
  to: timeBound('Rejected before this date or time'),
  key_id: idFilter('key', 'an API key'),
  model: longText(512).optional().openapi({ description: 'Only requests for this model, by catalog id' }),
  project_id: idFilter('proj', 'a project'),
  code: longText(100).optional().openapi({ description: 'Only requests with this `code` of the error' }),
  ...searchQuery,
  request_id: longText(100)
    .toLowerCase()
    .optional()
    .openapi({ description: 'Only the request with this `x-request-id`' }),
  ...organizationQuery,
  ...listQuery,
});

const idOf = (text: string): string | null => (isUuid(text) ? text : null);

/** Returns null if nothing can match: the caller asks for a key that it does not see, or for an id that is none. */
function toFilter(
  asked: z.infer<typeof query>,
  organizationId: string,
  own: readonly string[] | null,
): RejectedFilter | null {
  const { key_id: keyId = null, project_id: projectId = null, model = null, code = null } = asked;
  const { from: fromMs = null, to: toMs = null, request_id: id = null, limit } = asked;
  if (id !== null && !isUuid(id)) return null;
  if (own !== null && keyId !== null && !own.includes(keyId)) return null;
  const before = readCursor(asked.cursor, idOf);
  const filter = { organizationId, id, keyId, projectId, model, code, fromMs, toMs, before, limit, ...searchOf(asked) };
  return own !== null && keyId === null ? { ...filter, ofKeys: own } : filter;
}

const toBody = (request: RejectedPage['requests'][number]): RejectedRequestAnswer => ({
  id: request.id,
  object: 'usage.rejected_request',
  created_at: toUnixSeconds(uuidTimeMs(request.id)),
  key_id: formatId('key', request.keyId),
  project_id: formatId('proj', request.projectId),
  model: request.model === '' ? null : request.model,
  endpoint: request.endpoint,
  status: request.status,
  code: request.code,
  param: request.param,
  message: request.message,
  client_request_id: request.clientRequestId,
  end_user: request.endUser,
});

export interface RejectedRouteParts {
  readonly guards: Guards;
  readonly keys: OwnKeys;
  readonly history: Pick<History, 'listRejected'>;
}

/** Registers the route for rejected requests. As for records, an inference key sees only its own. */
export function registerRejectedRoute(app: ApiApp, { guards, keys, history }: RejectedRouteParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/usage/rejected',
    security: bearerSecurity,
    middleware: guards.may('usage.read', 'own'),
    request: { query },
    responses: { 200: jsonAnswer(rejectedRequestListSchema, 'One page') },
  });
  app.openapi(route, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const asked = context.req.valid('query');
    requireOrder(asked);
    const filter = toFilter(asked, organizationId, await keysSeen(keys, context));
    const { requests, more } = filter === null ? none : await history.listRejected(filter);
    return context.json(toListPage(requests.map(toBody), more ? (requests.at(-1)?.id ?? null) : null), 200);
  });
}
