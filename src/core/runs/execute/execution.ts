import { formatId } from '#base/id.ts';
import {
  type ClaimedRun,
  clusterArchived,
  createMask,
  type FailureCode,
  type Mask,
  outputsOf,
  type PlanChanges,
  readOutputs,
  readPlanChanges,
  readPlanDrift,
  stateNotSaved,
} from '#core/runs/lifecycle/lifecycle.ts';
import { RunnerRefusedError } from '#core/runs/runner/runner.ts';
import { clearRun, initTries, lockFileBytesMax, phaseNames, readIfSound } from './clear-run.ts';
import { explainConnection } from './connection-failure.ts';
import type { ExecutionParts } from './execution-parts.ts';
import { keepState } from './keep-state.ts';
import { type Logged, type PhaseEnd, type PhaseRequest, runPhase } from './phase.ts';
import type { SavedPlan } from './plans.ts';
import { readContext } from './read-context.ts';
import { isLocalBackend, killedBy, RunCanceled, RunFailure } from './run-failure.ts';
import {
  layoutOf,
  reachOf,
  type RunContext,
  secretsOf,
  variablesSha256,
  workFiles,
  type WorkLayout,
} from './work-files.ts';

const backendBytesMax = 1024 * 1024;
const outputBytesMax = 4 * 1024 * 1024;
/** Maximum size of a plan as JSON; the changes of a larger one are not shown. */
const planJsonBytesMax = 32 * 1024 * 1024;

/** Errors of this machine that a repetition does not fix: the run fails with them instead of never starting. */
const lastingTroubles = new Set(['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM']);

const fromMirror = 'providers are installed only from the folder HEADGATE_PROVIDER_MIRROR';
const folderMissing = 'its work folder no longer exists; the last stored state of its resources is kept';

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

/** True if there is nothing to destroy, and no plan to show: then neither Terraform nor a reachable cluster is needed. */
async function hasNothingToDestroy({ states }: ExecutionParts, run: ClaimedRun): Promise<boolean> {
  if (run.operation !== 'destroy' || run.mode !== 'auto' || run.prepared) return false;
  const state = await states.latest(run.installationId);
  return state === null || state.resources === 0;
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
    if (!this.#run.isConfirmed) {
      await this.#plan(isDestroy);
      if (this.#run.mode !== 'auto') return this.#review();
    }
    await this.#begin(isDestroy ? 'DESTROYING' : 'APPLYING');
    const applied = await this.#apply();
    const isKept = await this.#keepState();
    if (!isKept && (this.#context.state !== null || hasChanged(applied))) {
      throw new RunFailure('STATE_SAVE_FAILED', 'the run changed resources but left no state');
    }
    if (applied.exitCode !== 0) this.#fail(failureOf(operation, applied), operation, applied);
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
    // The gateway may have been killed before it removed the folder of the plan.
    if (this.#run.isConfirmed) await runner.remove(this.#run.id);
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
    const isDriftCheck = this.#run.driftOf !== null;
    const kind = isDestroy ? ['-destroy'] : isDriftCheck ? ['-refresh-only'] : [];
    const args = ['plan', '-input=false', '-json', variablesArgument, `-out=${planArgument}`, ...kind];
    const end = await this.#phase('plan', args, this.#parts.limits.phaseMs);
    if (end.exitCode !== 0) this.#fail('PLAN_FAILED', 'plan', end);
    // The summary of Terraform does not count drift.
    if (end.changes !== null && !isDriftCheck) await this.#parts.claims.changes(this.#run, end.changes);
  }

  /** Stores the plan for somebody to look at, and ends the work on the run. */
  async #review(): Promise<void> {
    const { claims, plans, limits } = this.#parts;
    const isPlanOnly = this.#run.mode === 'plan';
    const args = ['show', '-json', '-no-color', this.#layout.planArgument];
    const end = await this.#phase('show', args, limits.initMs, { silent: true });
    if (end.exitCode !== 0) this.#fail('PLAN_FAILED', 'show', end);
    const text = await this.#readAll('show', planJsonBytesMax);
    const changes =
      this.#run.driftOf === null
        ? readPlanChanges(text, secretsOf(this.#context))
        : await this.#readDrift(text, secretsOf(this.#context));
    await plans.keep(this.#run.id, { ...changes, saved: isPlanOnly ? null : await this.#savedPlan() });
    if (!(await claims.planned(this.#run, isPlanOnly ? 'PLANNED_AND_FINISHED' : 'PLANNED'))) await this.#failCanceled();
  }

  /** Reads and counts what differs from what was applied. */
  async #readDrift(text: string, secrets: readonly string[]): Promise<PlanChanges> {
    const drift = readPlanDrift(text, secrets);
    if (drift === null)
      throw new RunFailure('LIMIT_EXCEEDED', 'the plan is larger than 32 MiB as JSON, so its drift cannot be read');
    const { changed, deleted, ...changes } = drift;
    await this.#parts.claims.changes(this.#run, { operation: 'plan', add: 0, change: changed, remove: deleted });
    return changes;
  }

  async #savedPlan(): Promise<SavedPlan> {
    const { runner, states } = this.#parts;
    const { id } = this.#run;
    const plan = await readIfSound(() => runner.readFile(id, this.#layout.plan, states.bytesMax));
    if (plan === null)
      throw new RunFailure('LIMIT_EXCEEDED', 'the plan is missing, or larger than HEADGATE_RUNS_STATE_MIB');
    const lockFile = await readIfSound(() => runner.readFile(id, this.#layout.lockFile, lockFileBytesMax));
    return { plan, lockFile, variablesSha256: variablesSha256(this.#context, runner.paths(id)) };
  }

  /** Sets the status, so that nothing is changed for a run that was canceled before. */
  async #begin(status: 'APPLYING' | 'DESTROYING'): Promise<void> {
    if (!(await this.#parts.claims.transition(this.#run, { status }))) await this.#failCanceled();
  }

  /** Ends a run that was canceled before it changed anything. */
  async #failCanceled(): Promise<void> {
    const { claims } = this.#parts;
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
    const text = end.exitCode === 0 ? await this.#readAll('output', outputBytesMax) : await this.#outputsOfState();
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

  async #readAll(phase: string, bytesMax: number): Promise<string> {
    const chunks: Buffer[] = [];
    for (let offset = 0; offset < bytesMax;) {
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

/** Errors of Terraform and OpenTofu for a saved plan that is older than the state. */
const staleErrors = ['Saved plan is stale', 'Saved plan does not match the given state'];

function failureOf(operation: ClaimedRun['operation'], { error }: PhaseEnd): FailureCode {
  if (error !== null && staleErrors.some((text) => error.includes(text))) return 'PLAN_STALE';
  return operation === 'destroy' ? 'DESTROY_FAILED' : 'APPLY_FAILED';
}

function hasChanged({ changes }: PhaseEnd): boolean {
  return changes !== null && changes.add + changes.change + changes.remove > 0;
}
