import { z } from 'zod';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import {
  type ClaimedRun,
  type ClusterContext,
  clusterArchived,
  clusterMoved,
  createMask,
  type FailureCode,
  inputsContext,
  type Mask,
  organizationInactive,
  outputsOf,
  readOutputs,
  type RunSources,
  type Sealer,
  type StackPackage,
  stateNotSaved,
} from '#core/runs/lifecycle/lifecycle.ts';
import { FileTooLargeError, RunnerRefusedError } from '#core/runs/runner/runner.ts';
import { clearRun, initTries, lockFileBytesMax, phaseNames, readIfSound, describeKeepFailure } from './clear-run.ts';
import { explainConnection } from './connection-failure.ts';
import { type Logged, type PhaseEnd, type PhaseParts, type PhaseRequest, runPhase } from './phase.ts';
import { isLocalBackend, killedBy, RunCanceled, RunFailure } from './run-failure.ts';
import type { States } from './states.ts';
import { layoutOf, reachOf, type RunContext, secretsOf, workFiles, type WorkLayout } from './work-files.ts';

export interface ExecutionLimits {
  readonly initMs: number;
  /** Limit of plan, and of apply. */
  readonly phaseMs: number;
}

export interface ExecutionParts extends PhaseParts {
  readonly sources: RunSources;
  readonly sealer: Sealer;
  readonly states: States;
  readonly limits: ExecutionLimits;
  readonly log: Log;
}

const backendBytesMax = 1024 * 1024;
const outputBytesMax = 4 * 1024 * 1024;

/** Errors of this machine that a repetition does not fix: the run fails with them instead of never starting. */
const lastingTroubles = new Set(['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM']);

const wallNeeded =
  'runs have no sandbox on this machine, and only stacks that a platform administrator uploaded may run without one';
const fromMirror = 'providers are installed only from the folder HEADGATE_PROVIDER_MIRROR';
const folderMissing = 'its work folder no longer exists; the last stored state of its resources is kept';
const inputsSchema = z.record(z.string(), z.unknown());

/**
 * Runs a run to its end, from whatever step it has reached. Every step can be repeated: a gateway that adopts the run
 * begins here again, and finds phases that have ended, or still run, by their names.
 * @throws DetachedError, RunLostError, and what the stores throw: the run stays as it is, and its lease expires
 */
export async function executeRun(parts: ExecutionParts, run: ClaimedRun): Promise<void> {
  const { claims } = parts;
  try {
    if (run.status === 'CANCELING' && run.phase === null) throw endBefore(run);
    await requireSavedState(parts, run);
    if (await hasNothingToDestroy(parts, run)) await claims.transition(run, { status: 'DESTROYED' });
    else {
      const context = await readContext(parts, run);
      await new Execution(parts, run, context).run();
    }
  } catch (error) {
    if (error instanceof RunCanceled) await claims.transition(run, { status: 'CANCELED' });
    else if (error instanceof RunFailure) {
      await claims.transition(run, { status: 'FAILED', failureCode: error.code, failureMessage: error.message });
    } else if (error instanceof RunnerRefusedError) {
      parts.log.warn({ err: error, run: run.id }, 'a run failed: the Docker host rejected its containers');
      await claims.transition(run, {
        status: 'FAILED',
        failureCode: 'RUNNER_UNAVAILABLE',
        failureMessage: error.message,
      });
    } else throw error;
  }
  await clearRun(parts, run);
}

/** @returns null if Terraform has created the file and written no state yet. @throws RunFailure if it is too large */
async function readState({ runner, states }: Pick<ExecutionParts, 'runner' | 'states'>, runId: string, path: string) {
  try {
    const state = await runner.readFile(runId, path, states.bytesMax);
    return state?.length === 0 ? null : state;
  } catch (error) {
    if (!(error instanceof FileTooLargeError)) throw error;
    throw stateUnsaved(error.message);
  }
}

