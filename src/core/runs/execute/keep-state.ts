import type { ClaimedRun } from '#core/runs/lifecycle/lifecycle.ts';
import { FileTooLargeError, type Runner } from '#core/runs/runner/runner.ts';
import { describeKeepFailure, lockFileBytesMax, readIfSound } from './clear-run.ts';
import { RunFailure } from './run-failure.ts';
import type { States } from './states.ts';
import type { WorkLayout } from './work-files.ts';

/** Storage of the state that a run leaves in its work folder. */

interface Parts {
  readonly runner: Runner;
  readonly states: States;
}

/** @returns null if Terraform has created the file and written no state yet. @throws RunFailure if it is too large */
async function readState({ runner, states }: Parts, runId: string, path: string) {
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

/** @returns true if there is a state. @throws RunFailure if the state is not this installation's */
export async function keepState(
  { runner, states }: Parts,
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
