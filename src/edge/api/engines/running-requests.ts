import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId, uuidTimeMs } from '#base/id.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, toUnixSeconds } from '#edge/api/shared/shared.ts';
import { type RunningRequestAnswer, runningRequestListSchema, runningRequestSchema } from '#edge/contract/engines.ts';
import type { OperatedRequest } from './engine-operations.ts';
import { commandAuthor, type EngineRoutesParts, findEngine, idParams } from './engine-routes.ts';

const requestParams = idParams.extend({
  request_id: z
    .string()
    .openapi({ description: '`x-request-id` of the response', example: '019ab1c2-d3e4-7f00-8a1b-2c3d4e5f6071' }),
});

const toAnswer = (request: OperatedRequest): RunningRequestAnswer => ({
  id: request.requestId,
  object: 'running_request',
  created_at: toUnixSeconds(uuidTimeMs(request.requestId)),
  model: request.modelId,
  endpoint: request.path,
  organization_id: formatId('org', request.key.organizationId),
  key_id: formatId('key', request.key.id),
  end_user: request.endUser,
  state: request.state,
});

export function registerRunningRequests(
  app: ApiApp,
  { guards, operations, commands, requests }: EngineRoutesParts,
): void {
  const list = createRoute({
    method: 'get',
    path: '/v1/admin/engines/{id}/requests',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: idParams, query: z.strictObject({}) },
    responses: { 200: jsonAnswer(runningRequestListSchema, 'Running requests') },
  });
  app.openapi(list, (context) => {
    const { id } = context.req.valid('param');
    findEngine(operations, id);
    return context.json({ object: 'list' as const, data: requests.runningOf(id).map(toAnswer) }, 200);
  });
  const cancel = createRoute({
    method: 'post',
    path: '/v1/admin/engines/{id}/requests/{request_id}/cancel',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: requestParams },
    responses: { 202: jsonAnswer(runningRequestSchema, 'The request') },
  });
  app.openapi(cancel, async (context) => {
    const { id, request_id: requestId } = context.req.valid('param');
    findEngine(operations, id);
    const found = requests.runningOf(id).find((one) => one.requestId === requestId);
    if (found === undefined) throw notRunning();
    await commands.cancelRequest(id, toAnswer(found), commandAuthor(context));
    if (!requests.cancel(id, requestId)) throw notRunning();
    return context.json(toAnswer(found), 202);
  });
}

function notRunning(): AppError {
  const message = 'No such request runs on this gateway for a model of this engine. It may have ended.';
  return new AppError('not_found', { message, param: 'request_id' });
}
