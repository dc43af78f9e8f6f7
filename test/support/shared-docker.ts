import { afterAll, beforeAll, inject } from 'vitest';
import { callDocker, startDocker, type TestDocker } from './docker.ts';

/** Values that the setup hands to test files of the Docker engine that they share. */
export interface SharedDocker {
  readonly socketPath: string;
  readonly dir: string;
  /** Folder of its images, for engines that begin with the same. */
  readonly images: string;
}

declare module 'vitest' {
  interface ProvidedContext {
    testDocker: SharedDocker;
  }
}

/** The engine that all files of a run use at once, each with containers of its own. It is not theirs to end. */
function sharedDocker(): TestDocker {
  const { socketPath, dir } = inject('testDocker');
  const refuse = (): never => {
    throw new Error('Other files use this Docker engine as well: ask for one of your own.');
  };
  return {
    socketPath,
    dir,
    call: (method, path, body) => callDocker(socketPath, { method, path, body }),
    kill: refuse,
    start: refuse,
    freeze: refuse,
    stop: refuse,
  };
}

/** An engine of the caller's own, with the stand-in's image in it. */
export function startOwnDocker(
  options: readonly string[] = [],
  netns: string | null = null,
  isAnother = false,
): Promise<TestDocker> {
  return startDocker({ options, netns, images: inject('testDocker').images, isAnother });
}

/**
 * The Docker engine of a file's tests.
 * @param options of one of the file's own, stopped at its end; null for the one that files share
 */
export function useDocker(options: (() => readonly string[]) | null): () => TestDocker {
  let docker: TestDocker | null = null;
  beforeAll(async () => {
    docker = options === null ? sharedDocker() : await startOwnDocker(options());
  });
  // Hooks of the end run in reverse: whoever uses the engine has ended by then.
  afterAll(() => (options === null ? undefined : docker?.stop()));
  return () => {
    if (docker === null) throw new Error('The Docker engine of this file does not run.');
    return docker;
  };
}

/** The query of a list that names what carries a label. */
export function labelFilter(label: string, value: string): string {
  return encodeURIComponent(JSON.stringify({ label: [`${label}=${value}`] }));
}

/** Removes the containers and networks that carry a label: a file leaves nothing in the engine that others use. */
export async function removeLabelled(docker: TestDocker, label: string, value: string): Promise<void> {
  const filter = labelFilter(label, value);
  const containers = (await docker.call('GET', `/containers/json?all=1&filters=${filter}`)) as readonly {
    Id: string;
  }[];
  const remove = (path: string) => docker.call('DELETE', path).catch(() => undefined);
  await Promise.all(containers.map(({ Id: id }) => remove(`/containers/${id}?force=1&v=1`)));
  const networks = (await docker.call('GET', `/networks?filters=${filter}`)) as readonly { Id: string }[];
  await Promise.all(networks.map(({ Id: id }) => remove(`/networks/${id}`)));
}