const stateUnsaved = (why: string): RunFailure =>
  new RunFailure(
    'STATE_SAVE_FAILED',
    `the state of the run could not be stored: ${why}. It stays in the run's work folder (named in the gateway's log), and the gateway retries; raise HEADGATE_RUNS_STATE_MIB for larger states, or recover the state and let an administrator forget the run`,
  );

/** Ends a run that was canceled before it started. Works without the platform key. */
function endBefore({ cancelReason }: ClaimedRun): Error {
  if (cancelReason === 'cluster_gone') return new RunFailure('CLUSTER_GONE', 'the cluster was archived');
  return new RunCanceled();
}

/** Fails a new run if an earlier run of its installation has left a state that is not stored. @throws RunFailure */
async function requireSavedState({ states }: ExecutionParts, run: ClaimedRun): Promise<void> {
  const unsaved = run.prepared ? null : await states.unsavedRun(run.installationId);
  if (unsaved !== null) throw new RunFailure('STATE_NOT_SAVED', stateNotSaved(formatId('run', unsaved)));
}

/** True if there is nothing to destroy: then neither Terraform nor a reachable cluster is needed. */
async function hasNothingToDestroy({ states }: ExecutionParts, run: ClaimedRun): Promise<boolean> {
  if (run.operation !== 'destroy' || run.prepared) return false;
  const state = await states.latest(run.installationId);
  return state === null || state.resources === 0;
}

/** @throws RunFailure */
async function readContext(parts: ExecutionParts, run: ClaimedRun): Promise<RunContext> {
  const { sources, sealer, states, runner } = parts;
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
  const stored = await states.latest(run.installationId);
  const inputs = await openInputs(sealer, run);
  return {
    stack,
    cluster,
    privateKey,
    node: run.node,
    inputs: inputsSchema.parse(JSON.parse(inputs.toString('utf8'))),
    state: stored?.state ?? null,
    // Another version of the stack may need other versions of its providers.
    lockFile: stored?.stackVersionId === run.stackVersionId ? stored.lockFile : null,
  };
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
  await keepState(parts, run, layoutOf(root));
}

/** @returns true if there is a state. @throws RunFailure if the state is not this installation's */
async function keepState(
  { runner, states }: ExecutionParts,
  { id: runId, installationId }: ClaimedRun,
  layout: WorkLayout,
): Promise<boolean> {
  const state = await readState({ runner, states }, runId, layout.state);
  if (state === null) return false;
  const lockFile = await readIfSound(() => runner.readFile(runId, layout.lockFile, lockFileBytesMax));
  const kept = await states.keep({ installationId, runId, state, lockFile });
  const why = describeKeepFailure(kept);
  if (why !== null) throw stateUnsaved(why);
  return true;
}

class Execution {
  readonly #parts: ExecutionParts;
  readonly #context: RunContext;
  readonly #layout: WorkLayout;
  readonly #mask: Mask;
  readonly #logged: Logged;
  /** The run as it is now; the claimed copy becomes outdated. */
  #run: ClaimedRun;

  constructor(parts: ExecutionParts, run: ClaimedRun, context: RunContext) {
    this.#parts = parts;
    this.#run = run;
    this.#context = context;
    this.#layout = layoutOf(context.stack.root);
    this.#mask = createMask(secretsOf(context));
    this.#logged = { lines: run.logLines, bytes: run.logBytes };
  }

