import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { afterAll } from 'vitest';

/** Longest pause between two reads of a run, each phase of which takes a second. */
export const runPauseMs = 150;

/**
 * Returns a function that creates a folder for the runs of a gateway, which their user can enter. Called before the
 * gateway of the file is set up, it removes the folder after the gateway has stopped.
 */
export function useRunsFolder(): () => Promise<string> {
  let folder = '';
  afterAll(() => rm(folder, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 }));
  return async () => {
    folder = await mkdtemp('/tmp/headgate-runs-');
    await chmod(folder, 0o711);
    return folder;
  };
}
