import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { type ApiApp, bearerSecurity, jsonAnswer } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { runPlanSchema, runSchema } from '#edge/contract/runs.ts';
import { authorOf } from '#edge/http/http.ts';
import { toPlanAnswer } from './run-answers.ts';
import { answerOf, changed, requireApplicable, requireRunner, type RunRoutesParts, visibleRun } from './run-checks.ts';
import { viewerOf } from './stack-viewer.ts';

/** Plans that somebody looks at before they are applied. */

const request = { params: z.object({ id: idText('run') }) };

export function registerRunPlans(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs } = parts;
  const show = createRoute({
    method: 'get',
    path: '/v1/runs/{id}/plan',
    security: bearerSecurity,
    middleware: [guards.may('runs.read')],
    request,
    responses: { 200: jsonAnswer(runPlanSchema, 'The plan') },
  });
  app.openapi(show, async (context) => {
    const run = await visibleRun(context, parts);
    const plan = run.plannedAtMs === null ? null : await runs.plan(run.id);
    if (plan === null) throw new AppError('not_found', { message: 'The run has no plan to show.' });
    return context.json(toPlanAnswer(run, plan), 200);
  });
  const confirm = createRoute({
    method: 'post',
    path: '/v1/runs/{id}/confirm',
    security: bearerSecurity,
    middleware: [guards.may('runs')],
    request,
    responses: { 200: jsonAnswer(runSchema, 'The run, which applies its plan next') },
  });
  app.openapi(confirm, async (context) => {
    const run = await visibleRun(context, parts);
    await requireApplicable(viewerOf(context), parts, run);
    await requireRunner(context, runs);
    return context.json(await answerOf(parts, changed(await runs.confirm(run.id, authorOf(context)))), 200);
  });
  const discard = createRoute({
    method: 'post',
    path: '/v1/runs/{id}/discard',
    security: bearerSecurity,
    middleware: [guards.may('runs')],
    request,
    responses: { 200: jsonAnswer(runSchema, 'The run, with status `DISCARDED`') },
  });
  app.openapi(discard, async (context) => {
    const { id } = await visibleRun(context, parts);
    return context.json(await answerOf(parts, changed(await runs.discard(id, authorOf(context)))), 200);
  });
}
