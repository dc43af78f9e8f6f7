import { z } from 'zod';
import { AppError } from '#base/errors.ts';
import {
  type ClaimedRun,
  type ClusterContext,
  clusterArchived,
  clusterMoved,
  createMask,
  inputsContext,
  organizationInactive,
  type Sealer,
  type StackPackage,
} from '#core/runs/lifecycle/lifecycle.ts';
import type { ExecutionParts } from './execution-parts.ts';
import { keepState } from './keep-state.ts';
import { runPhase } from './phase.ts';
import { RunFailure } from './run-failure.ts';
import { layoutOf, type RunContext, variablesSha256 } from './work-files.ts';

/** Reads what a run needs, and fails runs that may not start any more. */

const wallNeeded =
  'runs have no sandbox on this machine, and only stacks that a platform administrator uploaded may run without one';
const clusterChanged =
  'the nodes or the access identity of the cluster changed after the plan, or the run moved to another machine: apply the stack again';
const inputsSchema = z.record(z.string(), z.unknown());

/** @throws RunFailure */
export async function readContext(parts: ExecutionParts, run: ClaimedRun): Promise<RunContext> {
  const { sources, runner } = parts;
  const [stack, cluster] = await Promise.all([
    sources.stackPackage(run.stackVersionId),
    sources.cluster(run.clusterId),
  ]);
  if (stack === null) throw new RunFailure('INIT_FAILED', 'the version of the stack was deleted');
  // The key moves with the cluster, and the cluster may move between the two reads.
  const isMoved = cluster !== null && cluster.organizationId !== run.organizationId;
  const privateKey = cluster === null || isMoved ? null : await sources.privateKey(run.clusterId);
  if (cluster === null || privateKey === null) {
    if (run.prepared) await endWithoutCluster(parts, run, stack);
    throw new RunFailure('CLUSTER_GONE', isMoved ? clusterMoved : clusterArchived);
  }
  requireActive(run, cluster);
  requireNode(run, cluster);
  if (runner.kind === 'process' && !stack.isGlobal) throw new RunFailure('RUNNER_UNAVAILABLE', wallNeeded);
  return readStored(parts, run, { stack, cluster, privateKey, node: run.node });
}

/** Adds the inputs, the state and the plan that are stored. @throws RunFailure */
async function readStored(
  { sealer, states, plans, runner }: ExecutionParts,
  run: ClaimedRun,
  known: Pick<RunContext, 'stack' | 'cluster' | 'privateKey' | 'node'>,
): Promise<RunContext> {
  const stored = await states.latest(run.installationId);
  const inputs = await openInputs(sealer, run);
  const own = {
    ...known,
    inputs: inputsSchema.parse(JSON.parse(inputs.toString('utf8'))),
    state: stored?.state ?? null,
    // Another version of the stack may need other versions of its providers.
    lockFile: stored?.stackVersionId === run.stackVersionId ? stored.lockFile : null,
    plan: null,
  };
  // A prepared run has the plan in its folder.
  if (!run.isConfirmed || run.prepared) return own;
  const saved = await plans.read(run.id);
  if (saved === null) throw new RunFailure('PLAN_STALE', 'its plan is no longer stored: apply the stack again');
  const { plan, lockFile } = saved;
  if (saved.variablesSha256 !== variablesSha256(own, runner.paths(run.id)))
    throw new RunFailure('PLAN_STALE', clusterChanged);
  return { ...own, plan, lockFile };
}

/** Fails a run whose node was removed or renamed while the run was being requested. @throws RunFailure */
function requireNode({ node, prepared }: ClaimedRun, { nodes }: ClusterContext): void {
  if (node === '' || prepared || nodes.some(({ name }) => name === node)) return;
  throw new RunFailure('INIT_FAILED', `the cluster no longer has a node ${node}: apply the stack to another node`);
}

/** Fails applies of inactive organizations, except those that have started. Destroys are allowed. @throws RunFailure */
function requireActive({ operation, prepared }: ClaimedRun, { organizationStatus: status }: ClusterContext): void {
  if (status === 'active' || operation === 'destroy' || prepared) return;
  throw new RunFailure('ORGANIZATION_INACTIVE', organizationInactive(status));
}

/** Decrypts the inputs. Without the key only a new run fails: a started one would lose its state. @throws RunFailure */
async function openInputs(sealer: Sealer, run: ClaimedRun): Promise<Buffer> {
  try {
    return await sealer.open(run.inputs, inputsContext(run.id));
  } catch (error) {
    const isKey = error instanceof AppError && error.code === 'secrets_unavailable';
    if (!isKey || run.prepared) throw error;
    throw new RunFailure('RUNNER_UNAVAILABLE', `its inputs cannot be read: ${error.message}`);
  }
}

/**
 * Ends a run whose cluster was archived or moved while no gateway followed the run: stops its phase and stores its
 * state. Without the cluster's key nothing could be masked, so the last lines are not logged.
 */
async function endWithoutCluster(parts: ExecutionParts, run: ClaimedRun, { root }: StackPackage): Promise<void> {
  const { runner, claims, limits } = parts;
  const { phase, logLines: lines, logBytes: bytes } = run;
  if (phase !== null && (await runner.observe(run.id, phase)).kind !== 'absent') {
    await claims.cancel(run, 'cluster_gone');
    const silent = { mask: createMask([]), logged: { lines, bytes }, silent: true };
    await runPhase(parts, { run, cwd: '', phase: { name: phase, args: [] }, limitMs: limits.phaseMs, ...silent });
  }
  if (run.driftOf === null) await keepState(parts, run, layoutOf(root));
}
