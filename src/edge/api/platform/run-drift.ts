import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, onceHeaders } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { runSchema } from '#edge/contract/runs.ts';
import { authorOf } from '#edge/http/http.ts';
import { answerOf, requireRunner, type RunRoutesParts, started, visibleRun } from './run-checks.ts';
import { originOf } from './run-origin.ts';

/** Checks what a run applied for drift. Whoever may destroy it may check it. */

export function registerRunDrift(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/runs/{id}/drift-check',
    security: bearerSecurity,
    middleware: [guards.may('runs'), guards.once('run', { at: '/v1/runs', status: 202 })],
    request: { params: z.object({ id: idText('run') }), headers: onceHeaders },
    responses: { 202: jsonAnswer(runSchema, 'The drift check, also one that was already pending or active') },
  });
  app.openapi(route, async (context) => {
    const { id } = await visibleRun(context, parts);
    await requireRunner(context, runs);
    const request = { author: authorOf(context), origin: originOf(context) };
    const check = started(await runs.checkDrift(id, request));
    context.header('location', `/v1/runs/${formatId('run', check.id)}`);
    return context.json(await answerOf(parts, check), 202);
  });
}
