import { stat } from 'node:fs/promises';
import type { EngineSpec, StartActivity } from '#core/fleet/drivers/driver.ts';
import { cachedBytes, cacheFolders, repositoriesOf } from '#core/fleet/drivers/weights-cache.ts';
import type { ChildProcesses } from './child.ts';
import { launchEnvironment, processSettings } from './command.ts';
import { errorPathOf } from './stderr-log.ts';

/** Returns what a child has written: its output, and the weights of its models in the cache. */
export async function activityOf(
  { children, env: gatewayEnv, folders: { owner } }: ChildProcesses,
  replicaId: string,
  specs: ReadonlyMap<string, EngineSpec>,
): Promise<StartActivity | null> {
  const child = children.get(replicaId);
  const definition = child === undefined ? undefined : specs.get(child.replica.engineId)?.definition;
  if (child === undefined || definition === undefined) return null;
  const output = await Promise.all([child.logPath, errorPathOf(child.logPath)].map(markOf));
  const environment = launchEnvironment(definition, { gatewayEnv, owner, gpuIds: [] });
  const cache = environment.ok ? cacheFolders(environment.env, processSettings(definition).command) : [];
  return { output: output.join(' '), downloadedBytes: await cachedBytes(cache, repositoriesOf(definition)) };
}

/** Returns a text that changes with each write to a file. */
async function markOf(path: string): Promise<string> {
  try {
    const { size, mtimeMs } = await stat(path);
    return `${size}:${mtimeMs}`;
  } catch {
    return '';
  }
}
