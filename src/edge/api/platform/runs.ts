import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { type ApplyRequest, lifeSecondsMax, lifeSecondsMin, runAccess, type StartResult } from '#core/runs/runs.ts';
import {
  type ApiApp,
  bearerSecurity,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
} from '#edge/api/shared/shared.ts';
import { idText, nameText } from '#edge/contract/fields.ts';
import { type RunAnswer, runnerSchema, runSchema } from '#edge/contract/runs.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';
import { optionalBody, visibleCluster } from './cluster-access.ts';
import {
  answerOf,
  changed,
  readProblem,
  requireApplicable,
  requireOwn,
  requireRunner,
  type RunRoutesParts,
  started,
  visibleRun,
} from './run-checks.ts';
import { checkInputs, checkTarget, inputsSchema } from './run-inputs.ts';
import { originOf } from './run-origin.ts';
import { registerRunDrift } from './run-drift.ts';
import { registerRunPatch } from './run-patch.ts';
import { registerRunList } from './run-list.ts';
import { registerRunLogRoutes } from './run-logs.ts';
import { isOnePlan, modeOf, onePlan, planFields, registerRunPlans } from './run-plans.ts';
import { registerRunOpening } from './run-open.ts';
import { stackVersionNumber } from './stack-schemas.ts';
import { viewerOf } from './stack-viewer.ts';

/**
 * Runs apply stacks to clusters. Everyone who sees a cluster sees its runs; people and management keys of its
 * organization start runs.
 */

const path = '/v1/runs';
const idParams = z.object({ id: idText('run') });

export function registerRunRoutes(app: ApiApp, parts: RunRoutesParts): void {
  registerRunner(app, parts);
  registerApply(app, parts);
  registerRunList(app, parts);
  registerReading(app, parts);
  registerRunLogRoutes(app, parts);
  registerRunPlans(app, parts);
  registerRunPatch(app, parts);
  registerRunDrift(app, parts);
  registerCancel(app, parts);
  registerRetry(app, parts);
  registerDestroy(app, parts);
  registerForget(app, parts);
  registerRunOpening(app, parts);
}

const asRun = { at: path, status: 202 } as const;

const applySchema = z
  .strictObject({
    cluster_id: idText('cluster'),
    node: nameText(100).nullish().openapi({ description: 'Name of a node; default is the whole cluster' }),
    inputs: inputsSchema.default({}).openapi({ description: 'Inputs of the stack, by name' }),
    access: z.enum(runAccess).default('public').openapi({
      description: 'Who may open the web address of the run: everyone, or members who may see the run',
    }),
    stack_version: stackVersionNumber.optional().openapi({
      description: 'Version of the stack; default is the newest one',
    }),
    ...planFields,
    expires_after: z
      .int()
      .min(lifeSecondsMin, `must be at least ${lifeSecondsMin} seconds`)
      .max(lifeSecondsMax, `must be at most ${lifeSecondsMax} seconds`)
      .nullish()
      .openapi({
        description: 'Seconds from the end of the apply after which Headgate destroys the resources; default is never',
      }),
    check_drift: z.boolean().default(true).openapi({
      description: 'false: Headgate does not check for drift by itself what the run applied',
    }),
  })
  .refine(({ plan_only: isPlan, expires_after: life }) => !isPlan || (life ?? null) === null, {
    path: ['expires_after'],
    message: 'must not be set with plan_only, which applies nothing',
  })
  .refine(isOnePlan, onePlan)
  .openapi('ApplyStack');
const destroySchema = z.strictObject(planFields).refine(isOnePlan, onePlan).openapi('DestroyRun');

