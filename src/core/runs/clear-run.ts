import type { Log } from '#base/log.ts';
import { FileTooLargeError } from '#core/runs/runner/runner.ts';
import type { ClaimedRun } from './claimed-run.ts';
import type { PhaseParts } from './phase.ts';
import type { RunSources } from './sources.ts';
import { stateBytesMax, type States } from './states.ts';
import { layoutOf } from './work-files.ts';

/** Providers are fetched by `init`, and networks fail. */
export const initTries = 3;
/** In the order in which they run. */
export const phaseNames: readonly string[] = [
  ...Array.from({ length: initTries }, (_, index) => `init-${index + 1}`),
  'plan',
  'apply',
  'output',
];
export const lockFileBytesMax = 1024 * 1024;

export interface ClearingParts extends Pick<PhaseParts, 'runner'> {
  readonly states: States;
  readonly sources: RunSources;
  readonly log: Log;
}

/**
 * Ends what still runs of a run that is over, and removes its folder, with what Terraform knew last on record: a gateway
 * that was killed, or was given up for lost, has not written that down.
 * @throws what the stores throw: the folder stays
 */
export async function clearRun(
  { runner, states, sources, log }: ClearingParts,
  run: Pick<ClaimedRun, 'id' | 'installationId' | 'stackVersionId'>,
): Promise<void> {
  const { id: runId, installationId } = run;
  for (const phase of phaseNames) await runner.kill(runId, phase);
  const stack = await sources.stackPackage(run.stackVersionId);
  const layout = stack === null ? null : layoutOf(stack.root);
  const state = layout === null ? null : await readIfSound(() => runner.readFile(runId, layout.state, stateBytesMax));
  if (layout !== null && state !== null) {
    const lockFile = await readIfSound(() => runner.readFile(runId, layout.lockFile, lockFileBytesMax));
    const kept = await states.keep({ installationId, runId, state, lockFile });
    if (kept === 'kept') log.info({ runId }, 'the state of a run that was given up is on record');
    if (kept === 'foreign')
      log.warn({ runId }, 'a run that was given up left a state that no other run has gone on with');
  }
  await runner.remove(runId);
}

/** Of a file that is too large to be a state nothing is kept. */
export async function readIfSound(read: () => Promise<Buffer | null>): Promise<Buffer | null> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof FileTooLargeError) return null;
    throw error;
  }
}
