import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { RunMode } from '#core/runs/runs.ts';
import { type ApiApp, bearerSecurity, jsonAnswer } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { runPlanSchema, runSchema } from '#edge/contract/runs.ts';
import { authorOf } from '#edge/http/http.ts';
import { toPlanAnswer } from './run-answers.ts';
import { answerOf, changed, requireApplicable, requireRunner, type RunRoutesParts, visibleRun } from './run-checks.ts';
import { viewerOf } from './stack-viewer.ts';

/** Plans that somebody looks at before they are applied. */

/** Fields of a request for a run that may end after its plan, or wait for a confirmation. */
export const planFields = {
  plan_only: z.boolean().default(false).openapi({ description: 'true: the run makes a plan and changes nothing' }),
  auto_apply: z.boolean().optional().openapi({
    description: 'false: the plan waits until somebody confirms it; default is true',
  }),
};

type AskedPlan = { readonly plan_only?: boolean | undefined; readonly auto_apply?: boolean | undefined };

export const isOnePlan = ({ plan_only: isPlan, auto_apply: isAuto }: AskedPlan): boolean =>
  isPlan !== true || isAuto !== true;
export const onePlan = { path: ['auto_apply'], message: 'must not be true with plan_only, which applies nothing' };

export function modeOf({ plan_only: isPlan, auto_apply: isAuto }: AskedPlan): RunMode {
  if (isPlan === true) return 'plan';
  return isAuto === false ? 'confirm' : 'auto';
}

const request = { params: z.object({ id: idText('run') }) };

export function registerRunPlans(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs, announceAddresses } = parts;
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
    if (plan === null)
      throw new AppError('not_found', {
        message:
          'The run has no plan to show. Drift checks, and runs with plan_only or auto_apply: false, have one once it is ready.',
      });
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
    // A destroy needs no right to apply the stack, which may be deleted or private to somebody else.
    if (run.operation === 'apply') await requireApplicable(viewerOf(context), parts, run);
    await requireRunner(context, runs);
    const confirmed = changed(await runs.confirm(run.id, authorOf(context)));
    // The web address of a run that is destroyed is deleted before the answer.
    await announceAddresses();
    return context.json(await answerOf(parts, confirmed), 200);
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
