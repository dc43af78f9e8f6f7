import { type DockerApi, DockerError, type NetworkSummary } from '#base/docker/docker.ts';
import { type Fence, requireFence } from '#core/fleet/drivers/fence.ts';
import { labels, networkName } from './labels.ts';

/** Manages one private network per engine and host. */

export interface NetworkOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly engineId: string;
}

/** Creates the network of an engine if it does not exist. @throws FenceLostError */
export async function ensureNetwork(options: NetworkOptions, fence: Fence): Promise<void> {
  const { api, fleetId, engineId } = options;
  const found = await networksOf(options);
  if (found.length === 1) return;
  await requireFence(fence);
  if (found.length > 1) {
    await keepOne(options, found, fence);
    return;
  }
  try {
    await api.createNetwork(networkName(fleetId, engineId), {
      [labels.managed]: 'true',
      [labels.fleet]: fleetId,
      [labels.engine]: engineId,
    });
  } catch (error) {
    // Another call created it first.
    if (!(error instanceof DockerError) || error.status !== 409) throw error;
  }
  await keepOne(options, await networksOf(options), fence);
}

/** Returns the engine's networks, newest first. */
async function networksOf({ api, fleetId, engineId }: NetworkOptions): Promise<readonly NetworkSummary[]> {
  const name = networkName(fleetId, engineId);
  const found = await api.networks([`${labels.fleet}=${fleetId}`, `${labels.engine}=${engineId}`]);
  const ageOf = ({ Created: created, Id: id }: NetworkSummary): string => `${created ?? ''} ${id}`;
  return found.filter((network) => network.Name === name).toSorted((a, b) => (ageOf(a) < ageOf(b) ? 1 : -1));
}

/**
 * Resolves duplicates. Docker checks for a network of the same name before it creates one, so two simultaneous calls
 * may create two, and then no container can start in either. All callers keep the same network: the oldest, unless a
 * newer one is in use.
 */
async function keepOne({ api }: NetworkOptions, found: readonly NetworkSummary[], fence: Fence): Promise<void> {
  let remaining = found.length;
  for (const { Id: id } of found) {
    if (remaining <= 1) break;
    await requireFence(fence);
    try {
      await api.removeNetwork(id);
      remaining -= 1;
    } catch (error) {
      // The network has containers.
      if (!(error instanceof DockerError) || error.status !== 403) throw error;
    }
  }
}

/**
 * Removes the network of an engine that has no container on the host any more. Gateways that joined the network leave
 * first, including stopped gateway containers.
 * @throws FenceLostError
 */
export async function removeNetwork({ api, fleetId, engineId }: NetworkOptions, fence: Fence): Promise<void> {
  const name = networkName(fleetId, engineId);
  const network = await api.inspectNetwork(name);
  if (network === null || network.Labels?.[labels.fleet] !== fleetId) return;
  for (const container of new Set([...Object.keys(network.Containers ?? {}), ...(await api.joinedTo(name))])) {
    await requireFence(fence);
    await api.disconnect(name, container);
  }
  await requireFence(fence);
  await api.removeNetwork(name);
}

/**
 * Connects the gateway's own container to the networks that it has not joined yet.
 * @param own its id; a host that does not know this id is another machine, and nothing is done there
 * @returns the networks it has joined, or null if the container does not run on this host
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
