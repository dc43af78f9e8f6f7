import { isIP } from 'node:net';
import type { DockerApi, RegistryLogins, SwarmNode, SwarmTask } from '#base/docker/docker.ts';
import { type Endpoint, tcpEndpoint } from '#base/net/net.ts';
import type { SwarmSettings } from '#core/catalog/catalog.ts';
import { apiKeyOf, labels, type Marks, readMarks } from '#core/fleet/drivers/docker/docker.ts';
import type { ObservedReplica, Orphan } from '#core/fleet/drivers/driver.ts';
import type { ReplicaExit } from '#core/fleet/drivers/replica-exit.ts';
import { exitOf, lacksRoom, isStopRequested, type ServiceTask } from './exit.ts';
import { overlayName, swarmPlacement } from './service.ts';

/** Derives replicas from the services and tasks of a swarm. */

export interface SwarmObserveOptions {
  readonly api: DockerApi;
  readonly swarm: SwarmSettings;
  readonly logins: RegistryLogins;
  readonly fleetId: string;
  readonly fleetSecret: string;
  /** Engines of the files, and engines whose files were removed since this gateway started. */
  readonly knownEngines: ReadonlySet<string>;
  /** Exits of tasks that were already read, by service id. */
  readonly exits: Map<string, ReplicaExit>;
}

export interface ObservedServices {
  readonly replicas: readonly ObservedReplica[];
  readonly orphans: readonly Orphan[];
  /** Networks of running replicas. */
  readonly networks: ReadonlySet<string>;
}

/** @throws DockerError if the manager does not answer, or the host is no manager */
export async function observeServices(options: SwarmObserveOptions): Promise<ObservedServices> {
  const { api, fleetId, knownEngines, exits } = options;
  const ours = [`${labels.managed}=true`, `${labels.fleet}=${fleetId}`];
  // The order matters: a service without a task has none yet, or none any more.
  const services = await api.swarm.listServices(ours);
  const [tasks, nodes] = await Promise.all([api.swarm.listTasks(ours), api.swarm.listNodes()]);
  const present = new Set(services.map(({ ID: id }) => id));
  for (const id of exits.keys()) if (!present.has(id)) exits.delete(id);
  const orphans: Orphan[] = [];
  const replicas: Promise<ObservedReplica>[] = [];
  for (const service of services) {
    const found = service.Spec.Labels ?? {};
    const marks = readMarks(found);
    if (marks !== null && knownEngines.has(marks.engineId)) {
      const task = newestTask(tasks.filter(({ ServiceID: id }) => id === service.ID));
      replicas.push(observeService(options, { service, marks, task, nodes }));
    } else {
      const { Name: name } = service.Spec;
      // Only the swarm knows which devices the task uses, and does not assign them twice.
      const about = { gpuIds: [], memoryBytes: 0, endedBy: `docker service rm ${name}` };
      orphans.push({ host: swarmPlacement.host, name, engineId: found[labels.engine] ?? null, ...about });
    }
  }
  const observed = await Promise.all(replicas);
  const running = observed.filter(({ state }) => state === 'running');
  const networks = new Set(running.map(({ replica: { engineId } }) => overlayName(fleetId, engineId)));
  return { replicas: observed, orphans, networks };
}

function newestTask(tasks: readonly SwarmTask[]): SwarmTask | null {
  return tasks.toSorted((a, b) => b.CreatedAt.localeCompare(a.CreatedAt))[0] ?? null;
}

interface Found extends ServiceTask {
  readonly marks: Marks;
}

async function observeService(options: SwarmObserveOptions, found: Found): Promise<ObservedReplica> {
  const { fleetSecret, exits } = options;
  const { service, marks, task } = found;
  const { replicaId, engineId, kind, forcedUsage, specHash, epoch } = marks;
  const base = { specHash, placement: swarmPlacement, epoch, progress: null, health: 'probe' as const, exit: null };
  const replica = (endpoint = tcpEndpoint('', 0)) => ({
    id: replicaId,
    engineId,
    endpoint,
    upstreamModel: null,
    headerLines: kind === 'vllm' ? `Authorization: Bearer ${apiKeyOf(fleetSecret, replicaId)}\r\n` : '',
    forcedUsage,
    kind,
  });
  const exit = exits.get(service.ID) ?? (await exitOf(options, found));
  if (exit !== null) {
    exits.set(service.ID, exit);
    return { ...base, replica: replica(), state: 'exited', exit };
  }
  if (isStopRequested(service)) return { ...base, replica: replica(), state: 'stopping' };
  const endpoint = task?.Status.State === 'running' ? endpointOf(options, found, task) : null;
  if (endpoint !== null) return { ...base, replica: replica(endpoint), state: 'running' };
  const progress = progressOf(task);
  const noRoom = task !== null && lacksRoom(task);
  return { ...base, replica: replica(), state: 'creating', progress, ...(noRoom && { noRoom }) };
}

function progressOf(task: SwarmTask | null): string {
  if (task === null) return 'waiting for the swarm';
  const { State: state, Err: trouble } = task.Status;
  return trouble === '' ? state : `${state}: ${trouble}`;
}

/** Returns null while the task has no address. */
function endpointOf(
  { swarm, fleetId }: SwarmObserveOptions,
  { marks, nodes }: Found,
  task: SwarmTask,
): Endpoint | null {
  if (swarm.network === 'overlay') {
    const network = overlayName(fleetId, marks.engineId);
    const attached = task.NetworksAttachments?.find(({ Network: { Spec: spec } }) => spec.Name === network);
    const [ip = ''] = (attached?.Addresses?.[0] ?? '').split('/');
    return ip === '' ? null : tcpEndpoint(ip, marks.port);
  }
  const address = addressOf(nodes.find(({ ID: id }) => id === task.NodeID));
  const ports = task.Status.PortStatus?.Ports ?? [];
  const published = ports.find(({ TargetPort: port }) => port === marks.port)?.PublishedPort ?? 0;
  return address === null || published === 0 ? null : tcpEndpoint(address, published);
}

/** Managers that listen on all addresses report 0.0.0.0 or :: in place of their own. */
function addressOf(node: SwarmNode | undefined): string | null {
  const manager = (node?.ManagerStatus?.Addr ?? '').replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
  const known = [node?.Status.Addr ?? '', manager].find((ip) => isIP(ip) !== 0 && ip !== '0.0.0.0' && ip !== '::');
  return known ?? null;
}
