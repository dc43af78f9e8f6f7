import { AppError } from '#base/errors.ts';
import { formatId, parseId } from '#base/id.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import { type ChangeResult, type Run, type Runs, type StartResult, stateNotSaved } from '#core/runs/runs.ts';
import type { Stack, Stacks, StackViewer } from '#core/stacks/stacks.ts';
import type { Exposures } from '#core/web-addresses/web-addresses.ts';
import { type Guards, notFound } from '#edge/api/shared/shared.ts';
import type { RunAnswer } from '#edge/contract/runs.ts';
import { type HttpContext, ValidationError } from '#edge/http/http.ts';
import { isOperator } from './cluster-access.ts';
import { toRunAnswer } from './run-answers.ts';
import { checkTarget } from './run-inputs.ts';

/** Checks and answers that the routes of runs share. */

export interface RunRoutesParts {
  readonly guards: Guards;
  readonly runs: Runs;
  readonly clusters: Clusters;
  readonly stacks: Stacks;
  readonly exposures: Exposures;
  readonly announceAddresses: () => Promise<void>;
}

const addressedOf = ({ id, status, web }: Run) => ({ id, isExposed: status === 'APPLIED' && web !== null });

type Addressed = Pick<RunRoutesParts, 'exposures'>;

/** Returns runs in the form of the API, with their web addresses. */
export async function answersOf({ exposures }: Addressed, runs: readonly Run[]): Promise<RunAnswer[]> {
  const addresses = await exposures.shown(runs.map(addressedOf));
  return runs.map((run) => toRunAnswer(run, addresses.get(run.id), exposures.problemOf(run.id)));
}

export async function answerOf({ exposures }: Addressed, run: Run): Promise<RunAnswer> {
  const addresses = await exposures.shown([addressedOf(run)]);
  return toRunAnswer(run, addresses.get(run.id), exposures.problemOf(run.id));
}

/**
 * Returns the run of a path, if the caller may see it. Runs belong to the owner of their cluster: after a move the new
 * owner sees them, and the former owner sees none.
 * @throws AppError not_found both for a hidden run and for a run that does not exist
 */
export async function visibleRun(
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
export function started(result: StartResult): Run {
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
    case 'being_destroyed':
      throw new AppError('conflict', { message: 'The resources of this run are being destroyed.' });
    case 'drift_check':
      throw new AppError('conflict', {
        message: 'This run only checks another run for drift. Use the run that it checks, named in drift_check_of.',
      });
    case 'not_found':
      throw notFound('run');
    case 'wrong_status':
      throw new AppError('conflict', { message: `The run is ${result.status}.` });
  }
}

/** @throws AppError for every result without a run */
export function changed(result: ChangeResult): Run {
  if (result.kind === 'changed') return result.run;
  return started(result);
}

/** Rejects private stacks of others, which administrators may see but not run. @throws AppError insufficient_scope */
export function requireOwn({ visibility, ownerUserId }: Stack, { userId }: StackViewer): void {
  if (visibility !== 'private' || ownerUserId === userId) return;
  throw new AppError('insufficient_scope', { message: 'Only its owner can apply a private stack.' });
}

/**
 * Checks a retry like an apply: the caller must be allowed to apply the stack, and the target must match. @throws
 * AppError, ValidationError
 */
export async function requireApplicable(viewer: StackViewer, parts: RunRoutesParts, run: Run): Promise<void> {
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
export async function readProblem(context: HttpContext, runs: Runs): Promise<string | null> {
  const problem = await runs.problem();
  return problem === null || isOperator(context.get('caller')) ? problem : hiddenProblem;
}

/** @throws AppError runner_unavailable, so that no run is queued that cannot run here */
export async function requireRunner(context: HttpContext, runs: Runs): Promise<void> {
  const problem = await readProblem(context, runs);
  if (problem !== null) throw new AppError('runner_unavailable', { message: `Stacks cannot be applied: ${problem}.` });
}
