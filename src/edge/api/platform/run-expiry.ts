import { createRoute, z } from '@hono/zod-openapi';
import { type ApiApp, bearerSecurity, jsonAnswer, jsonRequest } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { runSchema } from '#edge/contract/runs.ts';
import { authorOf } from '#edge/http/http.ts';
import { inIso, moment } from './cluster-schemas.ts';
import { answerOf, changed, type RunRoutesParts, visibleRun } from './run-checks.ts';

/** Changes when the resources of a run are destroyed. Whoever may destroy them may change it. */

const patchSchema = z
  .strictObject({
    expires_at: moment.nullable().openapi({
      ...inIso,
      description: 'When Headgate destroys the resources, at most ten years ahead; null is never',
    }),
  })
  .openapi('PatchRun');

export function registerRunExpiry(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs } = parts;
  const route = createRoute({
    method: 'patch',
    path: '/v1/runs/{id}',
    security: bearerSecurity,
    middleware: [guards.may('runs'), guards.jsonBody],
    request: { params: z.object({ id: idText('run') }), body: jsonRequest(patchSchema) },
    responses: { 200: jsonAnswer(runSchema, 'The changed run') },
  });
  app.openapi(route, async (context) => {
    const { id: runId } = await visibleRun(context, parts);
    const { expires_at: expiresAtMs } = context.req.valid('json');
    const run = changed(await runs.changeExpiry({ runId, expiresAtMs, author: authorOf(context) }));
    return context.json(await answerOf(parts, run), 200);
  });
}
