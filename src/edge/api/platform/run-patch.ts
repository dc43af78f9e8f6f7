import { createRoute, z } from '@hono/zod-openapi';
import type { ChangeResult } from '#core/runs/runs.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, jsonRequest } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { runSchema } from '#edge/contract/runs.ts';
import { authorOf } from '#edge/http/http.ts';
import { inIso, moment } from './cluster-schemas.ts';
import { answerOf, changed, type RunRoutesParts, visibleRun } from './run-checks.ts';

/** Changes what Headgate does by itself with what a run applied. Whoever may destroy it may change this. */

const patchSchema = z
  .strictObject({
    expires_at: moment.nullish().openapi({
      ...inIso,
      description: 'When Headgate destroys the resources, at most ten years ahead; null is never',
    }),
    check_drift: z.boolean().optional().openapi({
      description: 'true: Headgate checks the resources for drift every `HEADGATE_DRIFT_HOURS`',
    }),
  })
  .refine(({ expires_at: at, check_drift: isChecked }) => at !== undefined || isChecked !== undefined, {
    message: 'must have expires_at or check_drift',
  })
  .openapi('PatchRun');

export function registerRunPatch(app: ApiApp, parts: RunRoutesParts): void {
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
    const run = await visibleRun(context, parts);
    const { expires_at: expiresAtMs, check_drift: checkDrift } = context.req.valid('json');
    const what = { runId: run.id, author: authorOf(context) };
    let result: ChangeResult = { kind: 'changed', run };
    if (expiresAtMs !== undefined) result = await runs.changeExpiry({ ...what, expiresAtMs });
    if (checkDrift !== undefined && result.kind === 'changed')
      result = await runs.changeDriftCheck({ ...what, checkDrift });
    return context.json(await answerOf(parts, changed(result)), 200);
  });
}