  async run(): Promise<void> {
    const { operation } = this.#run;
    const isDestroy = operation === 'destroy';
    await this.#prepare();
    await this.#init();
    await this.#plan(isDestroy);
    await this.#begin(isDestroy ? 'DESTROYING' : 'APPLYING');
    const applied = await this.#apply();
    const isKept = await this.#keepState();
    if (!isKept && (this.#context.state !== null || hasChanged(applied))) {
      throw new RunFailure('STATE_SAVE_FAILED', 'the run changed resources but left no state');
    }
    if (applied.exitCode !== 0) this.#fail(isDestroy ? 'DESTROY_FAILED' : 'APPLY_FAILED', operation, applied);
    const outputs = isDestroy ? null : await this.#outputs();
    const end = isDestroy ? { status: 'DESTROYED' as const } : { status: 'APPLIED' as const, ...outputs };
    await this.#parts.claims.transition(this.#run, end);
  }

  async #prepare(): Promise<void> {
    const { runner, claims } = this.#parts;
    if (this.#run.prepared) {
      // The folder is missing, as after a restore of the database or on a new machine.
      if (!(await runner.list()).includes(this.#run.id)) throw new RunFailure('INTERRUPTED', folderMissing);
      return;
    }
    const files = workFiles(this.#context, runner.paths(this.#run.id));
    // Reading may have taken longer than the lease: another gateway may use the folder by now.
    await claims.renew(this.#run);
    try {
      await runner.prepare(this.#run.id, files, reachOf(this.#context));
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : '';
      if (!lastingTroubles.has(code)) throw error;
      throw new RunFailure('RUNNER_UNAVAILABLE', `the folder of the run cannot be created (${code})`);
    }
    await claims.prepared(this.#run);
    this.#run = { ...this.#run, prepared: true };
  }

  async #init(): Promise<void> {
    const { initMs } = this.#parts.limits;
    for (let attempt = 1; ; attempt += 1) {
      const end = await this.#phase(`init-${attempt}`, ['init', '-input=false', '-no-color', '-json'], initMs);
      if (end.exitCode === 0) break;
      if (end.canceled !== null || attempt === initTries) this.#fail('INIT_FAILED', 'init', end);
    }
    await this.#requireOwnBackend();
  }

  /** Fails unless the state lies where Headgate reads it, whatever backend the package names. */
  async #requireOwnBackend(): Promise<void> {
    const { runner } = this.#parts;
    const file = await readIfSound(() => runner.readFile(this.#run.id, this.#layout.backend, backendBytesMax));
    const isOwn = file !== null && isLocalBackend(file.toString('utf8'));
    if (!isOwn)
      throw new RunFailure(
        'INIT_FAILED',
        'the package stores its state elsewhere, with its own backend or cloud block: remove the block',
      );
  }

  async #plan(isDestroy: boolean): Promise<void> {
    const { variablesArgument, planArgument } = this.#layout;
    const args = ['plan', '-input=false', '-json', variablesArgument, `-out=${planArgument}`];
    const end = await this.#phase('plan', isDestroy ? [...args, '-destroy'] : args, this.#parts.limits.phaseMs);
    if (end.exitCode !== 0) this.#fail('PLAN_FAILED', 'plan', end);
    if (end.changes !== null) await this.#parts.claims.changes(this.#run, end.changes);
  }

  /** Sets the status, so that nothing is changed for a run that was canceled before. */
  async #begin(status: 'APPLYING' | 'DESTROYING'): Promise<void> {
    const { claims } = this.#parts;
    if (await claims.transition(this.#run, { status })) return;
    const now = await claims.renew(this.#run);
    const hasBegun = this.#run.phase === 'apply' || this.#run.phase === 'output';
    if (now.status !== 'CANCELING' || hasBegun) return;
    if (now.cancelReason === 'cluster_gone') throw new RunFailure('CLUSTER_GONE', clusterArchived);
    throw new RunCanceled();
  }

  async #apply(): Promise<PhaseEnd> {
    const { planArgument, variablesArgument } = this.#layout;
    // Programs without ephemeral variables reject variables beside a plan.
    const isEphemeral = this.#context.stack.inputs.some(({ ephemeral }) => ephemeral);
    const args = ['apply', '-input=false', '-json', ...(isEphemeral ? [variablesArgument] : []), planArgument];
    const snapshot = async (): Promise<void> => {
      await this.#keepState().catch((error: unknown) =>
        this.#parts.log.warn(
          { err: error, runId: this.#run.id },
          'the Terraform state of a running apply could not be stored yet; retrying',
        ),
      );
    };
    const end = await this.#phase('apply', args, this.#parts.limits.phaseMs, { snapshot });
    // The plan contains secrets.
    await this.#parts.runner.removeFile(this.#run.id, this.#layout.plan);
    if (end.changes !== null) await this.#parts.claims.changes(this.#run, end.changes);
    return end;
  }

  #keepState(): Promise<boolean> {
    return keepState(this.#parts, this.#run, this.#layout);
  }

  async #outputs(): Promise<ReturnType<typeof readOutputs>> {
    const { limits } = this.#parts;
    const end = await this.#phase('output', ['output', '-json'], limits.initMs, { silent: true });
    const { nodes } = this.#context.cluster;
    // A canceled or killed `output` phase comes after a completed apply: the outputs are in the state.
    const text = end.exitCode === 0 ? await this.#readAll('output') : await this.#outputsOfState();
    return readOutputs(text, {
      announced: this.#context.stack.web,
      nodes: nodes.map(({ name, ssh_port: sshPort }) => ({ name, sshPort })),
      ownNode: this.#context.node,
      mask: this.#mask,
    });
  }

  async #outputsOfState(): Promise<string> {
    const stored = await this.#parts.states.latest(this.#run.installationId);
    return stored === null ? '' : outputsOf(stored.state);
  }

  async #readAll(phase: string): Promise<string> {
    const chunks: Buffer[] = [];
    for (let offset = 0; offset < outputBytesMax;) {
      const chunk = await this.#parts.runner.readLog(this.#run.id, phase, offset);
      if (chunk.length === 0) break;
      chunks.push(chunk);
      offset += chunk.length;
    }
    return Buffer.concat(chunks).toString('utf8');
  }

  async #phase(
    name: string,
    args: readonly string[],
    limitMs: number,
    more: Pick<PhaseRequest, 'snapshot' | 'silent'> = {},
  ): Promise<PhaseEnd> {
    // An adopted run skips the phases that are over: their lines are in the log already.
    const isOver = phaseNames.indexOf(name) < phaseNames.indexOf(this.#run.phase ?? '');
    if (isOver) return this.#endOf(name);
    const common = { run: this.#run, cwd: this.#layout.cwd, mask: this.#mask, logged: this.#logged, limitMs, ...more };
    const end = await runPhase(this.#parts, { ...common, phase: { name, args } });
    this.#run = { ...this.#run, phase: name };
    return end;
  }

  async #endOf(name: string): Promise<PhaseEnd> {
    const state = await this.#parts.runner.observe(this.#run.id, name);
    const exitCode = state.kind === 'ended' ? state.exitCode : null;
    return { exitCode, because: null, isExceeded: false, changes: null, error: null, unreached: [], canceled: null };
  }

  #fail(code: FailureCode, command: string, end: PhaseEnd): never {
    const { exitCode, because, isExceeded, canceled, unreached } = end;
    if (canceled === 'timeout') throw new RunFailure('TIMEOUT', `${command} exceeded its time limit and was stopped`);
    if (canceled === 'cluster_gone') throw new RunFailure('CLUSTER_GONE', clusterArchived);
    if (canceled !== null) throw new RunCanceled();
    if (isExceeded)
      throw new RunFailure('LIMIT_EXCEEDED', `${command} was stopped: ${because ?? 'it exceeded a limit'}`);
    if (exitCode === null) throw new RunFailure('INTERRUPTED', `${command} was killed and left no exit code`);
    const nodes = reachOf(this.#context);
    const error = end.error === null ? null : explainConnection(end.error, { unreached, nodes });
    const ended = killedBy(command, exitCode) ?? error ?? `${command} failed with exit code ${exitCode}`;
    const text = because === null ? ended : `${ended}: ${because}`;
    const isOfMirror = code === 'INIT_FAILED' && this.#parts.runner.paths(this.#run.id).mirror !== null;
    throw new RunFailure(code, isOfMirror && text.includes('provider') ? `${text} (${fromMirror})` : text);
  }
}

function hasChanged({ changes }: PhaseEnd): boolean {
  return changes !== null && changes.add + changes.change + changes.remove > 0;
}