function registerApply(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs, clusters, stacks } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/stacks/{name}/apply',
    security: bearerSecurity,
    middleware: [guards.may('runs'), guards.jsonBody, guards.once('run', asRun)],
    request: {
      params: z.object({ name: z.string().openapi({ description: 'Name or id of the stack', example: 'scheduler' }) }),
      headers: onceHeaders,
      body: jsonRequest(applySchema),
    },
    responses: { 202: jsonAnswer(runSchema, 'The run, which starts when its cluster is free') },
  });
  app.openapi(route, async (context) => {
    const body = context.req.valid('json');
    const viewer = viewerOf(context);
    const stack = await stacks.find(viewer, context.req.valid('param').name, body.stack_version);
    if (stack === null) throw notFound('stack');
    requireOwn(stack, viewer);
    const clusterId = await visibleCluster(context, clusters, body.cluster_id);
    const cluster = await clusters.find(clusterId);
    if (cluster === null || cluster.status !== 'active') throw notFound('cluster');
    const node = body.node ?? null;
    const { inputs, problems } = checkInputs(stack, body.inputs);
    const all = [...checkTarget(stack, cluster, node), ...problems];
    if (all.length > 0) throw new ValidationError(all);
    await requireRunner(context, runs);
    const ids = { clusterId, organizationId: cluster.organizationId, stackId: stack.id, stackName: stack.name };
    const request: ApplyRequest = {
      ...ids,
      stackVersionId: stack.version.id,
      stackVersion: stack.version.number,
      declared: stack.version.metadata.inputs,
      origin: originOf(context),
      node: node ?? '',
      inputs,
      access: body.access,
      expiresAfter: body.expires_after ?? null,
      checkDrift: body.check_drift,
      mode: modeOf(body),
      mayServe: viewer.isAdmin,
      author: authorOf(context),
    };
    const run = started(await runs.apply(request));
    context.header('location', `${path}/${formatId('run', run.id)}`);
    return context.json(await answerOf(parts, run), 202);
  });
}

function registerRunner(app: ApiApp, { guards, runs }: RunRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: '/v1/runner',
    security: bearerSecurity,
    middleware: [guards.may('runs')],
    responses: { 200: jsonAnswer(runnerSchema, 'Whether stacks can be applied') },
  });
  app.openapi(route, async (context) => {
    const problem = await readProblem(context, runs);
    return context.json({ available: problem === null, problem }, 200);
  });
}

function registerReading(app: ApiApp, parts: RunRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [parts.guards.may('runs.read')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(runSchema, 'The run') },
  });
  app.openapi(route, async (context) => context.json(await answerOf(parts, await visibleRun(context, parts)), 200));
}

function registerCancel(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs, announceAddresses } = parts;
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/cancel`,
    security: bearerSecurity,
    middleware: [guards.may('runs')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(runSchema, 'The run, with status `CANCELED` or `CANCELING`') },
  });
  app.openapi(route, async (context) => {
    const { id } = await visibleRun(context, parts);
    const run = changed(await runs.cancel(id, authorOf(context)));
    await announceAddresses();
    return context.json(await answerOf(parts, run), 200);
  });
}

const furtherResponses = { 202: jsonAnswer(runSchema, 'The new run, or the run that already does this') };

/** Answers with the run that follows another run. */
async function followed(context: HttpContext, parts: RunRoutesParts, result: StartResult): Promise<RunAnswer> {
  const run = started(result);
  // The web address of a removed run is deleted before the answer.
  await parts.announceAddresses();
  context.header('location', `${path}/${formatId('run', run.id)}`);
  return answerOf(parts, run);
}

function registerRetry(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs } = parts;
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/retry`,
    security: bearerSecurity,
    middleware: [guards.may('runs'), guards.once('run', asRun)],
    request: { params: idParams, headers: onceHeaders },
    responses: furtherResponses,
  });
  app.openapi(route, async (context) => {
    const before = await visibleRun(context, parts);
    await requireApplicable(viewerOf(context), parts, before);
    await requireRunner(context, runs);
    const result = await runs.retry(before.id, authorOf(context), originOf(context));
    return context.json(await followed(context, parts, result), 202);
  });
}

function registerDestroy(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs } = parts;
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/destroy`,
    security: bearerSecurity,
    middleware: [guards.may('runs'), optionalBody(guards.jsonBody), guards.once('run', asRun)],
    request: { params: idParams, headers: onceHeaders, body: { ...jsonRequest(destroySchema), required: false } },
    responses: furtherResponses,
  });
  app.openapi(route, async (context) => {
    const mode = modeOf(context.req.valid('json'));
    const { id } = await visibleRun(context, parts);
    await requireRunner(context, runs);
    const result = await runs.destroy(id, authorOf(context), originOf(context), mode);
    return context.json(await followed(context, parts, result), 202);
  });
}

function registerForget(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs, announceAddresses } = parts;
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/forget`,
    security: bearerSecurity,
    middleware: [guards.may('runs.forget')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(runSchema, 'The run') },
  });
  app.openapi(route, async (context) => {
    const { id } = await visibleRun(context, parts);
    const run = changed(await runs.forget(id, authorOf(context)));
    await announceAddresses();
    return context.json(await answerOf(parts, run), 200);
  });
}
