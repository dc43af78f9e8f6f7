import type { Log } from '#base/log.ts';
import type { ClaimedRun, RunSources } from '#core/runs/lifecycle/lifecycle.ts';
import { FileTooLargeError } from '#core/runs/runner/runner.ts';
import type { PhaseParts } from './phase.ts';
import type { KeepResult, States } from './states.ts';
import { layoutOf, type WorkLayout } from './work-files.ts';

/** Attempts of `init`, which downloads providers: networks fail. */
export const initTries = 3;
/** Phases in the order in which they run. */
export const phaseNames: readonly string[] = [
  ...Array.from({ length: initTries }, (_, index) => `init-${index + 1}`),
  'plan',
  'show',
  'apply',
  'output',
];
export const lockFileBytesMax = 1024 * 1024;

export interface ClearingParts extends Pick<PhaseParts, 'runner'> {
  readonly states: States;
  readonly sources: RunSources;
  readonly log: Log;
}

/** Runs with states that could not be stored, for each log that already names them. */
const reportedRuns = new WeakMap<Log, Set<string>>();

/**
 * Ends what still runs of an ended run, stores the last state of Terraform, and removes the folder. A gateway that was
 * killed, or given up as lost, has not stored that state. A state that cannot be stored stays in the folder, without
 * the secrets beside it; the next sweep tries again, until somebody forgets the run.
 * @throws what the stores throw: the folder stays
 */
export async function clearRun(parts: ClearingParts, run: EndedRun): Promise<void> {
  const { runner, states, sources, log } = parts;
  for (const phase of phaseNames) await runner.kill(run.id, phase);
  // A drift check has changed nothing, so its folder has no state of its own.
  if (run.isForgotten === true || run.driftOf !== null) return runner.remove(run.id);
  const stack = await sources.stackPackage(run.stackVersionId);
  const layout = stack === null ? null : layoutOf(stack.root);
  const unkept = layout === null ? versionDeleted : await findUnkept(parts, run, layout);
  if (unkept === null) {
    await runner.remove(run.id);
    return states.markUnsaved(run.id, false);
  }
  // Nothing is applied over an unstored state until it is stored or forgotten; after a later run, only that run's state
  // counts.
  await states.markUnsaved(run.id, !unkept.isOvertaken);
  if (layout !== null) await removeSecrets(runner, run.id, layout);
  const known = reportedRuns.get(log) ?? new Set();
  reportedRuns.set(log, known);
  if (known.has(run.id)) return;
  known.add(run.id);
  const place = runner.locate(run.id, layout?.state ?? '');
  log.error(
    { runId: run.id, place, why: unkept.why },
    'the Terraform state of a run could not be stored, and its only copy is in its work folder (see place and why). Retrying every minute; "headgate runs forget" deletes it',
  );
}

/**
 * Removes secrets. A run may have moved them, so only the state and the lock file stay where the runner supports that.
 */
async function removeSecrets(runner: ClearingParts['runner'], runId: string, layout: WorkLayout): Promise<void> {
  if (runner.keepOnly !== undefined) return runner.keepOnly(runId, [layout.state, layout.lockFile]);
  for (const path of layout.secret) await runner.removeFile(runId, path);
}

export interface EndedRun extends Pick<ClaimedRun, 'id' | 'installationId' | 'stackVersionId' | 'driftOf'> {
  readonly isForgotten?: boolean;
}

/** A state that is not stored. */
interface Unkept {
  readonly why: string;
  /** True if the state of a later run, which started without this state, is stored. */
  readonly isOvertaken: boolean;
}

const versionDeleted: Unkept = { why: 'the version of its stack was deleted', isOvertaken: false };

/** @returns null if nothing is left unstored */
async function findUnkept(
  { runner, states, log }: ClearingParts,
  { id: runId, installationId }: EndedRun,
  layout: WorkLayout,
): Promise<Unkept | null> {
  try {
    const state = await runner.readFile(runId, layout.state, states.bytesMax);
    if (state === null || state.length === 0) return null;
    const lockFile = await readIfSound(() => runner.readFile(runId, layout.lockFile, lockFileBytesMax));
    const kept = await states.keep({ installationId, runId, state, lockFile });
    if (kept === 'kept') log.info({ runId }, 'stored the Terraform state of a run that its gateway had not stored');
    const why = describeKeepFailure(kept);
    return why === null ? null : { why, isOvertaken: kept === 'overtaken' };
  } catch (error) {
    if (error instanceof FileTooLargeError) return { why: error.message, isOvertaken: false };
    throw error;
  }
}

/** Returns null if the state is stored. */
export function describeKeepFailure(result: KeepResult): string | null {
  if (result === 'overtaken')
    return 'a later run of the stack on this cluster has started without this state, and has stored its own';
  if (result === 'foreign') return 'the state belongs to another stack or cluster';
  return result === 'not_a_state' ? 'the file is not a Terraform state' : null;
}

/** Returns null for a file over the limit, instead of the error. */
export async function readIfSound(read: () => Promise<Buffer | null>): Promise<Buffer | null> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof FileTooLargeError) return null;
    throw error;
  }
}
