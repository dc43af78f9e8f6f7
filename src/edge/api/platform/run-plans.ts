import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { ChangeResult, Run, Runs } from '#core/runs/runs.ts';
import type { StackViewer } from '#core/stacks/stacks.ts';
import { type ApiApp, bearerSecurity, type Guards, jsonAnswer } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { type RunAnswer, runPlanSchema, runSchema } from '#edge/contract/runs.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';
import { toPlanAnswer } from './run-answers.ts';
import { viewerOf } from './stack-viewer.ts';

/** Plans that somebody looks at before they are applied. */

interface PlanParts {
  readonly guards: Guards;
  readonly runs: Runs;
}

/** Checks that all routes of runs have in common. */
interface RunChecks<P> {
  readonly visibleRun: (context: HttpContext, parts: P) => Promise<Run>;
  readonly requireApplicable: (viewer: StackViewer, parts: P, run: Run) => Promise<void>;
  readonly requireRunner: (context: HttpContext, runs: Runs) => Promise<void>;
  readonly changed: (result: ChangeResult) => Run;
  readonly answerOf: (parts: P, run: Run) => Promise<RunAnswer>;
}

const request = { params: z.object({ id: idText('run') }) };

export function registerRunPlans<P extends PlanParts>(app: ApiApp, parts: P, checks: RunChecks<P>): void {
  const { guards, runs } = parts;
  const { visibleRun, requireApplicable, requireRunner, changed, answerOf } = checks;
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
