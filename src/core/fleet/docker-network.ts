import { type DockerApi, DockerError } from './docker-api.ts';
import { labels, networkName } from './docker-labels.ts';
import type { Fence } from './driver.ts';

/** One private network per engine and host. */

export interface NetworkOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly engineId: string;
}

/** Makes the network of an engine if it is not there. @returns false when the fence does not hold */
export async function ensureNetwork({ api, fleetId, engineId }: NetworkOptions, fence: Fence): Promise<boolean> {
  const name = networkName(fleetId, engineId);
  if ((await api.inspectNetwork(name)) !== null) return true;
  if (!(await fence.holds())) return false;
  try {
    await api.createNetwork(name, {
      [labels.managed]: 'true',
      [labels.fleet]: fleetId,
      [labels.engine]: engineId,
    });
  } catch (error) {
    // Somebody else was faster.
    if (!(error instanceof DockerError) || error.status !== 409) throw error;
  }
  return true;
}

/** Removes the network of an engine that has no container there any more; gateways that joined it leave. */
export async function removeNetwork({ api, fleetId, engineId }: NetworkOptions, fence: Fence): Promise<void> {
  const name = networkName(fleetId, engineId);
  const network = await api.inspectNetwork(name);
  if (network === null || network.Labels?.[labels.fleet] !== fleetId) return;
  for (const container of Object.keys(network.Containers ?? {})) {
    if (!(await fence.holds())) return;
    await api.disconnect(name, container);
  }
  if (await fence.holds()) await api.removeNetwork(name);
}

/**
 * Lets the gateway's own container into the networks that it is not in yet.
 * @param own its id; a host that does not know it is another machine, and nothing is done there
 * @returns the networks that it is in now, or null when it does not run there
 */
export async function joinNetworks(
  api: DockerApi,
  own: string,
  networks: Iterable<string>,
): Promise<ReadonlySet<string> | null> {
  const found = await api.inspect(own);
  if (found === null) return null;
  const joined = new Set(Object.keys(found.NetworkSettings?.Networks ?? {}));
  for (const network of networks) {
    if (joined.has(network)) continue;
    try {
      await api.connect(network, own);
    } catch (error) {
      if (!(error instanceof DockerError) || !/already exists in network/.test(error.reason)) throw error;
    }
    joined.add(network);
  }
  return joined;
}
