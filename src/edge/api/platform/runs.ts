import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId, parseId } from '#base/id.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import type { Exposures } from '#core/web-addresses/web-addresses.ts';
import {
  type ApplyRequest,
  type ChangeResult,
  type Run,
  runAccess,
  type Runs,
  type StartResult,
  stateNotSaved,
} from '#core/runs/runs.ts';
import type { Stack, Stacks, StackViewer } from '#core/stacks/stacks.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
} from '#edge/api/shared/shared.ts';
import { idText, nameText } from '#edge/contract/fields.ts';
import { runnerSchema, runSchema } from '#edge/contract/runs.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';
import { isOperator, visibleCluster } from './cluster-access.ts';
import { checkInputs, checkTarget, inputsSchema } from './run-inputs.ts';
import { originOf } from './run-origin.ts';
import { registerRunList } from './run-list.ts';
import { registerRunLogRoutes } from './run-logs.ts';
import { registerRunPlans } from './run-plans.ts';
import { registerRunOpening } from './run-open.ts';
import { toRunAnswer } from './run-answers.ts';
import { viewerOf } from './stack-viewer.ts';

/**
 * Runs apply stacks to clusters. Everyone who sees a cluster sees its runs; people and management keys of its
 * organization start runs.
 */

export interface RunRoutesParts {
  readonly guards: Guards;
  readonly runs: Runs;
  readonly clusters: Clusters;
  readonly stacks: Stacks;
  readonly exposures: Exposures;
  readonly announceAddresses: () => Promise<void>;
}

const path = '/v1/runs';
const idParams = z.object({ id: idText('run') });

export function registerRunRoutes(app: ApiApp, parts: RunRoutesParts): void {
  registerRunner(app, parts);
  registerApply(app, parts);
  registerRunList(app, parts, shownRun);
  registerReading(app, parts);
  registerRunLogRoutes(app, parts, (context) => visibleRun(context, parts));
  registerRunPlans(app, parts, { visibleRun, requireApplicable, requireRunner, changed, answerOf });
  registerCancel(app, parts);
  registerFurther(app, parts);
  registerForget(app, parts);
  registerRunOpening(app, parts, (context) => visibleRun(context, parts));
}

type RunAnswer = ReturnType<typeof toRunAnswer>;

const shownRun = ({ id, status, web }: Run) => ({ id, isExposed: status === 'APPLIED' && web !== null });

/** Returns a run in the form of the API, with its web address. */
async function answerOf({ exposures }: Pick<RunRoutesParts, 'exposures'>, run: Run): Promise<RunAnswer> {
  const addresses = await exposures.shown([shownRun(run)]);
  return toRunAnswer(run, addresses.get(run.id), exposures.problemOf(run.id));
}

/**
 * Returns the run of a path, if the caller may see it. Runs belong to the owner of their cluster: after a move the new
 * owner sees them, and the former owner sees none.
 * @throws AppError not_found both for a hidden run and for a run that does not exist
 */
async function visibleRun(
  context: HttpContext,
  { runs, clusters }: Pick<RunRoutesParts, 'runs' | 'clusters'>,
): Promise<Run> {
  const caller = context.get('caller');
  const id = parseId('run', context.req.param('id') ?? '');
  const run = id === null ? null : await runs.find(id);
  if (run === null) throw notFound('run');
  if (isOperator(caller)) return run;
  if ((await clusters.organizationOf(run.clusterId)) !== caller.organizationId) throw notFound('run');
  return run;
}

/** @throws AppError for every result without a run */
function started(result: StartResult): Run {
  switch (result.kind) {
    case 'created':
      return result.run;
    case 'queue_full':
      throw new AppError('queue_full');
    case 'state_not_saved':
      throw new AppError('conflict', { message: `${stateNotSaved(formatId('run', result.runId))}.` });
    case 'stack_gone':
      throw new AppError('conflict', {
        message: 'The version of the stack that this run applies was deleted. Apply another version.',
      });
    case 'cluster_gone':
      throw new AppError('conflict', { message: 'The cluster was archived.' });
    case 'node_gone':
      throw new AppError('conflict', {
        message: 'The node of this run was removed from the cluster. Apply the stack to another node.',
      });
    case 'cluster_moved':
      throw new AppError('conflict', {
        message: 'The cluster was moved to another organization, so this run cannot be retried. Apply the stack again.',
      });
    case 'organization_inactive':
      throw new AppError('conflict', {
        message: `The organization of the cluster is ${result.status}, so stacks cannot be applied. Applied stacks can be destroyed.`,
      });
    case 'not_found':
      throw notFound('run');
    case 'wrong_status':
      throw new AppError('conflict', { message: `The run is ${result.status}.` });
  }
}

function changed(result: ChangeResult): Run {
  if (result.kind === 'changed') return result.run;
  return started(result);
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

/** Rejects private stacks of others, which administrators may see but not run. @throws AppError insufficient_scope */
function requireOwn({ visibility, ownerUserId }: Stack, { userId }: StackViewer): void {
  if (visibility !== 'private' || ownerUserId === userId) return;
  throw new AppError('insufficient_scope', { message: 'Only its owner can apply a private stack.' });
}

/**
 * Checks a retry like an apply: the caller must be allowed to apply the stack, and the target must match. @throws
 * AppError, ValidationError
 */
async function requireApplicable(viewer: StackViewer, parts: RunRoutesParts, run: Run): Promise<void> {
  const { stacks, clusters } = parts;
  const stack = await stacks.find(viewer, formatId('stack', run.stackId));
  if (stack === null) throw notFound('stack');
  requireOwn(stack, viewer);
  const [open, cluster] = await Promise.all([stacks.openVersion(run.stackVersionId), clusters.find(run.clusterId)]);
  // The run itself reports a deleted version or cluster.
  if (open === null || cluster === null || cluster.status !== 'active') return;
  const problems = checkTarget({ ...stack, version: open.version }, cluster, run.node === '' ? null : run.node);
  if (problems.length > 0) throw new ValidationError([...problems]);
}

const hiddenProblem =
  'this installation cannot run OpenTofu or Terraform; its operator finds the reason in the gateway log and with headgate doctor';

/** Returns why stacks cannot be applied; null if they can. Only operators see names of settings, folders and hosts. */
async function readProblem(context: HttpContext, runs: Runs): Promise<string | null> {
  const problem = await runs.problem();
  return problem === null || isOperator(context.get('caller')) ? problem : hiddenProblem;
}

/** @throws AppError runner_unavailable, so that no run is queued that cannot run here */
async function requireRunner(context: HttpContext, runs: Runs): Promise<void> {
  const problem = await readProblem(context, runs);
  if (problem !== null) throw new AppError('runner_unavailable', { message: `Stacks cannot be applied: ${problem}.` });
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
