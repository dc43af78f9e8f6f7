import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { type ApplyRequest, runAccess } from '#core/runs/runs.ts';
import {
  type ApiApp,
  bearerSecurity,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
} from '#edge/api/shared/shared.ts';
import { idText, nameText } from '#edge/contract/fields.ts';
import { runnerSchema, runSchema } from '#edge/contract/runs.ts';
import { authorOf, ValidationError } from '#edge/http/http.ts';
import { visibleCluster } from './cluster-access.ts';
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
import { registerRunList } from './run-list.ts';
import { registerRunLogRoutes } from './run-logs.ts';
import { registerRunPlans } from './run-plans.ts';
import { registerRunOpening } from './run-open.ts';
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
  registerCancel(app, parts);
  registerFurther(app, parts);
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
    plan_only: z.boolean().default(false).openapi({ description: 'true: the run makes a plan and changes nothing' }),
    auto_apply: z.boolean().optional().openapi({
      description: 'false: the plan waits until somebody confirms it; default is true',
    }),
  })
  .refine(({ plan_only: isPlan, auto_apply: isAuto }) => !(isPlan && isAuto === true), {
    path: ['auto_apply'],
    message: 'must not be true with plan_only, which applies nothing',
  })
  .openapi('ApplyStack');

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
    const stack = await stacks.find(viewer, context.req.valid('param').name);
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
      mode: body.plan_only ? 'plan' : body.auto_apply === false ? 'confirm' : 'auto',
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

/** Registers the routes that create another run from a run. */
function registerFurther(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs, announceAddresses } = parts;
  for (const action of ['retry', 'destroy'] as const) {
    const route = createRoute({
      method: 'post',
      path: `${path}/{id}/${action}`,
      security: bearerSecurity,
      middleware: [guards.may('runs'), guards.once('run', asRun)],
      request: { params: idParams, headers: onceHeaders },
      responses: { 202: jsonAnswer(runSchema, 'The new run, or the run that already does this') },
    });
    app.openapi(route, async (context) => {
      const before = await visibleRun(context, parts);
      const { id } = before;
      if (action === 'retry') await requireApplicable(viewerOf(context), parts, before);
      await requireRunner(context, runs);
      const run = started(await runs[action](id, authorOf(context), originOf(context)));
      // The web address of a removed run is deleted before the answer.
      await announceAddresses();
      context.header('location', `${path}/${formatId('run', run.id)}`);
      return context.json(await answerOf(parts, run), 202);
    });
  }
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
